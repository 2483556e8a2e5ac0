package brokers

import (
	"bufio"
	"context"
	_ "embed" // for the requirements below
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed python/requirements.txt
var pythonRequirements []byte

// Python returns the Python of a virtual environment in the user's cache directory that has what
// python/requirements.txt names: boto3, an SQS client that shares no code with ours, and the moto server. It is made
// once per machine.
func Python(ctx context.Context, logf func(format string, args ...any)) (string, error) {
	dir, err := cached(ctx, "python", pythonRequirements, logf, makeVenv)
	return venvPython(dir), err
}

func venvPython(dir string) string { return filepath.Join(dir, "venv", "bin", "python") }

func makeVenv(ctx context.Context, dir string) error {
	requirements := filepath.Join(dir, "requirements.txt")
	if err := os.WriteFile(requirements, pythonRequirements, 0o644); err != nil {
		return fmt.Errorf("writing requirements.txt: %w", err)
	}
	// The first python3 may be one without venv, as Debian's is without a package of its own.
	errs := []error{errors.New("python3 with venv is needed (apt-get install python3-venv)")}
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		cmd := exec.CommandContext(ctx, program, "-m", "venv", "--clear", filepath.Join(dir, "venv"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; it said:\n%s", strings.Join(cmd.Args, " "), err, lastLines(string(out), 10)))
			continue
		}
		cmd = exec.CommandContext(ctx, venvPython(dir), "-m", "pip", "install", "-q", "--no-deps", "-r", requirements)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pip could not fetch boto3 and moto: %w; it said:\n%s", err, lastLines(string(out), 30))
		}
		return nil
	}
	return errors.Join(errs...)
}

// motoVersion is the one that the requirements name.
func motoVersion() string {
	lines := bufio.NewScanner(strings.NewReader(string(pythonRequirements)))
	for lines.Scan() {
		if version, ok := strings.CutPrefix(lines.Text(), "moto=="); ok {
			return version
		}
	}
	return "(unknown)"
}
