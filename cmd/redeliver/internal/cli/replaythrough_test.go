//go:build unix

package cli_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The message of each order has the body order N. Two are found by text, changed by a program and replayed; what the program does not
// change stays, with the reason in the results.
func TestReplayThroughAProgram(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	all := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t)
	text := func(i int) string { return all[i]["body_text"].(string) }
	few := s.run("dlq", "show", dlq, "--body-text", text(0), "-o", "json").want(t, 0).objects(t)
	if len(few) != 1 || few[0]["id"] != all[0]["id"] {
		t.Fatalf("--body-text %s finds %v", text(0), few)
	}
	s.run("dlq", "groups", dlq, "--body-text", strings.ToUpper(text(0))+"?", "-o", "json").want(t, 0, "0 of 5")
	s.run("dlq", "show", dlq, "--body-text", strings.Repeat("x", 1001)).want(t, 2, "1000 bytes")

	fix := "sed 's/\"body_text\":\"{/\"body_text\":\"{\\\\\"fixed\\\\\":true,/'"
	dry := s.run("dlq", "replay", dlq, "--through", fix, "--dry-run").want(t, 0)
	for _, want := range []string{"would replay  5", "would change  5", `+   "fixed": true,`, "position", "body before"} {
		if !strings.Contains(dry.out, want) {
			t.Errorf("the dry run lacks %q:\n%s", want, dry.out)
		}
	}
	row := s.run("dlq", "replay", dlq, "--through", "grep -v "+fmt.Sprint(all[0]["id"]), "--dry-run", "-o", "json").want(t, 0).object(t)
	if row["replay"] != 4.0 || row["refuse"] != 1.0 || row["changed"] != nil || !strings.Contains(fmt.Sprint(row["refusals"]), "exit status 1") {
		t.Errorf("%v", row)
	}
	if n := s.written(back); n != 0 {
		t.Fatalf("dry runs have sent %d", n)
	}
	got := s.run("dlq", "replay", dlq, "--through", "grep -v "+fmt.Sprint(all[0]["id"])+" | "+fix, "--note", "test", "--yes", "-o", "json").want(t, 5, "1 messages remain").object(t)
	counts := got["counts"].(map[string]any)
	if counts["replayed"] != 4.0 || counts["changed"] != 4.0 || counts["refused"] != 1.0 || got["change"] != true {
		t.Errorf("%v", got)
	}
	for _, rec := range s.records(back, 4) {
		if !strings.HasPrefix(string(rec.Value), `{"fixed":true,`) {
			t.Errorf("sent is %s", rec.Value)
		}
	}
	if left := s.run("dlq", "show", dlq, "-o", "json").want(t, 0).objects(t); len(left) != 1 || left[0]["id"] != all[0]["id"] || left[0]["body_text"] != text(0) {
		t.Errorf("left is %v", left)
	}
	s.run("dlq", "replay", dlq, "--through", " ", "--note", "x", "--yes").want(t, 2, "--through")
	s.run("dlq", "replay", dlq, "--through-timeout", "1s", "--note", "x", "--yes").want(t, 2, "--through")
	s.run("dlq", "replay", dlq, "--through", "cat", "--through-timeout", "0s", "--note", "x", "--yes").want(t, 2, "more than 0s")
}

// The output of show, chosen by any program, is the input of a replay.
func TestReplayTakesPositionsFromAFile(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	lines := strings.Split(strings.TrimSpace(s.run("dlq", "show", dlq, "-o", "jsonl").want(t, 0).out), "\n")
	chosen := lines[1] + "\n\n" + `{"position": "0/0", "more": 1}` + "\n1/0"
	give := func(text string, args ...string) ending {
		return s.with(call{in: strings.NewReader(text)}, append([]string{"dlq", "replay", dlq, "--positions", "-"}, args...)...)
	}
	give(chosen, "--note", "test").want(t, 2, "give --yes")
	got := give(chosen, "--note", "test", "--yes", "-o", "json").want(t, 0).object(t)
	if n := got["counts"].(map[string]any)["replayed"]; n != 3.0 {
		t.Errorf("%v were replayed: %v", n, got)
	}
	if file := s.run("dlq", "show", dlq, "--positions", write(t, "0/0\n"), "-o", "json").want(t, 0); strings.Contains(file.out, "order") {
		t.Errorf("a replayed message is there: %s", file.out)
	}
	for text, says := range map[string]string{"": "has no position", "\n \n": "has no position", "{}": "neither a position", "{\n\"position\": \"0/0\"\n}": "neither a position", strings.Repeat("0/1\n", 1001): "more than 1000"} {
		give(text, "--dry-run").want(t, 2, says)
	}
	s.run("dlq", "purge", dlq, "--positions", "/nonexistent", "--note", "x", "--yes").want(t, 2, "/nonexistent")
	s.run("dlq", "purge", dlq, "--positions", "", "--note", "x", "--yes").want(t, 2, "--positions is empty")
}

// The example of a CronJob runs as it is written.
func TestTheExampleOfACronJobRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/how-to/replay-unattended.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	var job struct {
		Kind string
		Spec struct {
			ConcurrencyPolicy string `yaml:"concurrencyPolicy"`
			JobTemplate       struct {
				Spec struct {
					BackoffLimit *int `yaml:"backoffLimit"`
					Template     struct {
						Spec struct {
							RestartPolicy string `yaml:"restartPolicy"`
							Containers    []struct {
								Args []string
								Env  []struct{ Name, Value string }
							}
						}
					}
				}
			} `yaml:"jobTemplate"`
		}
	}
	if err := yaml.Unmarshal([]byte(text), &job); err != nil {
		t.Fatal(err)
	}
	run := job.Spec.JobTemplate.Spec
	if job.Kind != "CronJob" || job.Spec.ConcurrencyPolicy != "Forbid" || run.BackoffLimit == nil || *run.BackoffLimit != 0 || run.Template.Spec.RestartPolicy != "Never" {
		t.Errorf("the job may run twice: %+v", job)
	}
	one := run.Template.Spec.Containers[0]
	if !slices.ContainsFunc(one.Env, func(e struct{ Name, Value string }) bool { return e.Name == "REDELIVER_BROKER" }) {
		t.Errorf("the example has no broker: %+v", one)
	}
	s := newTestKafka(t)
	s.fill()
	args := slices.Clone(one.Args)
	for i, arg := range args {
		switch {
		case strings.HasPrefix(arg, "--between"):
			args[i] = "--between=00:00-23:59"
		case strings.HasPrefix(arg, "--watch"):
			args[i] = "--watch=1s"
		}
	}
	got := s.run(append(args, "-o", "json")...).want(t, 0).objects(t)
	replayed := 0.0
	for _, task := range got {
		replayed += task["counts"].(map[string]any)["replayed"].(float64)
		if task["status"] != "done" || !strings.HasPrefix(task["note"].(string), "unattended") || task["who"] != "ann@ops-1" || task["causes"] == nil {
			t.Errorf("%v", task)
		}
	}
	if len(got) != 2 || replayed != 5 || s.written(back) != 5 {
		t.Errorf("%v were replayed by %v", replayed, got)
	}
	s.run(args...).want(t, 0, "nothing to replay")
	s.run("dlq", "replay", dlq, "--unattended", "--between", "8-18").want(t, 2, "--between")
	s.run("dlq", "replay", dlq, "--between", "08:00-18:00", "--note", "x", "--yes").want(t, 2, "--unattended")
}
