package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// The pages about headers and events have all of them.
func TestReferencePagesAreComplete(t *testing.T) {
	t.Parallel()
	names := driver.HeaderNames()
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
		t.Errorf("found only %d names for %s, want at least %d", len(names), page, minNames)
	}
}

// The pages about configurations and names have every field of each broker's.
func TestConfigPagesAreComplete(t *testing.T) {
	t.Parallel()
	all := pages(t)
	for adapter, page := range map[string]string{"kafka": "kafka", "amqp": "rabbitmq", "sqs": "sqs"} {
		page = "docs/reference/" + page + ".md"
		text := all["docs/reference/config.md"] + all[page]
		for _, name := range fields(t, "adapters/"+adapter+"/config.go", "Config", 15) {
			if !strings.Contains(text, "`"+name+"`") {
				t.Errorf("neither docs/reference/config.md nor %s names %q", page, name)
			}
		}
		requireNames(t, "docs/reference/names.md", fields(t, "adapters/"+adapter+"/names.go", "Names", 2), 2)
	}
}

// fields returns the exported fields of a struct.
func fields(t *testing.T, file, of string, minFields int) (names []string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "\ntype "+of+" struct {\n")
	body, _, _ = strings.Cut(body, "\n}\n")
	for _, m := range regexp.MustCompile(`(?m)^\t([A-Z]\w*) `).FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	if len(names) < minFields {
		t.Errorf("found only %d fields of %s in %s, want at least %d", len(names), of, file, minFields)
	}
	return names
}
