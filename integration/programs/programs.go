//go:build unix

// Package programs builds the programs of this repository that tests run: once for all packages of a run, because each
// link takes a second or two of CPU.
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// Build builds main packages of the root's or the command's module, as they are named at the root, and returns the
// directory where they are: below of bin/tested. go build leaves programs that are up to date as they are.
func Build(below string, packages ...string) (dir string, err error) {
	root, err := FindRoot()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, "bin", "tested", below)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a directory for programs: %w", err)
	}
	lock, err := os.Create(filepath.Join(root, "bin", "tested", ".lock"))
	if err != nil {
		return "", fmt.Errorf("locking the programs against others who build them: %w", err)
	}
	defer lock.Close() // that unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking the programs against others who build them: %w", err)
	}
	build := exec.Command("go", append([]string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, packages...)...) //nolint:noctx // a test that ends sooner loses nothing
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %q: %w\n%s", packages, err, out)
	}
	return dir, nil
}

// FindRoot returns the repository's root, above the working directory.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("looking for the repository's root: %w", err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.work is above the working directory: run it in the repository")
}
