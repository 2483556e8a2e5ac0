package redeliver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

var st = redeliver.State{
	ID: "orders/3/41", Origin: "orders", Group: "billing", Attempts: 2, Reason: redeliver.ReasonExhausted, Error: "as ErrorText said",
	Due: time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC), PostponedSince: time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC),
}

// logged is an expected line of the log: level, text, and attributes beside those of the message.
type logged struct {
	event redeliver.Event
	level string
	msg   string
	attrs map[string]any
}

var errLeaky = errors.New("dial amqp://u:secret@h/")

const ms = float64(time.Millisecond)

func logTable() []logged {
	type m = map[string]any
	const safe = "dial amqp://***@h/"
	another := st
	another.FirstError = "timed out"
	return []logged{
		{redeliver.Attempted{State: st, Err: errLeaky, Took: time.Millisecond}, "DEBUG", "attempt ended", m{"attempt": 3.0, "took": ms, "error": safe}},
		{redeliver.Attempted{State: st}, "DEBUG", "attempt ended", m{"attempt": 3.0, "took": 0.0}},
		{redeliver.Committed{State: st}, "DEBUG", "message committed", nil},
		{redeliver.RetryScheduled{State: st, Delay: time.Millisecond, Where: "t.10s", Err: errLeaky}, "INFO", "retry scheduled",
			m{"attempts": 2.0, "delay": ms, "due": "2026-03-14T15:09:26Z", "where": "t.10s", "error": "as ErrorText said"}},
		{redeliver.MessagePostponed{State: st, Delay: time.Millisecond, Where: "t.10s", Err: errLeaky}, "INFO", "message postponed",
			m{"delay": ms, "since": "2026-03-14T15:00:00Z", "where": "t.10s", "error": "as ErrorText said"}},
		{redeliver.DeadLettered{State: st, Where: "t.dlq", Err: errLeaky}, "WARN", "message dead-lettered",
			m{"attempts": 2.0, "reason": "exhausted", "where": "t.dlq", "error": "as ErrorText said"}},
		{redeliver.DeadLettered{State: another, Where: "t.dlq", Err: errLeaky}, "WARN", "message dead-lettered",
			m{"attempts": 2.0, "reason": "exhausted", "where": "t.dlq", "first_error": "timed out", "error": "as ErrorText said"}},
		{redeliver.Discarded{State: another, Err: errLeaky}, "WARN", "message discarded",
			m{"attempts": 2.0, "reason": "exhausted", "first_error": "timed out", "error": "as ErrorText said"}},
		{redeliver.DeadLettered{Err: errLeaky}, "WARN", "message dead-lettered", m{"id": "", "origin": "", "group": "", "attempts": 0.0, "reason": "", "where": "", "error": safe}},
		{redeliver.Discarded{State: st, Err: errLeaky}, "WARN", "message discarded", m{"attempts": 2.0, "reason": "exhausted", "error": "as ErrorText said"}},
		{redeliver.Hopped{State: st, From: "a", To: "b"}, "DEBUG", "message hopped", m{"from": "a", "to": "b", "due": "2026-03-14T15:09:26Z"}},
		{redeliver.Published{State: st, Topic: "t"}, "DEBUG", "delayed message published", m{"topic": "t"}},
		{redeliver.PublishFailed{State: st, Where: "t", Err: errLeaky, Try: 1, Retry: time.Millisecond}, "DEBUG", "write failed, source stays unacked",
			m{"where": "t", "try": 1.0, "retry": ms, "error": safe}},
		{redeliver.PublishFailed{State: st, Where: "t", Err: errLeaky, Try: 8, Retry: time.Minute}, "WARN", "delayed publish failed, waits on a level",
			m{"where": "t", "try": 8.0, "retry": 60e9, "error": safe}},
		{redeliver.PublishFailed{State: st, Where: "t", Err: errLeaky, Try: 2}, "DEBUG", "write failed, source stays unacked",
			m{"where": "t", "try": 2.0, "retry": 0.0, "error": safe}},
		{redeliver.HandlerStuck{State: st, Timeout: time.Millisecond, Stuck: 4}, "WARN", "handler outlived its timeout", m{"attempt": 3.0, "timeout": ms, "stuck": 4.0}},
		{redeliver.LateAnswer{State: st, Err: errLeaky, Stuck: 3}, "WARN", "late answer ignored", m{"stuck": 3.0, "error": safe}},
		{redeliver.HeadersIgnored{Topic: "t", ID: "i", Findings: []redeliver.Finding{{Header: "h", Value: "v", Problem: "p"}}}, "WARN", "headers ignored",
			m{"topic": "t", "id": "i", "findings": []any{m{"Header": "h", "Value": "v", "Problem": "p"}}}},
		{redeliver.Abandoned{State: st, Err: errLeaky}, "INFO", "attempt abandoned", m{"error": safe}},
		{redeliver.MessagesLost{Origin: "o", Group: "g", Where: "t/3", Count: 7, Detail: "d"}, "ERROR", "messages are lost",
			m{"origin": "o", "group": "g", "where": "t/3", "count": 7.0, "detail": "d"}},
		{redeliver.SubscriptionChanged{Origin: "o", Group: "g", Change: "assigned", Detail: "3"}, "INFO", "subscription: assigned", m{"origin": "o", "group": "g", "detail": "3"}},
		{redeliver.SubscriptionChanged{Origin: "o", Group: "g", Change: "disconnected", Err: errLeaky}, "WARN", "subscription: disconnected",
			m{"origin": "o", "group": "g", "error": safe}},
		{redeliver.LateAnswer{State: st, Err: hostile{panics}}, "WARN", "late answer ignored", m{"stuck": 0.0, "error": "the error's text panicked: string"}},
	}
}

func TestSlogSinkWritesEveryEvent(t *testing.T) {
	for _, row := range logTable() {
		t.Run(reflect.TypeOf(row.event).Name()+" "+row.level, func(t *testing.T) {
			var out bytes.Buffer
			redeliver.NewSlogSink(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))).Event(row.event)
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatalf("line %q: %v", out.String(), err)
			}
			want := map[string]any{"level": row.level, "msg": row.msg}
			if reflect.ValueOf(row.event).FieldByName("State").IsValid() {
				want["id"], want["origin"], want["group"] = st.ID, st.Origin, st.Group
			}
			maps.Copy(want, row.attrs)
			delete(got, "time")
			if !reflect.DeepEqual(got, want) {
				t.Errorf("line\n got %v\nwant %v", got, want)
			}
		})
	}
}

// An adapter of a third party may report any number of findings.
func TestALogLineHasAtMostTwentyFindings(t *testing.T) {
	for _, json := range []bool{false, true} {
		for n, more := range map[int]string{20: "", 21: "1 more", 60_000: "59980 more"} {
			var out bytes.Buffer
			var handler slog.Handler = slog.NewTextHandler(&out, nil)
			if json {
				handler = slog.NewJSONHandler(&out, nil)
			}
			long := strings.Repeat("x", 1000)
			findings := slices.Repeat([]redeliver.Finding{{Header: "redeliver-" + long, Value: long, Problem: "lies"}}, n)
			redeliver.NewSlogSink(slog.New(handler)).Event(redeliver.HeadersIgnored{Topic: "t", ID: "i", Findings: findings})
			if line := out.String(); strings.Count(line, "lies") != 20 || !strings.Contains(line, more) || len(line) > 10_000 {
				t.Errorf("%d findings are a line of %d bytes: %.300q", n, len(line), line)
			}
		}
	}
}

// The sink respects the logger's level, and above Debug a success writes nothing.
func TestSlogSinkRespectsTheLoggersLevel(t *testing.T) {
	var out bytes.Buffer
	sink := redeliver.NewSlogSink(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn})))
	for _, row := range logTable() {
		sink.Event(row.event)
	}
	for line := range strings.Lines(out.String()) {
		if !strings.Contains(line, `"level":"WARN"`) && !strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("written at the level WARN: %s", line)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 12 {
		t.Errorf("%d lines at WARN and above, want 12", n)
	}
}

// Not parallel: it changes the default logger.
func TestSlogSinkOfNilIsTheDefaultLogger(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	redeliver.NewSlogSink(nil).Event(redeliver.DeadLettered{State: st})
	if !strings.Contains(out.String(), "message dead-lettered") {
		t.Errorf("default logger got %q", out.String())
	}
}

// The events are read from the source: a new one must get a line in the log, and a row above.
func TestEveryEventIsLogged(t *testing.T) {
	fset := token.NewFileSet()
	events, err := parser.ParseFile(fset, "event.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	sink, err := parser.ParseFile(fset, "slog.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	described := switchCases(sink, "recordOf")
	var tested []string
	for _, row := range logTable() {
		tested = append(tested, reflect.TypeOf(row.event).Name())
	}
	found := 0
	ast.Inspect(events, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		body, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		found++
		name := spec.Name.Name
		fields, ok := described[name]
		if !ok {
			t.Errorf("%s has no case in recordOf", name)
		}
		own, read := 0, 0 // fields that only this event has
		for _, f := range body.Fields.List {
			for _, id := range f.Names {
				if id.Name == "State" || id.Name == "Err" {
					continue
				}
				own++
				if slices.Contains(fields, id.Name) {
					read++
				}
			}
		}
		if own > 0 && read == 0 {
			t.Errorf("%s has its own fields, and recordOf reads none of them", name)
		}
		if !slices.Contains(tested, name) {
			t.Errorf("%s has no row in logTable", name)
		}
		return true
	})
	if found < 13 {
		t.Errorf("found only %d events in event.go", found)
	}
}

// switchCases lists the types in the type switch of a function, each with the fields that its case reads.
func switchCases(file *ast.File, function string) map[string][]string {
	cases := make(map[string][]string)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == function {
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CaseClause); ok {
					for _, e := range c.List {
						if id, ok := e.(*ast.Ident); ok {
							cases[id.Name] = selected(c)
						}
					}
				}
				return true
			})
		}
	}
	return cases
}

// selected lists the names that are selected from something in a node.
func selected(in ast.Node) (names []string) {
	ast.Inspect(in, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			names = append(names, s.Sel.Name)
		}
		return true
	})
	return names
}

// Only the sink logs the stack of a panic: no code above the handler gets the panic.
func TestSlogSinkWritesTheStackOfAPanic(t *testing.T) {
	panicked := &redeliver.PanicError{Value: "boom", Stack: []byte(strings.Repeat("frame", 2000))}
	for _, e := range []redeliver.Event{redeliver.RetryScheduled{Err: panicked}, redeliver.DeadLettered{Err: fmt.Errorf("charging: %w", panicked)}} {
		var out bytes.Buffer
		redeliver.NewSlogSink(slog.New(slog.NewJSONHandler(&out, nil))).Event(e)
		var line struct {
			Level string `json:"level"`
			Stack string `json:"stack"`
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		if line.Level != "WARN" || !strings.HasPrefix(line.Stack, "frameframe") || len(line.Stack) > 4<<10 {
			t.Errorf("%T is written as %s with %d bytes of stack", e, line.Level, len(line.Stack))
		}
	}
	var out bytes.Buffer
	redeliver.NewSlogSink(slog.New(slog.NewJSONHandler(&out, nil))).Event(redeliver.RetryScheduled{Err: &redeliver.PanicError{Value: "boom"}})
	if got := out.String(); !strings.Contains(got, `"level":"INFO"`) || strings.Contains(got, "stack") {
		t.Errorf("a panic without a stack: %s", got)
	}
}

// A message that panics at each attempt has its stack in the log once, at the first one. A panic that follows another error has it
// with the dead letter.
func TestAMessageHasItsStackInTheLogOnce(t *testing.T) {
	for name, c := range map[string]struct {
		first error
		want  int // index of the record with the stack
	}{"always": {&redeliver.PanicError{Value: "boom", Stack: []byte("a stack")}, 0}, "after another error": {errors.New("timed out"), 3}} {
		var out bytes.Buffer
		sink := redeliver.NewSlogSink(slog.New(slog.NewTextHandler(&out, nil)))
		st, err := redeliver.State{}, c.first
		for {
			d := redeliver.Policy{MaxRetries: 3}.Decide(st, err, now)
			if st = d.State; d.Action != redeliver.ActionRetryLater {
				sink.Event(redeliver.DeadLettered{State: st, Err: err})
				break
			}
			sink.Event(redeliver.RetryScheduled{State: st, Err: err})
			err = &redeliver.PanicError{Value: "boom", Stack: []byte("a stack")}
		}
		var with []int
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if strings.Contains(line, "stack=") {
				with = append(with, i)
			}
		}
		if len(with) != 1 || with[0] != c.want {
			t.Errorf("%s: the records %v of 4 have a stack:\n%s", name, with, &out)
		}
	}
}
