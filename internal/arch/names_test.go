package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// metaphors maps words that are metaphors to plain words. Identifiers and comments are checked.
var metaphors = map[string]string{
	"corpse": "dead letter, record", "grave": "DLQ", "mortuary": "service that fails", "mortal": "killable", "undertaker": "dead-letter worker",
	"liar": "faulty", "stranger": "unknown user, foreign header", "seat": "slot, place", "parcel": "batch", "butler": "helper",
	"patience": "timeout", "patiently": "timeout", "mercy": "grace period", "crew": "processes",
}

// TestGoIsPlainEnglish applies the rules of Markdown pages to comments and names.
func TestGoIsPlainEnglish(t *testing.T) {
	t.Parallel()
	comments, names := 0, 0
	for file, parsed := range goSources(t) {
		for _, group := range parsed.Comments {
			comments++
			for _, habit := range badHabits(proseOf(group)) {
				t.Errorf("%s: %s", file, habit)
			}
			for word := range strings.FieldsFuncSeq(strings.ToLower(proseOf(group)), notLetter) {
				if better := metaphor(word); better != "" {
					t.Errorf("%s: a comment has the metaphor %q: write %s", file, word, better)
				}
			}
		}
		for _, text := range texts(file, parsed) {
			for _, habit := range badHabits(text) {
				t.Errorf("%s: %s", file, habit)
			}
		}
		for _, name := range declared(parsed) {
			names++
			if boundName.MatchString(name) {
				t.Errorf("%s: %s is a bound: write maxX or minX", file, name)
			}
			for _, word := range camelWord.FindAllString(name, -1) {
				if better := metaphor(strings.ToLower(word)); better != "" {
					t.Errorf("%s: %s has the metaphor %q: write %s", file, name, word, better)
				}
			}
		}
	}
	if comments < 5000 || names < 10000 {
		t.Errorf("read only %d comments and %d names", comments, names)
	}
}

// texts returns the texts that a program shows its users: strings of several words, outside tests.
func texts(file string, parsed *ast.File) (all []string) {
	if strings.HasSuffix(file, "_test.go") {
		return nil
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.Count(lit.Value, " ") > 2 {
			all = append(all, strings.Trim(lit.Value, "`\""))
		}
		return true
	})
	return all
}

// TestNamesDifferInMoreThanCase rejects packages that declare both Lane and lane.
func TestNamesDifferInMoreThanCase(t *testing.T) {
	t.Parallel()
	type place struct{ dir, pkg, name string }
	seen := map[place]string{}
	for file, parsed := range goSources(t) {
		for name := range topLevel(parsed) {
			at := place{path.Dir(file), parsed.Name.Name, strings.ToLower(name)}
			if other, ok := seen[at]; ok && other != name {
				t.Errorf("%s: %s and %s differ only in case", at.dir, other, name)
			}
			seen[at] = name
		}
	}
}

func TestHabitsOfGoAreFound(t *testing.T) {
	t.Parallel()
	const source = `package p

// What is left comes back.
type Corpses struct{ theGrave int }

// lane says "is told", and a runner is told to end.
func lane() { liarConn := 0; _ = liarConn }
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", source, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	if found := slices.Concat(badHabits(proseOf(file.Comments[0])), badHabits(proseOf(file.Comments[1]))); len(found) != 1 {
		t.Errorf("the comments have the habits %q, want one", found)
	}
	var pictures []string
	for _, name := range declared(file) {
		for _, word := range camelWord.FindAllString(name, -1) {
			if metaphor(strings.ToLower(word)) != "" {
				pictures = append(pictures, word)
			}
		}
	}
	if want := []string{"Corpses", "Grave", "liar"}; !slices.Equal(pictures, want) {
		t.Errorf("the names have the metaphors %q, want %q", pictures, want)
	}
	if names := topLevel(file); !names["Corpses"] || !names["lane"] || len(names) != 2 {
		t.Errorf("the file declares %v", names)
	}
}

var (
	camelWord = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	boundName = regexp.MustCompile(`^(most|least)[A-Z]|[^t](Most|Least)$`)
	quoted    = regexp.MustCompile(`"[^"]*"`)
)

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

func metaphor(word string) string {
	if better := metaphors[word]; better != "" {
		return better
	}
	return metaphors[strings.TrimSuffix(word, "s")]
}

// proseOf returns the text of a comment without code, examples' output and quotations.
func proseOf(group *ast.CommentGroup) string {
	text := group.Text()
	if strings.HasPrefix(text, "Output:") || strings.HasPrefix(text, "OrderNone output:") {
		return ""
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") {
			b.WriteString(quoted.ReplaceAllString(line, "x"))
		}
	}
	return b.String()
}

// topLevel returns the names that a file declares in its package, except methods.
func topLevel(file *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	return names
}

// declared returns all names that a file declares, including fields, methods and variables.
func declared(file *ast.File) (names []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			names = append(names, id.Name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						add(id)
					}
				}
			}
		}
		return true
	})
	return names
}

// goSources returns the Go files of all modules, tests included, by their paths from the root.
func goSources(t *testing.T) map[string]*ast.File {
	t.Helper()
	base, all := root(t), map[string]*ast.File{}
	err := filepath.WalkDir(base, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); file != base && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(base, file)
		if err != nil || filepath.Ext(file) != ".go" {
			return err
		}
		all[filepath.ToSlash(rel)], err = parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
