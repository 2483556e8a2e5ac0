//go:build prove

package spring_test

import (
	"bufio"
	"embed"
	"encoding/base64"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// maxWait bounds each wait. No result depends on how long it takes.
const maxWait = 60 * time.Second

//go:embed pom.xml src
var project embed.FS

// service is the program in src, a process of its own.
type service struct {
	t     *testing.T
	in    io.WriteCloser
	stop  func()
	lines chan []string // what it says, by fields; closed when it has ended
	kept  [][]string    // said, and not yet waited for
}

// start starts the service. properties are its configuration, as name=value.
func start(t *testing.T, properties ...string) *service {
	t.Helper()
	built := brokers.RequireJava(t, "spring", project)
	args := []string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"}
	for _, p := range properties {
		args = append(args, "-D"+p)
	}
	cmd := exec.Command(built.Java, append(args, "-cp", built.Classpath, "redeliver.spring.Service")...)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, in: in, lines: make(chan []string, 1000)}
	s.stop = sync.OnceFunc(func() {
		_ = in.Close()
		late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		for range s.lines {
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the service: %v", err)
		}
	})
	go func() {
		defer close(s.lines)
		for said := bufio.NewScanner(out); said.Scan(); {
			s.lines <- strings.Split(said.Text(), "\t")
		}
	}()
	t.Cleanup(s.stop)
	return s
}

// stopFailing makes its handlers succeed from now on.
func (s *service) stopFailing(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(s.in, "fix"); err != nil {
		t.Fatal(err)
	}
	s.await(t, "fixed", 1)
}

// await waits for n lines with this first field, and returns their other fields.
func (s *service) await(t *testing.T, what string, n int) (all [][]string) {
	t.Helper()
	late := time.After(maxWait)
	var others [][]string
	for len(all) < n {
		var line []string
		if len(s.kept) > 0 {
			line, s.kept = s.kept[0], s.kept[1:]
		} else {
			select {
			case got, ok := <-s.lines:
				if !ok {
					t.Fatalf("the service has ended after %d of %d %q", len(all), n, what)
				}
				line = got
			case <-late:
				t.Fatalf("the service has said %d of %d %q", len(all), n, what)
			}
		}
		if line[0] != what {
			others = append(others, line)
			continue
		}
		for i, field := range line {
			if b, err := base64.StdEncoding.DecodeString(field); err == nil && i > 0 {
				line[i] = string(b)
			}
		}
		all = append(all, line[1:])
	}
	s.kept = append(others, s.kept...)
	return all
}
