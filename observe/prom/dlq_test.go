package prom_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/observed/observedtest"
	"github.com/redeliver/redeliver/observe/prom"
	"github.com/redeliver/redeliver/redelivertest"
)

// dated is a DLQ whose broker reports the age of its oldest message, and its retention.
type dated struct {
	deadletter.Queue
	age, keeps time.Duration // 0 means none
	refuses    error
}

func (d dated) Oldest(context.Context) (time.Time, bool, error) {
	return time.Now().Add(-d.age), d.age > 0, d.refuses
}

func (d dated) Retention(context.Context) (time.Duration, error) { return d.keeps, d.refuses }

// The age of the oldest message and the retention are exported if the broker reports them. If it does not, the other
// metrics are still exported.
func TestDLQsReportTheirAge(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		q := c.Handle("orders", func(*message.Message) error { return errDeclined }).DeadLetterQueue()
		labels := `{dlq="` + q.Info().DLQ + `",group="billing",messaging_system="memory",origin="orders"}`
		for _, tell := range []struct {
			dated
			want string
		}{
			{dated{q, time.Hour, 24 * time.Hour, nil}, `
# HELP redeliver_dlq_oldest_age_seconds Age of the oldest message in the DLQ.
# TYPE redeliver_dlq_oldest_age_seconds gauge
redeliver_dlq_oldest_age_seconds` + labels + ` 3600
# HELP redeliver_dlq_retention_seconds How long the broker keeps a message in the DLQ.
# TYPE redeliver_dlq_retention_seconds gauge
redeliver_dlq_retention_seconds` + labels + ` 86400
`},
			{dated{q, 0, 0, nil}, ""},
			{dated{q, time.Hour, 24 * time.Hour, errDeclined}, ""},
		} {
			all, err := prom.NewDLQs(prom.DLQConfig{System: "memory", Queues: []deadletter.Queue{tell.dated}})
			if err != nil {
				t.Fatal(err)
			}
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(all)
			same(t, r, tell.want, "redeliver_dlq_oldest_age_seconds", "redeliver_dlq_retention_seconds")
			same(t, r, `
# HELP redeliver_dlq_up 1 if the broker answered, otherwise 0.
# TYPE redeliver_dlq_up gauge
redeliver_dlq_up`+labels+` 1
`, "redeliver_dlq_up")
		}
	})
}

// unaged is a DLQ whose broker does not report the age of its oldest message. It counts the scans.
type unaged struct {
	deadletter.Queue
	info  deadletter.Info
	scans *int
}

func (u unaged) Info() deadletter.Info { return u.info }

func (unaged) Oldest(context.Context) (at time.Time, ok bool, err error) { return at, false, nil }

func (u unaged) Scan(ctx context.Context, from deadletter.From) (deadletter.Scan, error) {
	*u.scans++
	return u.Queue.Scan(ctx, from)
}

// If the broker does not report the age, the collector reads it from messages if ReadAges is set: once a minute, and
// never from a DLQ that bounds the number of reads.
func TestAnAgeIsRead(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		orders := c.Handle("orders", func(*message.Message) error { return errDeclined })
		q := orders.DeadLetterQueue()
		scans := 0
		collect := func(info deadletter.Info, system string, may bool) *prometheus.Registry {
			all, err := prom.NewDLQs(prom.DLQConfig{System: system, Queues: []deadletter.Queue{unaged{q, info, &scans}}, ReadAges: may})
			if err != nil {
				t.Fatal(err)
			}
			r := prometheus.NewPedanticRegistry()
			r.MustRegister(all)
			return r
		}
		age := func(seconds string) string {
			return `
# HELP redeliver_dlq_oldest_age_seconds Age of the oldest message in the DLQ.
# TYPE redeliver_dlq_oldest_age_seconds gauge
redeliver_dlq_oldest_age_seconds{dlq="` + q.Info().DLQ + `",group="billing",messaging_system="memory",origin="orders"} ` + seconds + "\n"
		}
		const name = "redeliver_dlq_oldest_age_seconds"
		r := collect(q.Info(), "memory", true)
		same(t, r, "", name) // there is no message to read
		if scans != 0 {
			t.Errorf("an empty DLQ was read %d times", scans)
		}
		for _, id := range []string{"1", "2"} {
			b.Publish("orders", message.NewMessage(id, nil))
			orders.Outcome(id)
			<-time.After(10 * time.Second)
		}
		same(t, r, age("20"), name)
		<-time.After(30 * time.Second)
		same(t, r, age("50"), name)
		if scans != 1 {
			t.Errorf("the DLQ was read %d times within a minute", scans)
		}
		<-time.After(time.Minute)
		if same(t, r, age("110"), name); scans != 2 {
			t.Errorf("the DLQ was read %d times in two minutes", scans)
		}
		same(t, collect(q.Info(), "memory", false), "", name)
		bounded := q.Info()
		bounded.MaxReads = 10
		if same(t, collect(bounded, "memory", true), "", name); scans != 2 {
			t.Error("a DLQ that may not be read often was read")
		}
		if same(t, collect(q.Info(), "rabbitmq", true), "", name); scans != 2 {
			t.Error("a DLQ was read on RabbitMQ, where a policy may limit the number of reads at any time")
		}
	})
}

func TestDLQsAreCollected(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		c := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
		orders := c.Handle("orders", func(*message.Message) error { return errDeclined })
		for _, id := range []string{"1", "2", "3"} {
			b.Publish("orders", message.NewMessage(id, nil))
			orders.Outcome(id)
		}
		q := orders.DeadLetterQueue()
		claim, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"})
		if err == nil {
			err = errors.Join(claim.Save(t.Context(), deadletter.Task{ID: "t", Kind: deadletter.KindReplay, Status: deadletter.StatusPaused}),
				claim.Save(t.Context(), deadletter.Task{ID: "u", Kind: deadletter.KindReplay, Status: deadletter.StatusDone, Counts: deadletter.Counts{Scanned: 9, Replayed: 5, Returned: 2}}), claim.Release(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		r := prometheus.NewPedanticRegistry()
		all, err := prom.NewDLQs(prom.DLQConfig{System: "memory", Queues: []deadletter.Queue{q}})
		if err != nil {
			t.Fatal(err)
		}
		r.MustRegister(all)
		name := q.Info().DLQ
		same(t, r, `
# HELP redeliver_dlq_messages Messages in the DLQ.
# TYPE redeliver_dlq_messages gauge
redeliver_dlq_messages{dlq="`+name+`",exact="true",group="billing",messaging_system="memory",origin="orders"} 3
# HELP redeliver_dlq_open_tasks Tasks on the DLQ that run or can be resumed.
# TYPE redeliver_dlq_open_tasks gauge
redeliver_dlq_open_tasks{dlq="`+name+`",group="billing",kind="replay",messaging_system="memory",origin="orders",status="paused"} 1
# HELP redeliver_dlq_task_messages Messages in all recorded tasks, by kind of the task and outcome.
# TYPE redeliver_dlq_task_messages gauge
redeliver_dlq_task_messages{dlq="`+name+`",group="billing",kind="replay",messaging_system="memory",origin="orders",outcome="returned"} 2
redeliver_dlq_task_messages{dlq="`+name+`",group="billing",kind="replay",messaging_system="memory",origin="orders",outcome="replayed"} 5
`, "redeliver_dlq_messages", "redeliver_dlq_open_tasks", "redeliver_dlq_task_messages")

		// A DLQ that does not answer affects neither the others nor other metrics, and the scrape ends.
		away := orders.DeadLetterQueue()
		both, err := prom.NewDLQs(prom.DLQConfig{System: "memory", Queues: []deadletter.Queue{q, observedtest.Silent{Queue: away, Name: "away"}}, Timeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		r = prometheus.NewPedanticRegistry()
		r.MustRegister(both)
		same(t, r, `
# HELP redeliver_dlq_up 1 if the broker answered, otherwise 0.
# TYPE redeliver_dlq_up gauge
redeliver_dlq_up{dlq="away",group="billing",messaging_system="memory",origin="orders"} 0
redeliver_dlq_up{dlq="`+name+`",group="billing",messaging_system="memory",origin="orders"} 1
`, "redeliver_dlq_up")
		if _, err := prom.NewDLQs(prom.DLQConfig{System: "memory", Queues: []deadletter.Queue{q, q}}); err == nil {
			t.Error("a DLQ that occurs twice was accepted, which would fail every scrape")
		}
	})
	if _, err := prom.NewDLQs(prom.DLQConfig{System: "kafka"}); err == nil {
		t.Error("a collector without queues was accepted")
	}
}
