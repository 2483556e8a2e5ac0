package brokers

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// debian is a Debian that has RabbitMQ's package: this machine, or a chroot on it.
type debian struct {
	root    string // of a chroot; empty is this machine
	version string // of RabbitMQ
}

// findRabbitMQ returns the Debian that has the version which is wanted: this machine, or else a chroot with the
// release that has it.
func findRabbitMQ(ctx context.Context, o RabbitMQOptions) (debian, error) {
	have := rabbitVersion("/")
	if o.Version.is(have) {
		return debian{version: have}, nil
	}
	here := "is not installed here"
	if have != "" {
		here = "is not what is installed here, that is " + have
	}
	suite := map[RabbitMQVersion]string{RabbitMQ3: "bookworm", RabbitMQ4: "trixie"}[o.Version]
	root, err := chroot(ctx, suite, "rabbitmq-server", o.Logf)
	if err != nil {
		if o.Version == RabbitMQ3 {
			here += " (on Debian 12: apt-get install rabbitmq-server)"
		}
		return debian{}, fmt.Errorf("rabbitmq %s %s, and debian %s in a chroot, which has it, cannot be had: %w",
			o.Version, here, suite, err)
	}
	if have = rabbitVersion(root); !o.Version.is(have) {
		return debian{}, fmt.Errorf("debian %s in %s has rabbitmq %q, and not %s", suite, root, have, o.Version)
	}
	return debian{root: root, version: have}, nil
}

// is says whether have, such as 3.10.8, is a release of v.
func (v RabbitMQVersion) is(have string) bool { return strings.HasPrefix(have, string(v)+".") }

// rabbitVersion returns the version of RabbitMQ that is installed below root, and "" when none is.
func rabbitVersion(root string) string {
	const prefix = "rabbitmq_server-"
	found, _ := filepath.Glob(filepath.Join(root, "usr/lib/rabbitmq/lib", prefix+"*"))
	if len(found) == 0 {
		return ""
	}
	return strings.TrimPrefix(filepath.Base(found[0]), prefix)
}

// inside is where the programs of this Debian see w.
func (d debian) inside(w *workDir) string {
	if d.root == "" {
		return w.dir
	}
	return insideChroot
}

// command returns what runs a program of this Debian with w as its directory. The process is the program itself, and
// no parent of it, so that a signal reaches it.
func (d debian) command(ctx context.Context, w *workDir, env []string, program string, args ...string) *exec.Cmd {
	if d.root != "" {
		return chrootCommand(ctx, d.root, w.dir, env, program, args...)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = w.dir
	cmd.Env = env
	return cmd
}

// mirror returns where apt gets this machine's Debian from: that is near, and allowed.
func mirror(ctx context.Context) (string, error) {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", errors.New("apt-get is not installed, and its configuration names the mirror: this way is for Debian")
	}
	cmd := exec.CommandContext(ctx, apt, "indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
		"Identifier: Packages")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		uri, release, _ := strings.Cut(strings.TrimSpace(line), "|")
		// The archive itself, and neither its updates nor somebody else's packages.
		switch release {
		case "bookworm|main", "trixie|main", "stable|main", "oldstable|main", "forky|main", "testing|main":
			return uri, nil
		}
	}
	return "", errors.New("apt's configuration names no mirror of debian; apt-get indextargets shows what it names")
}
