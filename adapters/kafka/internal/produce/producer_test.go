package produce

import (
	"context"
	"testing"

	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
)

// done counts the answers to writes.
type done struct{ unanswered chan string }

func (d done) Confirmed(string, error)          {}
func (d done) Unanswered(where string, _ error) { d.unanswered <- where }

// Subscriptions that share a producer post in turns, each with the context of its own window. A group for each post
// would stay in memory until its context ends.
func TestPostsOfOneContextShareAGroup(t *testing.T) {
	p := &Producer{}
	reported := done{make(chan string, 100)}
	first, endFirst := context.WithCancel(t.Context())
	second, endSecond := context.WithCancel(t.Context())
	defer endSecond()
	add := func(ctx context.Context, topic string) *Write {
		w := &Write{ctx: ctx, then: reported, Record: record.Outgoing{}}
		w.Record.Message.Topic = topic
		p.watchDeadline(w)
		return w
	}
	var writes []*Write
	for range 20 {
		writes = append(writes, add(first, "a"), add(second, "b"))
	}
	count := func() (n int) {
		p.groups.Range(func(any, any) bool { n++; return true })
		return n
	}
	if n := count(); n != 2 {
		t.Errorf("%d groups for two contexts", n)
	}
	for _, w := range writes[2:] {
		if !w.stopWatch() {
			t.Fatal("an answered write cannot be reused")
		}
	}
	endFirst()
	if where := <-reported.unanswered; where != "a" {
		t.Errorf("a write to %s is unanswered, want a", where)
	}
	if writes[0].stopWatch() {
		t.Error("a write that was reported may be reused")
	}
	if n := count(); n != 1 {
		t.Errorf("%d groups, want only the one of the second context", n)
	}
	add(first, "late") // after the end of its context
	if where := <-reported.unanswered; where != "late" {
		t.Errorf("a write to %s is unanswered, want late", where)
	}
}
