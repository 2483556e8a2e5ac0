package redeliver_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// configs matches the exported structs that a user fills in.
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

// Zero means the default in every field, so the comment of every field must name the default.
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
						t.Errorf("%s: %s.%s has neither Default nor Required", name, spec.Name.Name, id.Name)
					}
				}
			}
			return true
		})
	}
	if seen < 11 {
		t.Errorf("read only %d fields", seen)
	}
}

// No code compares the text of an error. The text names the operation, not that it failed.
func TestNoErrorTextIsCompared(t *testing.T) {
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

var (
	proof = regexp.MustCompile(`\[([A-Z]\w+)\]\((\.\./[^)]+\.go)\)`)
	// compared matches the first cell of tables in which each row has a proof or says that there is none yet.
	compared = regexp.MustCompile(`^\| (Cloudflare|RocketMQ) \|`)
)

// Every link to a proof leads to a test, or to a promise of the conformance kit, and every row of a comparison has a
// link.
func TestProofsLinkToTests(t *testing.T) {
	pages, err := filepath.Glob("docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	links, rows := 0, 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range proof.FindAllStringSubmatch(string(text), -1) {
			links++
			if source, err := os.ReadFile(filepath.Join(filepath.Dir(page), l[2])); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if !proves(string(source), l[1]) {
				t.Errorf("%s: there is no %s in %s", page, l[1], l[2])
			}
		}
		in := false
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch {
			case compared.MatchString(line):
				in = true
			case !strings.HasPrefix(line, "|"):
				in = false
			case in && !strings.HasPrefix(line, "| ---"):
				rows++
				if !proof.MatchString(line) && !strings.Contains(line, "not yet") {
					t.Errorf("%s: a row without a proof: %s", page, line)
				}
			}
		}
	}
	if links < 80 || rows < 30 {
		t.Errorf("read only %d links and %d rows", links, rows)
	}
}

// proves reports whether a file has a test, or a promise of the kit, of that name.
func proves(source, name string) bool {
	if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") {
		return strings.Contains(source, "\nfunc "+name+"(")
	}
	return strings.Contains(source, "name: \""+name+"\"")
}
