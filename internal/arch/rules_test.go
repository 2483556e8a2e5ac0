package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// configs are the Configs that users fill in, and whether they call topics queues.
var configs = map[string]bool{
	"adapters/kafka/config.go": false, "adapters/kafkashare/config.go": false, "adapters/amqp/config.go": true, "adapters/sqs/config.go": true,
	"adapters/pubsub/config.go": false, "adapters/adapters.go": false, "redelivertest/client.go": false,
}

// otherWordings are fields that mean something else in one Config, and why.
var otherWordings = map[string]string{
	"adapters/pubsub/config.go NoProvisioning": "a Watermill Pub/Sub does not say whether a topic exists",
	"adapters/pubsub/config.go MaxInFlight":    "each message in flight is a Subscribe of the user's subscriber, so the default is lower",
	"adapters/adapters.go Policy":              "a Consumer reads one origin",
	"adapters/adapters.go MaxInFlight":         "a Consumer has no Subscribe",
	"redelivertest/client.go Sink":             "a test prints no events",
}

// The fields that Configs have in common are worded once, in rules.Common, with one default. A Config may add sentences between the
// wording and the default.
func TestCommonFieldsAreWordedOnce(t *testing.T) {
	t.Parallel()
	common := docsOfFields(t, "internal/rules/config.go", "Common")
	unused := namesOf(otherWordings)
	for file, queues := range configs {
		for field, doc := range docsOfFields(t, file, "Config") {
			key := field
			if queues {
				key = strings.ReplaceAll(field, "Queues", "Topics")
			}
			text, found := common[key]
			if !found {
				continue
			}
			if queues {
				text = strings.NewReplacer("Topics", "Queues", "topic", "queue").Replace(text)
			}
			at := strings.LastIndex(text, "Default")
			same := strings.HasPrefix(doc, text[:at]) && strings.HasSuffix(doc, text[at:])
			_, excepted := otherWordings[file+" "+field]
			delete(unused, file+" "+field)
			if same == excepted {
				t.Errorf("%s: the wording of %s is that of rules.Common: %t, listed as another one: %t\nit is %s\nwant  %s", file, field, same, excepted, doc, text)
			}
		}
	}
	for name := range unused {
		t.Errorf("%s does not exist", name)
	}
}

// namesOf returns the keys of a list.
func namesOf(m map[string]string) map[string]bool {
	names := make(map[string]bool)
	for name := range m {
		names[name] = true
	}
	return names
}

// docsOfFields returns the comments of a struct's fields as one line each.
func docsOfFields(t *testing.T, file, name string) map[string]string {
	t.Helper()
	docs := make(map[string]string)
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			for _, n := range f.Names {
				docs[n.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
			}
		}
		return false
	})
	if len(docs) == 0 {
		t.Fatalf("%s has no %s", file, name)
	}
	return docs
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), file), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ownRules are problems of an adapter about a field that all adapters have, by the adapter and the field: why the rule is its broker's own.
var ownRules = map[string]string{
	"adapters/kafka DrainTimeout":      "the rebalance timeout of the group bounds it",
	"adapters/kafkashare DrainTimeout": "the session timeout of the retry group bounds it",
	"adapters/kafkashare Group":        "Kafka keeps share groups and consumer groups apart",
	"adapters/pubsub MinInFlight":      "MaxUnacked bounds how long messages may wait for a slot",
}

// No adapter adds a problem about a rule that holds on other brokers, too: not about a field or an argument that all adapters have,
// except for what its broker alone demands, and not with a text that internal/rules or another adapter has.
func TestEachRuleIsProducedOnce(t *testing.T) {
	t.Parallel()
	general := []string{"handler", "topics", "queues", "Group", "Marshaler", "Names", "Names.DLQ", "DLQ", "BatchConfig.Size", "BatchConfig.Timeout"}
	for field := range docsOfFields(t, "internal/rules/config.go", "Common") {
		general = append(general, field)
	}
	unused := namesOf(ownRules)
	byText := make(map[string]string) // the package of each rule
	for _, dir := range []string{"internal/rules", "internal/check", "internal/engine", "internal/kafkaname", "internal/statekeys", "mq", "adapters", "redelivertest"} {
		for file, f := range filesBelow(t, dir) {
			part := adapterOf(file)
			for _, call := range problemCalls(f) {
				field, rule := call[0], call[1]
				if strings.HasPrefix(part, "adapters/") && slices.Contains(general, field) {
					delete(unused, part+" "+field)
					if ownRules[part+" "+field] == "" {
						t.Errorf("%s adds a problem about %s, which all adapters have: let internal/rules do that, or list in ownRules why the rule is the broker's own", file, field)
					}
				}
				text := normalRule(rule)
				if len(text) < minRule {
					continue
				}
				if other, found := byText[text]; found && other != part {
					t.Errorf("%s and %s have the same rule, %q: one file above both should have it", other, part, rule)
				}
				byText[text] = part
			}
		}
	}
	for name := range unused {
		t.Errorf("%s is listed in ownRules, but no such problem is added", name)
	}
	if len(byText) < 100 {
		t.Errorf("only %d rules were found", len(byText))
	}
}

const minRule = 16 // shorter texts say too little to compare

// normalRule returns the text of a rule without what differs between topics and queues.
func normalRule(rule string) string {
	return strings.NewReplacer("queues", "topics", "queue", "topic").Replace(rule)
}

// adapterOf returns the adapter or package that a file belongs to.
func adapterOf(file string) string {
	steps := strings.Split(file, "/")
	if steps[0] == "adapters" && len(steps) > 2 {
		return steps[0] + "/" + steps[1]
	}
	return filepath.ToSlash(filepath.Dir(file))
}

// problemCalls returns the literal field and rule of each problem that a file adds. Both are "" if they are no literals.
func problemCalls(f *ast.File) (calls [][2]string) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		switch {
		case fun.Sel.Name == "Add" && len(call.Args) == 3 && !isSymptom(call.Args[0]):
			calls = append(calls, [2]string{literal(call.Args[0]), literal(call.Args[2])})
		case slices.Contains([]string{"CheckCount", "CheckDuration", "CheckPolicy", "CheckOrder"}, fun.Sel.Name):
			calls = append(calls, [2]string{literal(call.Args[0]), ""})
		}
		return true
	})
	return calls
}

// isSymptom reports whether a finding of doctor is added.
func isSymptom(e ast.Expr) bool {
	sel, ok := e.(*ast.SelectorExpr)
	return ok && fmt.Sprint(sel.X) == "doctor"
}

// literal returns the text of a string literal, or the first one of a sum or a format.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return text
		}
	case *ast.BinaryExpr:
		return literal(e.X)
	case *ast.CallExpr:
		if fun, ok := e.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Sprintf" {
			return literal(e.Args[0])
		}
	}
	return ""
}

// filesBelow parses the Go files below a folder, tests excluded.
func filesBelow(t *testing.T, dir string) map[string]*ast.File {
	t.Helper()
	files := make(map[string]*ast.File)
	err := filepath.WalkDir(filepath.Join(root(t), dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(root(t), path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files[rel] = parse(t, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
