package release

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// Workflows call existing targets of the Makefile. They name actions by commit, because a tag can be moved.
func TestWorkflowsCallExistingTargets(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	makefile, commands := read(t, "Makefile"), map[string]bool{}
	for _, file := range files {
		file = strings.TrimPrefix(filepath.ToSlash(file), "../../")
		var workflow struct {
			Jobs map[string]struct {
				Steps []struct{ Run, Uses string }
			}
		}
		if err := yaml.Unmarshal([]byte(read(t, file)), &workflow); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for name, job := range workflow.Jobs {
			for _, step := range job.Steps {
				commands[step.Run] = true
				if step.Uses != "" && !regexp.MustCompile(`^[\w/-]+@[0-9a-f]{40}$`).MatchString(step.Uses) {
					t.Errorf("%s, %s: %s is not pinned to a commit", file, name, step.Uses)
				}
				if m := regexp.MustCompile(`^make (\S+)`).FindStringSubmatch(step.Run); m != nil && !strings.Contains(makefile, "\n"+m[1]+":") {
					t.Errorf("%s, %s: the Makefile has no target %s", file, name, m[1])
				}
			}
		}
	}
	// The commands under "Try it" of the README.
	tried := regexp.MustCompile(`(?m)^    ((?:go run|make) \S+) +#`).FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(tried) < 2 {
		t.Errorf("the README has the commands %q: this test does not see them", tried)
	}
	for _, m := range tried {
		if !commands[m[1]] {
			t.Errorf("no workflow runs %q of the README", m[1])
		}
	}
}

// The image is built from the files that .dockerignore does not exclude. They must include every directory with a
// package that the command or an example imports.
func TestTheImageHasEveryPackage(t *testing.T) {
	t.Parallel()
	imported := regexp.MustCompile(`"github\.com/redeliver/redeliver/([\w-]+)`)
	let, seen := read(t, ".dockerignore"), 0
	for _, pattern := range []string{"*", "*/*", "*/*/*", "*/*/*/*"} {
		files, err := filepath.Glob("../../" + pattern + ".go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			file = strings.TrimPrefix(filepath.ToSlash(file), "../../")
			if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "integration/") {
				continue
			}
			for _, m := range imported.FindAllStringSubmatch(read(t, file), -1) {
				seen++
				if !strings.Contains(let, "\n!/"+m[1]+"\n") {
					t.Errorf("%s imports a package of %s, which .dockerignore keeps out", file, m[1])
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("%d imports: this test does not see them", seen)
	}
}
