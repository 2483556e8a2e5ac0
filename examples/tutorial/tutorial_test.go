// Package tutorial holds the tutorials' programs against what their pages show.
package tutorial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever copies a tutorial's program gets one that compiles: the one that stands here.
func TestTutorialsShowTheirPrograms(t *testing.T) {
	programs, err := filepath.Glob("*/main.go")
	if err != nil || len(programs) < 3 {
		t.Fatalf("%d programs, %v", len(programs), err)
	}
	for _, path := range programs {
		program, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := filepath.Join("..", "..", "docs", "tutorials", filepath.Dir(path)+".md")
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), "```go\n")
		shown, _, closed := strings.Cut(rest, "```\n")
		if !closed || shown != string(program) {
			t.Errorf("the program of %s is not examples/tutorial/%s: copy the file into it", page, filepath.ToSlash(path))
		}
	}
}
