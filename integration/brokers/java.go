package brokers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// JavaProject is a compiled program in Java.
type JavaProject struct {
	Java      string // path of the virtual machine
	Classpath string // the program's classes and the jars in its pom.xml
}

// Java builds a Maven project, a tree with a pom.xml and src/main/java, in the user's cache directory. It builds once
// per machine, and again when one of the project's files has changed.
func Java(ctx context.Context, name string, project fs.FS, logf func(format string, args ...any)) (*JavaProject, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, fmt.Errorf("java is not installed, and %s runs on it: install Java 17 (apt-get install openjdk-17-jdk-headless)", name)
	}
	recipe := sha256.New()
	if err := fs.WalkDir(project, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := fs.ReadFile(project, path)
		fmt.Fprintf(recipe, "%s %d\n%s", path, len(text), text)
		return err
	}); err != nil {
		return nil, fmt.Errorf("reading the sources of %s: %w", name, err)
	}
	dir, err := cached(ctx, name, recipe.Sum(nil), logf, func(ctx context.Context, dir string) error {
		return buildJava(ctx, dir, project)
	})
	if err != nil {
		return nil, err
	}
	sep := string(filepath.ListSeparator)
	return &JavaProject{java, filepath.Join(dir, "target", "classes") + sep + filepath.Join(dir, "lib", "*")}, nil
}

func buildJava(ctx context.Context, dir string, project fs.FS) error {
	for _, program := range []struct{ name, deb string }{{"mvn", "maven"}, {"javac", "openjdk-17-jdk-headless"}} {
		if _, err := exec.LookPath(program.name); err != nil {
			return fmt.Errorf("%s is not installed, and a program in Java is built with it: apt-get install %s", program.name, program.deb)
		}
	}
	if err := os.CopyFS(dir, project); err != nil {
		return fmt.Errorf("writing the sources: %w", err)
	}
	// -U as for the brokers' jars.
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-U", "-f", filepath.Join(dir, "pom.xml"),
		"compile", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies", "-DoutputDirectory="+filepath.Join(dir, "lib"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("maven could not build it: %w", err), errors.New(lastLines(string(out), 40)))
	}
	return nil
}
