//go:build unix && !linux

package brokers

import (
	"context"
	"errors"
	"os/exec"
)

const insideChroot = "/mnt"

func chroot(string, string) (string, error) {
	return "", errors.New("a chroot with another RabbitMQ works on Linux only: start a docker daemon, or name a running broker in the environment")
}

// chrootCommand is never called here, because chroot fails.
func chrootCommand(ctx context.Context, _, _ string, _ []string, program string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, program, args...)
}
