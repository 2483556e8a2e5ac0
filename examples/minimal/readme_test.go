package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

const root = "../.."

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Whoever copies the README's program gets one that compiles: this package.
func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(readme(t), "```go\n")
	shown, _, closed := strings.Cut(rest, "```\n")
	if !found || !closed {
		t.Fatal("the README has no Go program")
	}
	if shown != string(program) {
		t.Error("the README's program is not examples/minimal/main.go: copy the file into it")
	}
}

// Those of the other brokers' sections are parts of longer ones, by one tab further left.
func TestReadmeShowsAPartOfEachExample(t *testing.T) {
	for heading, file := range map[string]string{
		"RabbitMQ": "examples/rabbitmq/main.go", "SQS": "examples/sqs/main.go", "Publishing on Kafka": "adapters/kafka/example_test.go",
		"Any other Watermill Pub/Sub": "adapters/pubsub/example_test.go",
	} {
		t.Run(heading, func(t *testing.T) { showsAPart(t, heading, filepath.FromSlash(file)) })
	}
}

func showsAPart(t *testing.T, heading, file string) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(readme(t), "\n## "+heading+"\n")
	_, rest, begins := strings.Cut(section, "```go\n")
	shown, _, closed := strings.Cut(rest, "```\n")
	if !found || !begins || !closed {
		t.Fatal("the README's section has no Go program")
	}
	var indented strings.Builder
	for line := range strings.Lines(shown) {
		if line != "\n" {
			indented.WriteByte('\t')
		}
		indented.WriteString(line)
	}
	if !strings.Contains(string(program), indented.String()) {
		t.Errorf("what the README shows is not in %s: copy it again", file)
	}
}

var (
	links    = regexp.MustCompile(`\]\(([^)]+)\)`)
	commands = regexp.MustCompile(`go run (\./[\w/-]+)`)
)

func TestReadmeLeadsSomewhere(t *testing.T) {
	text := readme(t)
	paths := links.FindAllStringSubmatch(text, -1)
	for _, c := range commands.FindAllStringSubmatch(text, -1) {
		paths = append(paths, []string{"", c[1] + "/main.go"})
	}
	seen := 0
	for _, m := range paths {
		path := m[1]
		if strings.HasPrefix(path, "http") {
			continue
		}
		seen++
		if anchor, ok := strings.CutPrefix(path, "#"); ok {
			if heading := "\n## " + strings.ReplaceAll(anchor, "-", " "); !strings.Contains(strings.ToLower(text), heading) {
				t.Errorf("there is no heading for %s", path)
			}
			continue
		}
		path, _, _ = strings.Cut(path, "#") // internal/arch looks at the anchors of other pages
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("the README leads to %s: %v", path, err)
		}
	}
	if seen < 10 {
		t.Errorf("saw %d ways: this test does not read them", seen)
	}
}

// A new field of the policy is told about.
func TestReadmeNamesEveryFieldOfThePolicy(t *testing.T) {
	text := readme(t)
	for field := range reflect.TypeFor[redeliver.Policy]().Fields() {
		if name := field.Name; !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the README's table has no %s", name)
		}
	}
	for reason := range map[redeliver.Reason]bool{
		redeliver.ReasonExhausted: true, redeliver.ReasonPermanent: true, redeliver.ReasonTimeout: true,
		redeliver.ReasonPanic: true, redeliver.ReasonExpired: true, redeliver.ReasonInvalidated: true,
	} {
		if !strings.Contains(text, "`"+string(reason)+"`") {
			t.Errorf("the README does not name the reason %s", reason)
		}
	}
}
