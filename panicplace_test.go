package redeliver_test

import (
	"errors"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// caught returns the error of an attempt that panics.
func caught(f func()) (err *redeliver.PanicError) {
	defer func() { err = &redeliver.PanicError{Value: recover(), Stack: debug.Stack()} }()
	f()
	return nil
}

func outer(f func()) { f() }

// The DLQ names the functions in which a handler panicked, the innermost first, and only a few.
func TestAPanicNamesItsPlace(t *testing.T) {
	var nobody *struct{ name string }
	for name, c := range map[string]struct {
		f           func()
		text, func1 string
	}{
		"by itself":            {func() { panic("boom") }, "panic: boom in ", "TestAPanicNamesItsPlace"},
		"by the runtime":       {func() { _ = []int{}[len(t.Name())] }, "index out of range", "TestAPanicNamesItsPlace"},
		"by a nil pointer":     {func() { _ = nobody.name }, "nil pointer dereference in ", "TestAPanicNamesItsPlace"},
		"in a deferred second": {func() { defer func() { panic("second") }(); panic("first") }, "second", "TestAPanicNamesItsPlace"},
		"in another function":  {func() { outer(func() { panic("boom") }) }, "boom in ", "redeliver_test.outer (panicplace_test.go:"},
	} {
		d := redeliver.Policy{MaxRetries: redeliver.NoRetries}.Decide(redeliver.State{}, caught(c.f), now)
		text := d.State.Error
		if !strings.Contains(text, c.text) || !strings.Contains(text, c.func1) || !strings.Contains(text, "(panicplace_test.go:") || strings.Count(text, ".go:") > 3 {
			t.Errorf("%s: the DLQ has the error %q", name, text)
		}
	}
}

// A long text is cut to leave room for the place, and is redacted. The text of Policy.ErrorText gets no place.
func TestThePlaceFitsBehindTheText(t *testing.T) {
	long := caught(func() { panic("amqp://user:secret@host " + strings.Repeat("x", 5000)) })
	text := redeliver.Policy{}.Decide(redeliver.State{}, long, now).State.Error
	if len(text) > limits.MaxErrorText || !strings.Contains(text, "panicplace_test.go:") || strings.Contains(text, "secret") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
	own := redeliver.Policy{ErrorText: func(error) string { return "ours" }}
	if text := own.Decide(redeliver.State{}, long, now).State.Error; text != "ours" {
		t.Errorf("%q, want the policy's own text", text)
	}
	for _, stack := range []string{"", "panic(", "panic(\n", "no stack\nat all\n\n", "panic(1)\n\tp.go:1\nruntime.x\n"} {
		if text := (redeliver.Policy{}).Decide(redeliver.State{}, &redeliver.PanicError{Value: 1, Stack: []byte(stack)}, now.Add(time.Second)).State.Error; text != "panic: 1" {
			t.Errorf("with the stack %q: %q", stack, text)
		}
	}
	var none *redeliver.PanicError
	if text := (redeliver.Policy{}).Decide(redeliver.State{}, errors.Join(none), now).State.Error; text != redeliver.ErrPanic.Error() {
		t.Errorf("of nothing: %q", text)
	}
}

// The place of a panic is the handler's, not that of the frameworks around it. Without a handler's function it is theirs.
func TestThePlaceOfAPanicIsTheHandlers(t *testing.T) {
	const (
		user    = "main.run.func1(0x1)\n\t/app/main.go:76 +0x1\n"
		pay     = "example.com/shop/charge.(*Card).Pay(...)\n\t/app/charge/card.go:42 +0x2\n"
		router  = "github.com/ThreeDotsLabs/watermill/message.(*Router).AddConsumerHandler.func1(0x2)\n\t/mod/router.go:349 +0x3\n"
		adapter = "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka.Subscribe(0x2)\n\t/mod/kafka.go:3 +0x3\n"
		task    = "github.com/redeliver/redeliver/middleware.(*task).Handle(0x3)\n\t/mod/task.go:42 +0x4\n"
		inner   = "github.com/redeliver/redeliver/internal/engine.(*Delivery).Run(0x3)\n\t/mod/delivery.go:42 +0x4\n"
	)
	for name, c := range map[string]struct{ stack, want string }{
		"a handler within both":    {user + router + task + inner, "panic: boom in main.run.func1 (main.go:76)"},
		"a call of a framework":    {task + adapter + pay + user + inner, "panic: boom in charge.(*Card).Pay (card.go:42), main.run.func1 (main.go:76)"},
		"more than three of ours":  {task + task + router + adapter + inner, "panic: boom in middleware.(*task).Handle (task.go:42), middleware.(*task).Handle (task.go:42), message.(*Router).AddConsumerHandler.func1 (router.go:349)"},
		"names that only resemble": {"github.com/redeliver/redeliverable.Do(1)\n\t/x.go:1\n" + inner, "panic: boom in redeliverable.Do (x.go:1)"},
	} {
		err := &redeliver.PanicError{Value: "boom", Stack: []byte("goroutine 7 [running]:\npanic({0x1, 0x2})\n\t/go/panic.go:1 +0x1\n" + c.stack)}
		if got := (redeliver.Policy{}).Decide(redeliver.State{}, err, now).State.Error; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
