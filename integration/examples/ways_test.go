package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/programs"
)

// Each way to consume is a program of less than 60 lines that prints what it does.
func TestWaysExamples(t *testing.T) {
	t.Parallel()
	dir := buildAll(t, "ways")
	ways, err := os.ReadDir(filepath.Join("..", "..", "examples", "ways"))
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]func(t *testing.T, lines []string){
		"dedup":      says("o-1 is charged, attempt 1", "o-1 was charged before", "o-2 is charged, attempt 2"),
		"order":      orderSays,
		"pull":       says("o-1 is charged, attempt 1", "o-2 is left alone: it comes again when its second is over", "o-2 is charged, attempt 2", "o-3 is charged, attempt 2"),
		"resequence": resequenceSays,
	}
	for _, way := range ways {
		t.Run(way.Name(), func(t *testing.T) {
			t.Parallel()
			check := checks[way.Name()]
			if check == nil {
				t.Fatal("this program has no instructions")
			}
			short(t, filepath.Join("..", "..", "examples", "ways", way.Name(), "main.go"))
			p := start(t, nil, filepath.Join(dir, way.Name()))
			lines := p.rest()
			if status := p.status(); status != 0 {
				t.Errorf("exit status %d", status)
			}
			check(t, lines)
		})
	}
}

// says checks that the output has these lines, in any order.
func says(want ...string) func(t *testing.T, lines []string) {
	return func(t *testing.T, lines []string) {
		t.Helper()
		slices.Sort(lines)
		slices.Sort(want)
		if !slices.Equal(lines, want) {
			t.Errorf("it says %q, want %q", lines, want)
		}
	}
}

func resequenceSays(t *testing.T, lines []string) {
	t.Helper()
	if want := []string{"d-17 v1 is indexed", "d-17 v2 is indexed", "d-17 v3 is indexed", "d-17 v4 is indexed"}; !slices.Equal(lines, want) {
		t.Errorf("it says %q, want %q", lines, want)
	}
}

// orderSays checks only what holds on a slow machine, too. It does not check when a retry comes back beside later
// messages.
func orderSays(t *testing.T, lines []string) {
	t.Helper()
	for i, want := range []struct {
		order  string
		before []string // pairs: the first of which is done before the second
	}{{"OrderFirstAttempts", []string{"12", "13"}}, {"OrderNone", nil}, {"OrderBlocking", []string{"12", "23", "34"}}, {"OrderThroughRetries", []string{"12", "23"}}} {
		var done string
		if i < len(lines) {
			done = strings.NewReplacer(want.order+" is done with [", "", "]", "", " ", "").Replace(lines[i])
		}
		all := []byte(done)
		slices.Sort(all)
		if len(lines) != 4 || string(all) != "1234" {
			t.Fatalf("it says %q, want %s with four messages in line %d", lines, want.order, i+1)
		}
		for _, pair := range want.before {
			if strings.IndexByte(done, pair[0]) > strings.IndexByte(done, pair[1]) {
				t.Errorf("%s: %s is done in the order %s", want.order, pair, done)
			}
		}
	}
}

// short checks that a program is short.
func short(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n >= 60 {
		t.Errorf("%s has %d lines", file, n)
	}
}

// The example works with another Pub/Sub of Watermill: Redis.
func TestRedisExample(t *testing.T) {
	t.Parallel()
	addr := brokers.RequireRedis(t)
	if _, err := programs.Build("", "./integration/examples/redis"); err != nil {
		t.Fatal(err)
	}
	short(t, filepath.Join("redis", "main.go"))
	p := start(t, nil, "redis", addr)
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	says("o-1 is charged", "o-2 is dead after 2 attempts: card declined")(t, lines)
}
