package cli_test

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// terminal is a test's screen. It keeps what was drawn last.
type terminal struct {
	width, height int
	raw           atomic.Bool
}

func (t *terminal) Size() (width, height int) { return t.width, t.height }

func (t *terminal) Raw() (restore func(), err error) {
	t.raw.Store(true)
	return func() { t.raw.Store(false) }, nil
}

// page returns what a terminal shows after it has received sent.
func page(sent string) string {
	_, sent, _ = strings.Cut(sent, "\x1b[?1049h")
	frames := strings.Split(sent, "\x1b[H")
	for i := len(frames) - 1; i > 0; i-- { // the last may be incomplete
		if frame, _, whole := strings.Cut(frames[i], "\x1b[J"); whole {
			return strings.ReplaceAll(strings.ReplaceAll(frame, "\x1b[K", ""), "\r\n", "\n")
		}
	}
	return ""
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.writeWaiting()
	screen := &terminal{width: 100, height: 12}
	keys, press := io.Pipe()
	var out buffer
	ended := make(chan ending)
	go func() {
		ended <- s.with(call{terminal: true, screen: screen, in: keys, output: &out, env: map[string]string{"NO_COLOR": "1"}}, "top", "--every", "100ms")
	}()
	shows := func(texts ...string) func() bool {
		return func() bool {
			for _, text := range texts {
				if !strings.Contains(page(out.String()), text) {
					return false
				}
			}
			return true
		}
	}
	s.await("a page with 5 messages", shows("DLQs: 1  messages: 5", dlq, "waiting: 5", "late ", "q quit", "every 100ms"))
	if shows("\n  1h ")() {
		t.Error("levels are shown before l is pressed")
	}
	_, _ = press.Write([]byte("l"))
	s.await("the levels", shows("\n  1h "))
	if !screen.raw.Load() {
		t.Error("the terminal does not pass keys on")
	}
	s.put(dead(7, 0, declined), dead(8, 0, declined))
	s.await("two messages more, and how fast they come", func() bool {
		return shows("messages: 7 (+")() && !strings.Contains(page(out.String()), "messages: 7 (+0")
	})
	s.topics("hostile\u202e.g.dlq")
	_, _ = press.Write([]byte(" "))
	s.await("that it is paused", shows("paused"))
	_, _ = press.Write([]byte(" nq"))
	got := <-ended
	got.want(t, 0)
	if screen.raw.Load() || !strings.HasSuffix(out.String(), "\x1b[?25h\x1b[?1049l") {
		t.Errorf("the terminal has changed: %q", out.String()[max(0, out.b.Len()-60):])
	}
	for i, line := range strings.Split(page(out.String()), "\n") {
		if n := len([]rune(line)); n > screen.width || i >= screen.height {
			t.Errorf("line %d has %d columns: %q", i+1, n, line)
		}
	}
	if strings.Contains(out.String(), "\x1b[3") {
		t.Error("there are colours with NO_COLOR")
	}
}

// A raw terminal passes Ctrl-C as a key. Output does not exceed a small screen.
func TestTopFitsASmallTerminal(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		s.topics(name+".billing.dlq", name)
	}
	screen := &terminal{width: 40, height: 9}
	keys, press := io.Pipe()
	var out buffer
	ended := make(chan ending)
	go func() { ended <- s.with(call{terminal: true, screen: screen, in: keys, output: &out}, "top") }()
	s.await("a page", func() bool { return strings.Contains(page(out.String()), "... and ") })
	lines := strings.Split(page(out.String()), "\n")
	if len(lines) != screen.height || !strings.Contains(lines[5], "no topic and group") || !strings.Contains(lines[6], "and 8 more") {
		t.Errorf("%d lines: %q", len(lines), lines)
	}
	_, _ = press.Write([]byte{3})
	(<-ended).want(t, 0)
}

// A broker that does not answer keeps neither the terminal nor the last screen from the user.
func TestTopRestoresTheTerminalBeforeASlowBrokerAnswers(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	screen := &terminal{width: 80, height: 24}
	keys, press := io.Pipe()
	var out buffer
	ended := make(chan ending)
	go func() {
		ended <- s.with(call{terminal: true, screen: screen, in: keys, output: &out}, "top", "--every", "100ms")
	}()
	s.await("a page", func() bool { return page(out.String()) != "" })
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.broker.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(asked) })
		<-answer
		return nil, nil, false
	})
	<-asked
	_, _ = press.Write([]byte("q"))
	s.await("the terminal as it was", func() bool { return !screen.raw.Load() && strings.HasSuffix(out.String(), "\x1b[?25h\x1b[?1049l") })
	select {
	case <-ended:
		t.Error("top closed the broker during a request")
	default:
	}
	close(answer)
	(<-ended).want(t, 0)
}

func TestTopWithoutATerminal(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.writeWaiting()
	all := s.run("top", "--output", "json").want(t, 0).objects(t)
	if len(all) != 1 || all[0]["dlq"] != dlq || all[0]["messages"] != 5.0 || all[0]["waiting"] != 5.0 || all[0]["per_minute"] != nil || all[0]["due"] == nil {
		t.Errorf("%v", all)
	}
	levels, _ := all[0]["levels"].([]any)
	if len(levels) != 1 || levels[0].(map[string]any)["level"] != "1h" || levels[0].(map[string]any)["messages"] != 5.0 {
		t.Errorf("levels: %v", levels)
	}
	if got := s.run("top").want(t, 0); strings.Contains(got.out, "\n  1h ") || strings.Contains(got.out, "\x1b") {
		t.Errorf("%s", got.out)
	}
	if got := s.run("top", "--levels").want(t, 0); !regexp.MustCompile(`(?m)^  1h +5 +late \d+`).MatchString(got.out) {
		t.Errorf("%s", got.out)
	}
	got := s.run("top", "--count", "2", "--every", "100ms", "--output", "jsonl").want(t, 0)
	if n := strings.Count(got.out, "\n"); n != 2 || !strings.Contains(got.out, `"per_minute":0`) {
		t.Errorf("%d lines: %s", n, got.out)
	}
	for args, says := range map[string]string{"--every 1ms": "--every", "--count -1": "--count", "--sort size": "--sort", "x": "only flags"} {
		s.run(append([]string{"top"}, strings.Fields(args)...)...).want(t, 2, says)
	}
	call{}.run(t, "top", "--broker", "amqp://127.0.0.1:1").want(t, 2, "--management-url")
	call{}.run(t, "top", "--broker", "kafka://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
}
