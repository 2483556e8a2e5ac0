package kafkashare

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
)

// The last record with the key of a pause counts. A topic that is missing for a moment ends no pause.
func TestAPauseIsTheLastMark(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	connect := func() *kgo.Client {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.UnknownTopicRetries(50))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	cl := connect()
	marks := pauseMarks{client: cl, topic: "orders.billing.control"}
	want := func(reason string) {
		t.Helper()
		mark, err := marks.read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if mark != nil {
			got = mark.Reason
		}
		if got != reason {
			t.Errorf("paused because of %q, want %q", got, reason)
		}
	}
	putRecord := func(key string, value []byte) {
		t.Helper()
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: marks.topic, Key: []byte(key), Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	want("")
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, marks.topic); err != nil {
		t.Fatal(err)
	}
	want("")
	for _, reason := range []string{"the bank is closed", "still closed"} {
		putRecord("pause", []byte(redeliver.PauseMark{By: "me@here", At: time.Now(), Reason: reason}.String()))
		putRecord("command/7", []byte("{}"))
		want(reason)
	}
	if _, err := adm.DeleteTopic(t.Context(), marks.topic); err != nil {
		t.Fatal(err)
	}
	want("still closed")
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, marks.topic); err != nil {
		t.Fatal(err)
	}
	cl = connect() // the first one does not write to the new topic
	putRecord("pause", []byte("again"))
	putRecord("pause", nil)
	want("")
}
