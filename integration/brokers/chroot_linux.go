package brokers

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// insideChroot is where a program in a chroot sees its work directory; debootstrap makes the directory.
const insideChroot = "/mnt"

// chroot returns the root of the Debian of that suite that integration/setup.sh made for a version of RabbitMQ.
func chroot(suite, part string) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("a chroot is for root, and these tests run as another user: " +
			"run them as root, start a docker daemon, or name a running broker in the environment")
	}
	// The script hashes the same line; another number is another way to make the root.
	dir, err := fetched("rabbitmq-server-"+suite, []byte("1 "+suite+" rabbitmq-server\n"), part)
	return filepath.Join(dir, "root"), err
}

// enter mounts what a program in the chroot needs and becomes the program. The mounts are in a mount namespace of the
// process and end with it, in whatever way it ends; nobody else ever sees them, so any number of these may run at
// once in one root. The root itself is read-only to them.
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

// chrootCommand returns what runs a program in the chroot with work as its directory.
func chrootCommand(ctx context.Context, root, work string, env []string, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", enter, "sh", root, work, insideChroot, program}, args...)...)
	cmd.Dir = "/"
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd
}
