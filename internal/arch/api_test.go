package arch

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write api/*.txt as the library is now")

// TestAPI makes each change of the exported names a visible diff: api/ has a file for each package that users can
// import, with one line for each name.
func TestAPI(t *testing.T) {
	t.Parallel()
	base := root(t)
	now := exported(t)
	if len(now) < 10 || !strings.Contains(now["redeliver.txt"], "\nfunc (Policy) ") {
		t.Fatalf("%d packages: this test does not see the library", len(now))
	}
	if *update {
		writeAPI(t, filepath.Join(base, "api"), now)
		return
	}
	const refresh = "if that is meant, say so in CHANGELOG.md and run: go test ./internal/arch -run TestAPI -update"
	for file, want := range now {
		text, err := os.ReadFile(filepath.Join(base, "api", file))
		if err != nil {
			t.Errorf("%v; %s", err, refresh)
			continue
		}
		golden, lines := strings.Split(string(text), "\n"), strings.Split(want, "\n")
		for _, line := range golden {
			if !slices.Contains(lines, line) {
				t.Errorf("api/%s has a name that the library does not have: %s; %s", file, line, refresh)
			}
		}
		for _, line := range lines {
			if !slices.Contains(golden, line) {
				t.Errorf("the library has a name that api/%s does not have: %s; %s", file, line, refresh)
			}
		}
	}
	there, err := filepath.Glob(filepath.Join(base, "api", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range there {
		if _, ok := now[filepath.Base(path)]; !ok {
			t.Errorf("api/%s describes a package that does not exist; %s", filepath.Base(path), refresh)
		}
	}
}

func writeAPI(t *testing.T, dir string, now map[string]string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for file, text := range now {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// exported returns what each package exports, as the compiler sees it, by the name of its file in api: redeliver.txt,
// adapters-kafka.txt.
func exported(t *testing.T) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	var packages []string
	for part := range allowed { // every package is in allowed
		if strings.Contains("/"+part, "/internal/") {
			continue
		}
		args = append(args, "./"+part)
		packages = append(packages, strings.TrimSuffix(module+"/"+part, "/."))
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	files := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		files[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	said := make(map[string]string)
	for _, path := range packages {
		pkg, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		file := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(path, module), "/"), "/", "-")
		if file == "" {
			file = "redeliver"
		}
		said[file+".txt"] = "package " + path + "\n\n" + strings.Join(api(pkg), "\n") + "\n"
	}
	return said
}

// api returns one line for each name that a program outside can use, in order.
func api(pkg *types.Package) (lines []string) {
	short := func(p *types.Package) string {
		if p == pkg {
			return ""
		}
		return p.Name()
	}
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, name := range pkg.Scope().Names() {
		obj := pkg.Scope().Lookup(name)
		if !obj.Exported() {
			continue
		}
		switch obj := obj.(type) {
		case *types.Const:
			add("const %s %s = %s", name, types.TypeString(obj.Type(), short), obj.Val().ExactString())
		case *types.TypeName:
			typeAPI(obj, short, add)
		default: // a function or a variable
			add("%s", types.ObjectString(obj, short))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// typeAPI adds a line for a type, and one for each field and method that a program outside can name, those of embedded
// types included.
func typeAPI(obj *types.TypeName, short types.Qualifier, add func(string, ...any)) {
	name := obj.Name()
	if obj.IsAlias() {
		add("%s", types.ObjectString(obj, short))
		return
	}
	switch under := obj.Type().Underlying().(type) {
	case *types.Struct:
		add("type %s struct", types.TypeString(obj.Type(), short))
		for i := range under.NumFields() {
			f := under.Field(i)
			if !f.Exported() {
				continue
			}
			embedded, tag := "", ""
			if f.Embedded() {
				embedded = " (embedded)"
			}
			if text := reflect.StructTag(under.Tag(i)); text != "" {
				tag = " `" + string(text) + "`"
			}
			add("field %s.%s %s%s%s", name, f.Name(), types.TypeString(f.Type(), short), tag, embedded)
		}
	case *types.Interface:
		closed := ""
		for m := range under.Methods() {
			if !m.Exported() {
				closed = " (with methods that are not exported)"
			}
		}
		add("type %s interface%s", types.TypeString(obj.Type(), short), closed)
	default:
		add("type %s %s", types.TypeString(obj.Type(), short), types.TypeString(under, short))
	}
	methods := types.NewMethodSet(obj.Type())
	reach := methods
	if !types.IsInterface(obj.Type()) {
		reach = types.NewMethodSet(types.NewPointer(obj.Type()))
	}
	for m := range reach.Methods() {
		fn := m.Obj()
		if !fn.Exported() {
			continue
		}
		receiver := name
		if methods.Lookup(fn.Pkg(), fn.Name()) == nil {
			receiver = "*" + name
		}
		add("func (%s) %s%s", receiver, fn.Name(), strings.TrimPrefix(types.TypeString(m.Type(), short), "func"))
	}
}
