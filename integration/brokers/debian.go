package brokers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// debian is a Debian with RabbitMQ's package: this machine, or a chroot on it.
type debian struct {
	root    string // of a chroot; empty for this machine
	version string // of RabbitMQ
}

// findRabbitMQ returns the Debian that has the requested version: this machine, or else a chroot with the release that
// has it.
func findRabbitMQ(o RabbitMQOptions) (debian, error) {
	have := rabbitVersion("/")
	if o.Version.is(have) {
		return debian{version: have}, nil
	}
	here := "is not installed here"
	if have != "" {
		here = "is not what is installed here, that is " + have
	}
	suite, part := "bookworm", "rabbitmq"
	switch o.Version {
	case RabbitMQ3:
	case RabbitMQ4:
		suite, part = "trixie", "rabbitmq4"
	case RabbitMQ43:
		suite, part = "forky", "rabbitmq4.3"
	}
	root, err := chroot(suite, part)
	if err != nil {
		return debian{}, fmt.Errorf("rabbitmq %s %s, and debian %s in a chroot, which has it, cannot be had: %w",
			o.Version, here, suite, err)
	}
	if have = rabbitVersion(root); !o.Version.is(have) {
		return debian{}, fmt.Errorf("debian %s in %s has rabbitmq %q, and not %s", suite, root, have, o.Version)
	}
	return debian{root: root, version: have}, nil
}

// is reports whether have, such as 3.10.8, has the major version of v. Ubuntu's 3.12 is accepted for 3.10, but only 4.3 for 4.3.
func (v RabbitMQVersion) is(have string) bool {
	if v == RabbitMQ43 {
		return strings.HasPrefix(have, string(v)+".")
	}
	major, _, _ := strings.Cut(string(v), ".")
	return strings.HasPrefix(have, major+".")
}

// rabbitVersion returns the version of RabbitMQ that is installed below root, or "" if none is.
func rabbitVersion(root string) string {
	const prefix = "rabbitmq_server-"
	found, _ := filepath.Glob(filepath.Join(root, "usr/lib/rabbitmq/lib", prefix+"*"))
	if len(found) == 0 {
		return ""
	}
	return strings.TrimPrefix(filepath.Base(found[0]), prefix)
}

// inside returns the path of w for the programs of this Debian.
func (d debian) inside(w *workDir) string {
	if d.root == "" {
		return w.dir
	}
	return insideChroot
}

// command returns a command that runs a program of this Debian in the directory w. The process is the program itself
// and not a parent of it, so that signals reach it.
func (d debian) command(ctx context.Context, w *workDir, env []string, program string, args ...string) *exec.Cmd {
	if d.root != "" {
		return chrootCommand(ctx, d.root, w.dir, env, program, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = w.dir
	cmd.Env = env
	return cmd
}
