package redeliver_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strings"
	"testing"
)

// configs are the exported structs that a user fills in. Besides them, whatever
// is called Config.
var configs = regexp.MustCompile(`^(Policy|ExponentialBackoff|.*Config)$`)

func sources(t *testing.T) map[string]*ast.File {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	fset, files := token.NewFileSet(), map[string]*ast.File{}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	return files
}

// Zero means the default in every field, so every field must say which that is.
func TestConfigFieldsNameTheirDefault(t *testing.T) {
	seen := 0
	for name, file := range sources(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !configs.MatchString(spec.Name.Name) {
				return true
			}
			body, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range body.Fields.List {
				text := f.Doc.Text() + f.Comment.Text()
				for _, id := range f.Names {
					if !id.IsExported() {
						continue
					}
					seen++
					if !strings.Contains(text, "Default") && !strings.Contains(text, "Required") {
						t.Errorf("%s: %s.%s says neither Default nor Required", name, spec.Name.Name, id.Name)
					}
				}
			}
			return true
		})
	}
	if seen < 11 {
		t.Errorf("saw %d fields: this test does not look at the right structs", seen)
	}
}

// Errors are data: nothing decides by their text. And their texts say what was
// being done, not that it did not work.
func TestSourceKeepsTheHouseRules(t *testing.T) {
	files := sources(t)
	for name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, never := range []string{"strings.Contains(err.Error()", `"failed to`, "time.Sleep(", "time.Now()", "func init()", "os.Getenv"} {
			if strings.Contains(string(src), never) {
				t.Errorf("%s has %s", name, never)
			}
		}
	}
	if len(files) < 10 {
		t.Errorf("read %d files: this test does not see the package", len(files))
	}
}

// The package does no I/O and starts no goroutine.
func TestPackageIsPure(t *testing.T) {
	files := sources(t)
	for name, file := range files {
		for _, imp := range file.Imports {
			switch path := strings.Trim(imp.Path.Value, `"`); path {
			case "net", "net/http", "os", "os/exec", "io", "bufio", "math/rand", "math/rand/v2", "sync", "syscall":
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				t.Errorf("%s starts a goroutine", name)
			}
			return true
		})
	}
	if len(files) < 10 {
		t.Errorf("read %d files: this test does not see the package", len(files))
	}
}
