package release

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// allowed has the licences that the command's dependencies may have. Adding another one is a decision.
var allowed = map[string]bool{
	"Apache-2.0": true, "MIT": true, "BSD-2-Clause": true, "BSD-2-Clause-FreeBSD": true, "BSD-3-Clause": true, "ISC": true,
	"MPL-2.0": true, // of files: ours are none of them
}

// chosen has the modules whose licence no program recognises. The head of the file names it.
var chosen = map[string]string{"github.com/golang/freetype": "FreeType License"}

var row = regexp.MustCompile(`(?m)^\| (\S+) \| (v\d\S*) \| (\S+) \|$`)

// The list has every module that a build for a system of .goreleaser.yaml contains, with its version, and no other.
func TestLicencesMatchTheBuild(t *testing.T) {
	t.Parallel()
	built := map[string]string{}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", ".")
		cmd.Dir = "../../cmd/redeliver"
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOOS="+system, "GOARCH=amd64")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(path, "github.com/redeliver/redeliver") {
				built[path] = version
			}
		}
	}
	text, err := os.ReadFile("../../THIRD_PARTY_LICENSES.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, r := range row.FindAllStringSubmatch(string(text), -1) {
		name, version, licence := r[1], r[2], r[3]
		module := ""
		for path := range built {
			if (name == path || strings.HasPrefix(name, path+"/")) && len(path) > len(module) {
				module = path
			}
		}
		switch {
		case module == "":
			t.Errorf("%s is listed, and not in the command: make licences", name)
		case built[module] != version:
			t.Errorf("%s is %s, and listed as %s: make licences", module, built[module], version)
		case allowed[licence]:
		case chosen[module] == "" || !strings.Contains(string(text), chosen[module]):
			t.Errorf("%s has licence %s, which is not among the allowed", name, licence)
		}
		if !strings.Contains(string(text), "\n## "+name+"\n") {
			t.Errorf("the text of the licence of %s is missing: make licences", name)
		}
		listed[module] = true
	}
	for path, version := range built {
		if !listed[path] {
			t.Errorf("%s %s is in the command, and not listed: make licences", path, version)
		}
	}
	if len(built) < 30 {
		t.Errorf("%d modules: this test does not see them", len(built))
	}
}
