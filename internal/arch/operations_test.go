package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// operations are the methods of mq.Client and mq.Operations, by the method of the adapter that implements them.
var operations = []struct{ name, method string }{
	{"Subscriber", "Subscribe"}, {"Publisher", "Publish"}, {"Close", "Disconnect"}, {"Plan", "Plan"},
	{"DeadLetters", "DeadLetters"}, {"DeadLetterQueues", "DeadLetterQueues"}, {"Pause", "Pause"}, {"PauseNew", "PauseNew"}, {"Resume", "Resume"},
	{"Paused", "Paused"}, {"Doctor", "Doctor"}, {"WaitingLevels", "WaitingLevels"}, {"Waiting", "Waiting"}, {"Release", "Release"},
}

const maxEmptyCells = 9 // apart from pubsub, which has two operations only

// Each adapter either implements an operation or says why it does not. The page shows the table; -update writes it.
func TestOperationsOfEachAdapter(t *testing.T) {
	t.Parallel()
	columns := []struct{ title, dir string }{{"Kafka", "kafka"}, {"RabbitMQ", "amqp"}, {"SQS", "sqs"}, {"share groups", "kafkashare"}, {"Watermill Pub/Sub", "pubsub"}}
	var b, reasons strings.Builder
	b.WriteString("| |")
	for _, c := range columns {
		b.WriteString(" " + c.title + " |")
	}
	b.WriteString("\n|" + strings.Repeat(" --- |", len(columns)+1) + "\n")
	var known []string
	empty := 0
	adapters := make([]clientSource, len(columns))
	for i, c := range columns {
		adapters[i] = readClient(t, filepath.Join("..", "..", "adapters", c.dir))
	}
	for _, op := range operations {
		b.WriteString("| `" + op.name + "` |")
		for i, c := range columns {
			implemented, why := adapters[i].methods[op.method], adapters[i].unsupported[op.name]
			if op.name == "Plan" && c.dir == "pubsub" { // it is a method of every client, and returns the error
				implemented, why = false, adapters[i].unsupported["Doctor"]
			}
			switch {
			case implemented && why == "":
				b.WriteString(" yes |")
				continue
			case implemented || why == "":
				t.Errorf("adapters/%s: %s is implemented: %t, and the reason why it is not supported is %q", c.dir, op.name, implemented, why)
			}
			if c.dir != "pubsub" {
				empty++
			}
			n := slices.Index(known, why)
			if n < 0 {
				n = len(known)
				known = append(known, why)
			}
			fmt.Fprintf(&b, " no (%d) |", n+1)
		}
		b.WriteString("\n")
	}
	for i, why := range known {
		fmt.Fprintf(&reasons, "%d. %s%s.\n", i+1, strings.ToUpper(why[:1]), why[1:])
	}
	if empty > maxEmptyCells {
		t.Errorf("%d cells of the table are empty, want at most %d", empty, maxEmptyCells)
	}
	compareTable(t, filepath.Join("..", "..", "docs", "reference", "client.md"), b.String()+"\n"+reasons.String())
}

// compareTable compares the part of a page between two comments with a text.
func compareTable(t *testing.T, page, want string) {
	t.Helper()
	const begin, end = "<!-- A test writes this table. -->\n", "<!-- The end of the table. -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	got, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table", page)
	}
	switch {
	case got == want:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has another table; run: go test ./internal/arch -run TestOperationsOfEachAdapter -update\nwant\n%s", page, want)
	}
}

// clientSource is what the source of an adapter says about its client.
type clientSource struct {
	methods     map[string]bool
	unsupported map[string]string // reasons by operation
}

// readClient reads the methods of the type client, and the reasons of its Options.
func readClient(t *testing.T, dir string) clientSource {
	t.Helper()
	c := clientSource{map[string]bool{}, map[string]string{}}
	texts := map[string]string{} // of constants
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var maps []*ast.CompositeLit
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					if star, ok := n.Recv.List[0].Type.(*ast.StarExpr); ok && fmt.Sprint(star.X) == "client" {
						c.methods[n.Name.Name] = true
					}
				}
			case *ast.ValueSpec:
				if len(n.Names) == 1 && len(n.Values) == 1 {
					texts[n.Names[0].Name] = constantText(n.Values[0], texts)
				}
			case *ast.KeyValueExpr:
				if m, ok := n.Value.(*ast.CompositeLit); ok && fmt.Sprint(n.Key) == "Unsupported" {
					maps = append(maps, m)
				}
			}
			return true
		})
	}
	for _, m := range maps {
		for _, e := range m.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				c.unsupported[constantText(kv.Key, texts)] = constantText(kv.Value, texts)
			}
		}
	}
	if !c.methods["Options"] {
		t.Fatalf("%s has no client", dir)
	}
	return c
}

// constantText returns the text of a string literal, a constant, or a sum of both.
func constantText(e ast.Expr, constants map[string]string) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.Ident:
		return constants[e.Name]
	case *ast.BinaryExpr:
		return constantText(e.X, constants) + constantText(e.Y, constants)
	}
	return ""
}
