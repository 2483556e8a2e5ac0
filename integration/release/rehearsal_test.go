//go:build rehearsal

package release

import (
	"archive/zip"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	library   = "github.com/redeliver/redeliver"
	rehearsed = "v0.0.1-rehearsal"
)

// The steps of CONTRIBUTING.md, Releasing, in a copy. The library gets a version, and observe/otel and the command require
// it instead of their replacement. Then a user with only a proxy builds with observe/otel and installs the command.
func TestTheModulesCanBeUsedFromARelease(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	proxy := t.TempDir()
	cache := strings.TrimSpace(run(t, root, nil, "go", "env", "GOMODCACHE"))
	env := []string{
		"GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=" + library + "/*," + library, "GOMODCACHE=" + t.TempDir(), "GOBIN=" + t.TempDir(),
		// Modules of others are in the cache of this machine, most likely.
		"GOPROXY=file://" + proxy + ",file://" + cache + "/cache/download,https://proxy.golang.org",
	}
	publish(t, proxy, library, root)

	for _, module := range []string{"observe/otel", "cmd/redeliver"} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, module))); err != nil {
			t.Fatal(err)
		}
		run(t, dir, env, "go", "mod", "edit", "-dropreplace", library, "-require", library+"@"+rehearsed)
		run(t, dir, env, "go", "mod", "tidy")
		publish(t, proxy, library+"/"+module, dir)
	}

	service := t.TempDir()
	run(t, service, env, "go", "mod", "init", "service")
	run(t, service, env, "go", "get", library+"/observe/otel@"+rehearsed)
	run(t, service, env, "go", "build", library+"/observe/otel")

	run(t, t.TempDir(), env, "go", "install", library+"/cmd/redeliver@"+rehearsed)
	installed := filepath.Join(strings.TrimPrefix(env[4], "GOBIN="), "redeliver")
	if out := run(t, t.TempDir(), nil, installed, "version"); !strings.Contains(out, rehearsed) {
		t.Errorf("the command that was installed says %s", out)
	}
}

func run(t *testing.T, dir string, env []string, argv ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
	return string(out)
}

// publish writes what a proxy answers for the module in dir, without the modules inside it.
func publish(t *testing.T, proxy, path, dir string) {
	t.Helper()
	at := filepath.Join(proxy, path, "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"list": []byte(rehearsed + "\n"), rehearsed + ".mod": mod, rehearsed + ".info": []byte(`{"Version":"` + rehearsed + `"}`),
	} {
		if err := os.WriteFile(filepath.Join(at, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := os.Create(filepath.Join(at, rehearsed+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(out)
	err = filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		if d.IsDir() {
			if _, inner := os.Stat(filepath.Join(file, "go.mod")); inner == nil || d.Name() == ".git" || d.Name() == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		w, err := z.Create(path + "@" + rehearsed + "/" + filepath.ToSlash(name))
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
