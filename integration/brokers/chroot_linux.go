package brokers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// insideChroot is the path of the work directory inside the chroot. debootstrap creates it.
const insideChroot = "/mnt"

// chroot returns the root of the Debian of that suite that integration/setup.sh made for a version of RabbitMQ.
func chroot(suite, part string) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("a chroot is for root, and these tests run as another user: " +
			"run them as root, start a docker daemon, or name a running broker in the environment")
	}
	// The script hashes the same line. Increase the number to make the root in another way.
	dir, err := fetched("rabbitmq-server-"+suite, []byte("1 "+suite+" rabbitmq-server\n"), part)
	return filepath.Join(dir, "root"), err
}

// enter mounts what a program in the chroot needs and then executes the program. The mounts are in a mount namespace of
// the process, end with it, and are invisible to others, so any number of processes may run at once in one root. They
// see the root read-only.
const enter = `set -e
root=$1 work=$2 inside=$3
shift 3
mount --bind "$root" "$root"
mount --bind "$work" "$root$inside"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount -o remount,bind,ro "$root"
exec chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$inside" "$@"
`

// chrootCommand returns a command that runs a program in the chroot, in the directory work.
func chrootCommand(ctx context.Context, root, work string, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", enter, "sh", root, work, insideChroot, program}, args...)...)
	cmd.Dir = "/"
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}
