package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

// The pages about headers and events have all of them.
func TestReferencePagesAreComplete(t *testing.T) {
	t.Parallel()
	names := redeliver.HeaderNames()
	for _, reason := range redeliver.Reasons() {
		names = append(names, string(reason))
	}
	requireNames(t, "docs/reference/headers.md", names, 28)

	names = nil
	for file, declared := range map[string]string{
		"event.go":   `func \((\w+)\) event\(\)`,
		"changes.go": `Change = "([^"]+)"`,
	} {
		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(declared).FindAllStringSubmatch(string(source), -1) {
			names = append(names, m[1])
		}
	}
	requireNames(t, "docs/reference/events.md", names, 45)
}

func requireNames(t *testing.T, page string, names []string, minNames int) {
	t.Helper()
	text := pages(t)[page]
	for _, name := range names {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s does not name %q", page, name)
		}
	}
	if len(names) < minNames {
		t.Errorf("found %d names for %s, want at least %d: this test does not read them", len(names), page, minNames)
	}
}

// The page about configurations has every field of each.
func TestConfigPageIsComplete(t *testing.T) {
	t.Parallel()
	var names []string
	for _, file := range []string{"adapters/kafka/config.go", "adapters/amqp/config.go", "adapters/sqs/config.go"} {
		source, err := os.ReadFile(filepath.Join(root(t), file))
		if err != nil {
			t.Fatal(err)
		}
		_, fields, _ := strings.Cut(string(source), "\ntype Config struct {\n")
		fields, _, _ = strings.Cut(fields, "\n}\n")
		for _, m := range regexp.MustCompile(`(?m)^\t([A-Z]\w*) `).FindAllStringSubmatch(fields, -1) {
			names = append(names, m[1])
		}
	}
	requireNames(t, "docs/reference/config.md", names, 60)
}
