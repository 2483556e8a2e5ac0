package worlds_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var build = sync.OnceValues(func() ([]byte, error) { return exec.Command("./build.sh").CombinedOutput() })

// search runs bin/worlds/run on a broker. It reports the last line of its output, and whether a world failed.
func search(t *testing.T, broker string, args ...string) (failed bool, output string) {
	t.Helper()
	if out, err := build(); err != nil {
		t.Fatalf("building the worlds: %v\n%s", err, out)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(root, "bin/worlds/run"), append([]string{"-quiet", "-program", "bin/worlds/" + broker + ".test"}, args...)...)
	c.Dir = root
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, os.Stderr
	err = c.Run()
	output = strings.TrimSpace(out.String())
	lines := strings.Split(output, "\n")
	t.Logf("report: %s", lines[len(lines)-1])
	return err != nil, output
}

// Worlds that once failed, and some others, keep all promises.
func TestKnownWorlds(t *testing.T) {
	for broker, seeds := range map[string]string{"kafka": "seeds.txt", "sqs": "seeds-sqs.txt", "rabbitmq": "seeds-rabbitmq.txt"} {
		t.Run(broker, func(t *testing.T) {
			if failed, output := search(t, broker, "-seeds", "@integration/worlds/"+seeds); failed {
				t.Error(output)
			}
		})
	}
}

// Every run searches new worlds, and reports broken promises. These fail no build, because the seeds differ from run to run.
func TestNewWorlds(t *testing.T) {
	for broker, duration := range map[string]string{"kafka": "30s", "sqs": "15s"} {
		t.Run(broker, func(t *testing.T) {
			failed, output := search(t, broker, "-for", duration)
			if failed {
				t.Logf("report: new worlds broke promises:\n%s", output)
			}
			if !strings.Contains(output, " worlds in ") || strings.HasPrefix(output, "0 worlds") {
				t.Errorf("no world ran:\n%s", output)
			}
		})
	}
}
