package invalidfile_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/invalidfile"
	"github.com/redeliver/redeliver/redelivertest"
)

// What is listed while it waits does not run again: when it is due it goes to the DLQ,
// invalidated, with its line; so does what is listed before it ran at all.
func TestWhatIsListedEndsInTheDLQ(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		path, n := filepath.Join(t.TempDir(), "cancelled"), newNotes()
		write(t, path, "id=never\n")
		l, err := invalidfile.Open(path, invalidfile.Config{Report: n.report})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		policy := redeliver.Policy{Backoff: redeliver.Fixed(time.Hour), MaxRetries: 1, Invalid: l.Invalid}
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: policy}).Handle("orders", func(*message.Message) error {
			return errors.New("the bank is closed")
		})
		for _, id := range []string{"never", "acme's", "keyed", "other"} {
			msg := message.NewMessage(id, nil)
			if id == "acme's" {
				msg.Metadata["tenant"] = "acme"
			}
			redelivertest.SetKey(msg, "customer of "+id)
			b.Publish("orders", msg)
		}
		<-time.After(time.Minute)
		write(t, path, "header=tenant=acme\n{\"key\":\"customer of keyed\",\"reason\":\"billed twice\"}\n")
		if got := n.next(t); got != "2 <nil>" {
			t.Error(got)
		}
		var got []string
		for _, dead := range orders.DeadLetters() {
			got = append(got, string(dead.State.Reason)+" "+dead.State.ID+": "+dead.State.Error)
		}
		slices.Sort(got)
		want := []string{
			"exhausted other: the bank is closed",
			"invalidated acme's: listed in cancelled, line 1",
			"invalidated keyed: cancelled, line 2: billed twice",
			"invalidated never: listed in cancelled, line 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("dead: %q, want %q", got, want)
		}
	})
}
