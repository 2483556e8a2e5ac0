package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// insideChroot is where a program in a chroot sees its work directory; debootstrap makes the directory.
const insideChroot = "/mnt"

// chroot returns the root of a Debian of that suite with one package on top of the least there is.
func chroot(ctx context.Context, suite, pkg string, logf func(string, ...any)) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("a chroot is for root, and these tests run as another user: " +
			"run them as root, start a docker daemon, or name a running broker in the environment")
	}
	recipe := fmt.Sprintf("1 %s %s", suite, pkg) // another number is another recipe below
	dir, err := cached(ctx, pkg+"-"+suite, []byte(recipe), logf, func(ctx context.Context, dir string) error {
		return bootstrap(ctx, filepath.Join(dir, "root"), suite, pkg)
	})
	return filepath.Join(dir, "root"), err
}

func bootstrap(ctx context.Context, root, suite, pkg string) error {
	program, err := exec.LookPath("debootstrap")
	if err != nil {
		return errors.New("debootstrap is not installed: install it (apt-get install debootstrap)")
	}
	from, err := mirror(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "--variant=minbase", "--include="+pkg, suite, root, from)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("debootstrap could not make a debian %s: %w; it said:\n%s", suite, err, lastLines(string(out), 30))
	}
	if err := os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
		return fmt.Errorf("writing the chroot's hosts: %w", err)
	}
	return nil
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

// removeUnmounted is os.RemoveAll, and refuses where something is mounted below: what is removed there would be
// removed from where it comes from. We mount nothing that another process sees, but a person may have.
func removeUnmounted(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("looking for mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			return fmt.Errorf("something is mounted at %s: umount it, then try again", fields[4])
		}
	}
	return os.RemoveAll(dir)
}
