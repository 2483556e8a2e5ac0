package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// The documented table of verbs that differ by broker matches what the command says and does.
func TestTheTableOfBrokersIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/reference/command.md")
	if err != nil {
		t.Fatal(err)
	}
	var table [][5]string
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if len(cells) == 5 && strings.HasPrefix(cells[0], "| `") {
			table = append(table, [5]string{strings.Trim(cells[0], "| `"), cells[1], cells[2], cells[3], strings.TrimSuffix(cells[4], " |")})
		}
	}
	abilities := cli.Abilities()
	for _, a := range abilities {
		for i, cell := range a {
			if strings.HasPrefix(cell, "no: ") {
				a[i] = "no" // the page has the reasons below the table
			}
		}
		if !slices.Contains(table, a) {
			t.Errorf("docs/reference/command.md has no row\n| `%s` | %s | %s | %s | %s |", a[0], a[1], a[2], a[3], a[4])
		}
	}
	calls := map[string]string{
		"waiting list --messages": "waiting list --messages",
		"waiting release":         "waiting release --level 1h --note test --yes", "waiting cancel": "waiting cancel --id 7 --note test --yes",
	}
	for _, a := range abilities {
		for i, url := range []string{"kafka://127.0.0.1:1", "kafka+share://127.0.0.1:1", "amqp://127.0.0.1:1", "sqs+http://127.0.0.1:1"} {
			why, no := strings.CutPrefix(a[i+1], "no: ")
			if !no {
				continue
			}
			args := append(strings.Fields(calls[a[0]]), "--topic", "orders", "--broker", url)
			if strings.HasPrefix(url, "kafka") {
				args = append(args, "--group", "billing")
			}
			got := call{}.run(t, args...).want(t, 1, a[0]+" is not supported on", strings.ReplaceAll(why, "`", `"`))
			if got.out != "" {
				t.Errorf("%q: stdout has %q", args, got.out)
			}
		}
	}
}
