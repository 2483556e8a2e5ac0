package kafka

import (
	"slices"
	"testing"
	"time"
)

// Another topic of this name had settled records at the same offsets. What a session
// settles now must not make the others of these offsets count as settled.
func TestWhatASessionSettlesSaysNothingOfAnotherLife(t *testing.T) {
	t.Parallel()
	bs := make(blocks)
	for offset := range int64(100) {
		bs.set("before", offset, 1000+offset)
	}
	bs.set("now", 50, 9_000)
	for offset := range int64(100) {
		if got, want := bs.has(offset, 8_950+offset), offset == 50; got != want {
			t.Fatalf("offset %d of now is settled: %v", offset, got)
		}
		if !bs.has(offset, 1000+offset) {
			t.Errorf("offset %d of before is not settled", offset)
		}
	}
	if got := bs.count(0, blockSize); got != 100 {
		t.Errorf("%d offsets are settled", got)
	}
	if got := bs.strangers(7, 8_957); !slices.Equal(got, []string{"before"}) {
		t.Errorf("%q had another record there", got)
	}
}

// watcher is an ahead of a reader without a broker.
func watcher(r *reader) (a *ahead, bell chan struct{}) {
	bell = make(chan struct{}, 1)
	a = &ahead{
		c: r.control, topic: "orders.billing.retry.1h", at: waitPlace{time.Hour, 0}, own: []string{"me"}, strangers: make(map[string]struct{}),
		settled: make(blocks), changed: make(map[blockRef]struct{}), taken: make(map[int64]struct{}), bell: bell,
	}
	return a, bell
}

func TestWhoSettledInAnotherLifeIsForgotten(t *testing.T) {
	t.Parallel()
	a, _ := watcher(offline(nil))
	a.some.Store(true)
	for offset := range int64(100) {
		a.settled.set("before", offset, 1000+offset)
		a.settled.set("before", offset+blockSize, 1000+offset)
	}
	a.settled.set("me", 3, 9_003)
	if a.pass(200, time.UnixMilli(9_200)) || !a.pass(3, time.UnixMilli(9_003)) || a.pass(7, time.UnixMilli(9_007)) {
		t.Error("it passes over what is not settled, or not over what is")
	}
	if a.pass(8, time.UnixMilli(1_008)) || a.pass(blockSize, time.UnixMilli(1_000)) {
		t.Error("what settled another record counts for others")
	}
	book := make(blocks)
	book.set("before", 8, 1_008)
	a.learn(book) // the topic still says so
	if a.pass(8, time.UnixMilli(1_008)) {
		t.Error("it was learned again")
	}
	gone := a.forget(0)
	slices.SortFunc(gone, func(x, y blockRef) int { return int(x.n - y.n) })
	if !slices.Equal(gone, []blockRef{{0, "before"}, {1, "before"}}) {
		t.Errorf("forgotten in the topic: %v", gone)
	}
	if !a.pass(3, time.UnixMilli(9_003)) {
		t.Error("what is settled now is forgotten, too")
	}
	// Its own, of before the topic was made anew beneath it.
	a.anew()
	a.settle([]*hit{{rec: fetched{offset: 4, at: time.UnixMilli(99_004)}}}, []*hit{{rec: fetched{offset: 4, at: time.UnixMilli(99_004)}}})
	if a.pass(3, time.UnixMilli(99_000)) || !a.pass(4, time.UnixMilli(99_004)) {
		t.Error("it goes on with what it settled in another life")
	}
}

// A book read later than the lane began, or written by who had the partition before.
func TestALaneLearnsWhatWasSettledBeforeItBegan(t *testing.T) {
	t.Parallel()
	a, bell := watcher(offline(nil))
	book := make(blocks)
	book.set("before", 7, 1_007)
	book.set("me", 8, 1_008) // it knows better
	a.learn(book)
	if !a.pass(7, time.UnixMilli(1_007)) || a.pass(8, time.UnixMilli(1_008)) {
		t.Error("it has not learned what is settled, or what it did not settle itself")
	}
	if !a.news.Swap(false) || len(bell) != 1 {
		t.Error("the lane is not told to look at what it holds")
	}
	<-bell
	a.learn(book)
	if a.news.Load() || len(bell) > 0 {
		t.Error("the lane is told of what it knows")
	}
	if len(a.changed) > 0 {
		t.Error("it would write down what others settled")
	}
}

func TestABookKeepsWhatEverySessionSettled(t *testing.T) {
	t.Parallel()
	at := waitPlace{time.Hour, 1}
	b := newBook()
	say := func(session string, offset int64, value bool) {
		t.Helper()
		bs := make(blocks)
		bs.set(session, offset, 1000+offset)
		e := written(t, blockKey(at, blockRef{0, session}), bs[0][session])
		if !value {
			e.value = nil
		}
		b.apply([]byte(e.key), e.value)
	}
	say("", 1, true) // as it was written without sessions
	say("one", 2, true)
	say("other", 3, true)
	for offset := range int64(5) {
		if got, want := b.settled[at].has(offset, 1000+offset), offset >= 1 && offset <= 3; got != want {
			t.Errorf("offset %d is settled: %v", offset, got)
		}
	}
	say("one", 0, false)
	if b.settled[at].has(2, 1002) || !b.settled[at].has(3, 1003) || !b.settled[at].has(1, 1001) {
		t.Error("the end of one session's block is not that")
	}
	say("", 0, false)
	say("other", 0, false)
	if b.strange > 0 || len(b.settled) > 0 {
		t.Errorf("%d are strange, %v is left", b.strange, b.settled)
	}
}
