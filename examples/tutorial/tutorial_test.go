// Package tutorial compares the tutorials' programs with what their pages show.
package tutorial

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

var block = regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n")

// Each block of Go on a tutorial's page is a whole file of the page's directory here, which the build compiles, so that
// readers can copy it.
func TestTutorialsShowTheirPrograms(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("found %d tutorials, want at least 5: %v", len(pages), err)
	}
	for _, page := range pages {
		name := filepath.Base(page[:len(page)-len(".md")])
		var files, shown []string
		paths, err := filepath.Glob(filepath.Join(name, "*.go"))
		if name == "python" {
			continue // integration/examples runs what it shows
		}
		if err != nil || len(paths) == 0 {
			t.Errorf("examples/tutorial/%s has no program of %s: %v", name, page, err)
		}
		for _, path := range paths {
			files = append(files, read(t, path))
		}
		for _, m := range block.FindAllStringSubmatch(read(t, page), -1) {
			shown = append(shown, m[1]+"\n")
		}
		if !slices.Equal(files, shown) {
			t.Errorf("%s shows %d blocks of Go, which differ from the %d files of examples/tutorial/%s: copy the files into it", page, len(shown), len(files), name)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
