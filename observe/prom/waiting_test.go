package prom_test

import (
	"context"
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/observe/prom"
)

// watch registers a collector of one subscription with these answers.
func watch(t *testing.T, w prom.Waiting) *prometheus.Registry {
	t.Helper()
	all, err := prom.NewWaiting(prom.WaitingConfig{System: "kafka", Subscriptions: []prom.Waiting{w}, Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(all)
	return r
}

// Waiting messages are counted by level, and overdue ones by the first of them. The broker is
// asked at an interval, and the latest answer is reported.
func TestWaitingAndOverdueMessagesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		asked, empty := 0, false
		r := watch(t, prom.Waiting{Origin: "orders", Group: "billing", Levels: func(context.Context) ([]deadletter.WaitingLevel, error) {
			asked++
			if empty {
				return []deadletter.WaitingLevel{{Level: 10 * time.Second, Place: "orders.billing.retry.10s", Exact: true}}, nil
			}
			return []deadletter.WaitingLevel{
				{Place: "orders.billing.retry", Depth: 1, Exact: true, Due: began.Add(-time.Minute)},
				{Level: 10 * time.Second, Place: "orders.billing.retry.10s", Depth: 7, Due: began.Add(-7 * time.Second)},
				{Level: time.Minute, Place: "orders.billing.retry.1m", Depth: 2, Exact: true, Due: began.Add(time.Second)},
				{Level: time.Hour, Place: "orders.billing.retry.1h", Depth: 6}, // its due time is unknown
				{Level: 2 * time.Hour, Place: "orders.billing.retry.2h", Depth: -1},
			}, nil
		}})
		want := `
# HELP redeliver_waiting_messages Messages that wait for a retry, by level.
# TYPE redeliver_waiting_messages gauge
redeliver_waiting_messages{exact="true",group="billing",level="hold",messaging_system="kafka",origin="orders"} 1
redeliver_waiting_messages{exact="false",group="billing",level="10s",messaging_system="kafka",origin="orders"} 7
redeliver_waiting_messages{exact="true",group="billing",level="1m",messaging_system="kafka",origin="orders"} 2
redeliver_waiting_messages{exact="false",group="billing",level="1h",messaging_system="kafka",origin="orders"} 6
# HELP redeliver_waiting_overdue_seconds How long the first message on a level has been due; 0 if it is not due yet.
# TYPE redeliver_waiting_overdue_seconds gauge
redeliver_waiting_overdue_seconds{group="billing",level="hold",messaging_system="kafka",origin="orders"} 60
redeliver_waiting_overdue_seconds{group="billing",level="10s",messaging_system="kafka",origin="orders"} 7
redeliver_waiting_overdue_seconds{group="billing",level="1m",messaging_system="kafka",origin="orders"} 0
# HELP redeliver_waiting_up 1 if the broker answered all requests about the subscription, otherwise 0.
# TYPE redeliver_waiting_up gauge
redeliver_waiting_up{group="billing",messaging_system="kafka",origin="orders"} 1
`
		names := []string{"redeliver_waiting_messages", "redeliver_waiting_overdue_seconds", "redeliver_waiting_up", "redeliver_doctor_findings"}
		same(t, r, want, names...)
		<-time.After(59 * time.Second)
		same(t, r, want, names...) // the overdue message may have left
		if asked != 1 {
			t.Errorf("the broker was asked %d times within Interval", asked)
		}
		empty = true
		<-time.After(time.Second)
		same(t, r, `
# HELP redeliver_waiting_messages Messages that wait for a retry, by level.
# TYPE redeliver_waiting_messages gauge
redeliver_waiting_messages{exact="true",group="billing",level="10s",messaging_system="kafka",origin="orders"} 0
# HELP redeliver_waiting_overdue_seconds How long the first message on a level has been due; 0 if it is not due yet.
# TYPE redeliver_waiting_overdue_seconds gauge
redeliver_waiting_overdue_seconds{group="billing",level="10s",messaging_system="kafka",origin="orders"} 0
`, "redeliver_waiting_messages", "redeliver_waiting_overdue_seconds")
	})
}

// Findings of a doctor are counted by kind, and a kind without findings is 0. A broker that does not answer in time is
// reported as such, and does not hide other values.
func TestFindingsAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := false
		r := watch(t, prom.Waiting{
			Origin: "orders", Group: "billing",
			Doctor: func(context.Context) (*doctor.Diagnosis, error) {
				backlog := int64(12)
				d := &doctor.Diagnosis{Origin: "orders", Group: "billing", Backlog: &backlog}
				d.Add(doctor.SymptomOrphan, "orders.billing.retry.2h", "is a level of an older policy")
				d.Add(doctor.SymptomOrphan, "orders.billing.retry.3h", "is a level of an older policy")
				d.Add(doctor.SymptomConsumer, "billing", "nobody reads")
				d.AddPause(&redeliver.PauseMark{Reason: "the bank is closed"}, nil)
				return d, nil
			},
			Levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) {
				if away {
					<-ctx.Done()
				}
				return nil, ctx.Err()
			},
		})
		findings := `
# HELP redeliver_doctor_findings Problems that Doctor found, by kind.
# TYPE redeliver_doctor_findings gauge
redeliver_doctor_findings{group="billing",kind="consumer",messaging_system="kafka",origin="orders"} 1
redeliver_doctor_findings{group="billing",kind="late",messaging_system="kafka",origin="orders"} 0
redeliver_doctor_findings{group="billing",kind="missing",messaging_system="kafka",origin="orders"} 0
redeliver_doctor_findings{group="billing",kind="orphan",messaging_system="kafka",origin="orders"} 2
redeliver_doctor_findings{group="billing",kind="paused",messaging_system="kafka",origin="orders"} 1
redeliver_doctor_findings{group="billing",kind="retention",messaging_system="kafka",origin="orders"} 0
redeliver_doctor_findings{group="billing",kind="settings",messaging_system="kafka",origin="orders"} 0
# HELP redeliver_origin_messages Estimate of the origin's messages that the group has not handled.
# TYPE redeliver_origin_messages gauge
redeliver_origin_messages{group="billing",messaging_system="kafka",origin="orders"} 12
`
		up := func(v string) string {
			return `
# HELP redeliver_waiting_up 1 if the broker answered all requests about the subscription, otherwise 0.
# TYPE redeliver_waiting_up gauge
redeliver_waiting_up{group="billing",messaging_system="kafka",origin="orders"} ` + v + "\n"
		}
		same(t, r, findings+up("1"), "redeliver_doctor_findings", "redeliver_origin_messages", "redeliver_waiting_up")
		away = true
		<-time.After(time.Minute)
		same(t, r, findings+up("0"), "redeliver_doctor_findings", "redeliver_origin_messages", "redeliver_waiting_up", "redeliver_waiting_messages")
	})
}

// A paused group had no series, because its kind of finding was missing in the list of the exported ones.
func TestAllKindsOfFindingsAreExported(t *testing.T) {
	source, err := os.ReadFile("../../doctor/doctor.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`SymptomKind = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		want = append(want, m[1])
	}
	r := watch(t, prom.Waiting{Origin: "orders", Group: "billing", Doctor: func(context.Context) (*doctor.Diagnosis, error) {
		return &doctor.Diagnosis{}, nil
	}})
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "kind" {
					got = append(got, l.GetValue())
				}
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if len(want) < 7 || !slices.Equal(got, want) {
		t.Errorf("the kinds %q are exported, and package doctor has %q", got, want)
	}
}

func TestInvalidWaitingConfigsAreRefused(t *testing.T) {
	ask := func(context.Context) ([]deadletter.WaitingLevel, error) { return nil, nil }
	for name, cfg := range map[string]prom.WaitingConfig{
		"no system":  {Subscriptions: []prom.Waiting{{Origin: "orders", Levels: ask}}},
		"nothing":    {System: "kafka"},
		"no origin":  {System: "kafka", Subscriptions: []prom.Waiting{{Levels: ask}}},
		"none asked": {System: "kafka", Subscriptions: []prom.Waiting{{Origin: "orders"}}},
		"twice":      {System: "kafka", Subscriptions: []prom.Waiting{{Origin: "orders", Levels: ask}, {Origin: "orders", Levels: ask}}},
	} {
		if _, err := prom.NewWaiting(cfg); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
