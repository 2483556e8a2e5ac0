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
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "write api/*.txt and the table of client.md as the library is now")

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

// TestExportedNamesHaveExportedTypes refuses a name whose type is in an internal package: go doc shows no field of such a
// type, and a program outside cannot declare a variable of it.
func TestExportedNamesHaveExportedTypes(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, pkg := range publicPackages(t) {
		for _, name := range pkg.Scope().Names() {
			obj := pkg.Scope().Lookup(name)
			if !obj.Exported() {
				continue
			}
			seen++
			for _, hidden := range hiddenTypes(obj) {
				t.Errorf("%s.%s has the type %s, which programs outside cannot name; declare it in a public package", pkg.Path(), name, hidden)
			}
		}
	}
	if seen < 500 {
		t.Fatalf("%d names: this test does not see the library", seen)
	}
}

// hiddenTypes returns the types of internal packages that a program meets when it uses obj.
func hiddenTypes(obj types.Object) (hidden []string) {
	visit := func(t types.Type) {
		for _, name := range strings.FieldsFunc(types.TypeString(t, nil), func(r rune) bool { return strings.ContainsRune("*[](){}, ;", r) }) {
			if strings.HasPrefix(name, module+"/") && strings.Contains(name, "/internal/") {
				hidden = append(hidden, name)
			}
		}
	}
	named, ok := obj.(*types.TypeName)
	if !ok {
		visit(obj.Type())
		return hidden
	}
	if named.IsAlias() {
		visit(types.Unalias(obj.Type()))
	}
	if s, ok := obj.Type().Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() {
				visit(f.Type())
			}
		}
	} else if !types.IsInterface(obj.Type()) {
		visit(obj.Type().Underlying())
	}
	reach := obj.Type()
	if !types.IsInterface(reach) {
		reach = types.NewPointer(reach)
	}
	for m := range types.NewMethodSet(reach).Methods() {
		if m.Obj().Exported() {
			visit(m.Type())
		}
	}
	return hidden
}

// exported returns what each package exports by the name of its file in api: redeliver.txt, adapters-kafka.txt.
func exported(t *testing.T) map[string]string {
	t.Helper()
	said := make(map[string]string)
	for _, pkg := range publicPackages(t) {
		file := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(pkg.Path(), module), "/"), "/", "-")
		if file == "" {
			file = "redeliver"
		}
		said[file+".txt"] = "package " + pkg.Path() + "\n\n" + strings.Join(api(pkg), "\n") + "\n"
	}
	return said
}

// publicPackages returns the packages that users can import, as the compiler sees them.
var publicPackages = func() func(*testing.T) []*types.Package {
	var once sync.Once
	var all []*types.Package
	return func(t *testing.T) []*types.Package {
		t.Helper()
		once.Do(func() { all = importPublic(t) })
		return all
	}
}()

func importPublic(t *testing.T) (all []*types.Package) {
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
	for _, path := range packages {
		pkg, err := imports.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pkg)
	}
	return all
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
// types included. An alias has the fields and methods of its type, unless the type is another module's: removing one of them
// breaks programs that use the alias.
func typeAPI(obj *types.TypeName, short types.Qualifier, add func(string, ...any)) {
	name := obj.Name()
	if obj.IsAlias() {
		add("%s", types.ObjectString(obj, short))
		named, ok := types.Unalias(obj.Type()).(*types.Named)
		if !ok || !strings.HasPrefix(named.Obj().Pkg().Path()+"/", module+"/") {
			return
		}
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
