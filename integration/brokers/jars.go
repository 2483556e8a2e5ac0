package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// javaOf finds what a broker runs on that is written in Java: the virtual machine, and the directory with its jars.
func javaOf(ctx context.Context, broker, version, env string, pom []byte, logf func(string, ...any)) (java, lib string, err error) {
	java, err = exec.LookPath("java")
	if err != nil {
		return "", "", fmt.Errorf("java is not installed, and %s runs on it: install Java 17 (apt-get install openjdk-17-jre-headless), or name a running %s in %s",
			broker, broker, env)
	}
	lib, err = jars(ctx, broker+"-"+version, pom, logf)
	return java, lib, err
}

// jars returns a directory with the jars that pom names, which Maven fetches.
func jars(ctx context.Context, name string, pom []byte, logf func(string, ...any)) (string, error) {
	dir, err := cached(ctx, name, pom, logf, func(ctx context.Context, dir string) error {
		return fetchJars(ctx, dir, filepath.Join(dir, "lib"), pom)
	})
	return filepath.Join(dir, "lib"), err
}

func fetchJars(ctx context.Context, dir, lib string, pom []byte) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return errors.New("mvn is not installed, and a broker is fetched with it: install maven (apt-get install maven)")
	}
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, pom, 0o644); err != nil {
		return fmt.Errorf("writing the broker's pom.xml: %w", err)
	}
	// -U: Maven remembers a jar that it could not get once, and would not ask again.
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-U", "-f", file,
		"dependency:copy-dependencies", "-DoutputDirectory="+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("maven could not fetch the broker's jars: %w; it said:\n%s", err, lastLines(string(out), 30))
	}
	return nil
}
