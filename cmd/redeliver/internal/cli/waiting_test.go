package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/driver"
)

// whose are the flags for the topic and group of the waiting messages.
var whose = []string{"--topic", "orders", "--group", "billing"}

// writeWaiting writes five messages of two causes to the level 1h. They are due one hour after day, so they are late.
func (s *testKafka) writeWaiting() {
	s.t.Helper()
	s.topics("orders.billing.retry.1h")
	compact, appendTime := "compact", "LogAppendTime"
	if _, err := s.adm.CreateTopic(s.t.Context(), 1, 1, map[string]*string{"cleanup.policy": &compact, "message.timestamp.type": &appendTime}, "orders.billing.control"); err != nil {
		s.t.Fatal(err)
	}
	for n := range 5 {
		st := redeliver.State{
			ID: fmt.Sprintf("order-%04d", n), Origin: "orders", Group: "billing", Attempts: 1, Due: day.Add(time.Hour + time.Duration(n)*time.Minute),
			FirstFailed: day, LastFailed: day, Error: fmt.Sprintf("card %d declined", n), ErrorType: "*bank.Error", FirstError: "the bank is down",
			Source: redeliver.Source{Known: true, Partition: int32(n % 2), Offset: int64(n), Timestamp: day},
		}
		if n > 2 {
			st.Error = "no route to the bank"
		}
		rec := &kgo.Record{
			Topic: "orders.billing.retry.1h", Partition: int32(n % 2), Key: fmt.Appendf(nil, "customer-%d", n), Value: fmt.Appendf(nil, `{"order":%d}`, n), Timestamp: day,
			Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("acme")}, {Key: kafka.UUIDHeader, Value: []byte(st.ID)}},
		}
		for _, h := range driver.AppendStateHeaders(st, nil) {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		s.put(rec)
	}
}

func (s *testKafka) waiting(args ...string) ending {
	s.t.Helper()
	return s.run(append(append([]string{"waiting"}, args...), whose...)...)
}

func TestWaitingListSaysHowMuchWaits(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.writeWaiting()
	levels := s.waiting("list", "-o", "json").want(t, 0).objects(t)
	if len(levels) != 2 || levels[0]["place"] != back || levels[0]["messages"] != 0.0 || levels[0]["due"] != nil || levels[0]["late"] != nil {
		t.Fatalf("%v", levels)
	}
	hour := levels[1]
	if hour["level"] != "1h" || hour["messages"] != 5.0 || hour["exact"] != true || hour["due"] != day.Add(time.Hour).Format(time.RFC3339) || hour["late"] == nil ||
		hour["oldest"] != day.Format(time.RFC3339) || hour["origin"] != "orders" || hour["group"] != "billing" {
		t.Errorf("%v", hour)
	}
	all := s.waiting("list", "--messages", "-o", "json").want(t, 0).objects(t)
	if len(all) != 5 || all[0]["id"] != "order-0000" || all[0]["level"] != "1h" || all[0]["body_text"] != `{"order":0}` || all[0]["attempts"] != 1.0 {
		t.Errorf("%v", all)
	}
	if got := s.waiting("list", "--error-text", "ROUTE", "-o", "json").want(t, 0).objects(t); len(got) != 2 || got[0]["fingerprint"] != got[1]["fingerprint"] || got[0]["fingerprint"] == all[0]["fingerprint"] {
		t.Errorf("%v", got)
	}
	if got := s.waiting("list", "--fingerprint", all[0]["fingerprint"].(string), "--limit", "2", "-o", "json").want(t, 0, "see --limit").objects(t); len(got) != 2 {
		t.Errorf("%v", got)
	}
	for _, flag := range []string{"--level=30s", "--key=nobody", "--id=7", "--header=tenant=bolt", "--error-type=x"} {
		if got := s.waiting("list", flag, "-o", "json").want(t, 0, "no waiting message").objects(t); len(got) > 0 {
			t.Errorf("%s: %v", flag, got)
		}
	}
	if text := s.waiting("list").want(t, 0); !strings.Contains(text.out, "1h") || !strings.Contains(text.out, "PLACE") {
		t.Errorf("%s", text.out)
	}
	s.run("waiting", "list", "--topic", "payments", "--group", "billing").want(t, 1, "has never subscribed")
}

func TestACommandIsSentAndACancelIsNamed(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.writeWaiting()
	before := s.everything()
	for args, matched := range map[string]float64{"cancel --error-text declined": 3, "release --level 1h": 5, "release --all": 5, "release --level 10m": 0} {
		dry := s.waiting(append(strings.Fields(args), "--dry-run", "-o", "json")...).want(t, 0).object(t)
		if dry["scanned"] != 5.0 || dry["matched"] != matched || dry["kind"] != strings.Fields(args)[0] {
			t.Errorf("%s: %v", args, dry)
		}
	}
	s.waiting("cancel", "--all", "--note", "test").want(t, 2, "--yes")
	if no := s.with(call{terminal: true, in: strings.NewReader("n\n")}, append([]string{"waiting", "cancel", "--all", "--note", "test"}, whose...)...); no.code != 1 || !strings.Contains(no.err, "5 messages") {
		t.Errorf("%+v", no)
	}
	for topic, n := range s.everything() {
		if n != before[topic] {
			t.Errorf("%d records were written to %s", n-before[topic], topic)
		}
	}

	sent := s.waiting("release", "--level", "1h", "--note", "the bank is back", "--yes", "-o", "json").want(t, 0, "sent: ").object(t)
	cancel := s.waiting("cancel", "--all", "--note", "not any more", "--yes", "-o", "json").want(t, 0).object(t)
	if sent["kind"] != "release" || sent["who"] != "ann@ops-1" || sent["note"] != "the bank is back" || sent["filter"] == nil {
		t.Errorf("%v", sent)
	}
	if cancel["kind"] != "cancel" || cancel["filter"] != nil {
		t.Errorf("%v", cancel)
	}
	s.waiting("cancel", "--header", "tenant=acme", "--note", "the tenant is gone", "--yes").want(t, 0)
	all := s.waiting("list").want(t, 0, "ann@ops-1 has cancelled all messages that failed before ", ": not any more (command "+cancel["id"].(string)+", until ",
		`has cancelled messages that match {"filter":{"headers":{"tenant":"acme"}}} that failed before `)
	if strings.Contains(all.err, sent["id"].(string)) {
		t.Errorf("a release is no cancel: %s", all.err)
	}
	if _, err := s.adm.DeleteTopic(t.Context(), "orders.billing.control"); err != nil {
		t.Fatal(err)
	}
	if none := s.waiting("list").want(t, 0); strings.Contains(none.err, "cancelled") {
		t.Errorf("without a control topic: %s", none.err)
	}
	s.waiting("release", "--all", "--note", "test", "--yes", "-o", "json").want(t, 0, "sent: ") // creates the topic
	if n := s.everything()["orders.billing.control"]; n != 1 {
		t.Errorf("the control topic has %d records", n)
	}
}

// The documented fields of docs/reference/waiting.md exist under these names.
func TestWaitingSchema(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.writeWaiting()
	command := "created expires filter group id kind note origin who"
	for _, at := range []struct{ args, want string }{
		{"list", "broker exact group messages origin place"},
		{"list --messages", "attempts body body_text due error error_type fingerprint first_error first_failed group headers id key key_text last_failed level origin place position replays time"},
		{"release --all --dry-run", "dry_run group kind matched origin scanned"},
		{"cancel --id 7 --note test --yes", command},
	} {
		text := s.waiting(append(strings.Fields(at.args), "--output", "jsonl")...).want(t, 0).out
		var v map[string]any
		if err := json.Unmarshal([]byte(text[:strings.IndexByte(text, '\n')]), &v); err != nil {
			t.Fatal(err)
		}
		want := strings.Fields(at.want)
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(v)); !slices.Equal(got, want) {
			t.Errorf("%s: fields %v, want %v", at.args, got, want)
		}
	}
}

func TestWrongCallsOfWaiting(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"waiting nosuch", "waiting list", "waiting list --topic orders", "waiting list --topic orders --group billing --limit -1",
		"waiting list --topic orders --group billing --level 90s",
		"waiting list --topic orders --group billing --header tenant",
		"waiting release --topic orders --group billing --note test --yes", "waiting release --topic orders --group billing --all --yes",
		"waiting cancel --topic orders --group billing --all --id 7 --note test --yes", "waiting cancel --topic orders --group billing --all --note test",
		"waiting cancel --topic orders --group billing --all --note test --yes --rate 5",
		"waiting release --topic orders --group billing --id 7 --note test --yes",
		"waiting list --topic orders --group billing --broker sqs+http://127.0.0.1:1",
	} {
		args, given := strings.Fields(args), args
		if !strings.Contains(given, "--broker") {
			args = append(args, "--broker", "kafka://127.0.0.1:1")
		}
		got := call{}.run(t, args...).want(t, 2, "redeliver: ", "--help")
		if got.out != "" {
			t.Errorf("%s: stdout has %q", args, got.out)
		}
	}
}

// A release on RabbitMQ is refused if it could not find the levels, or could not do what the flags request.
func TestWrongReleasesOnRabbitMQ(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"waiting release --topic orders --all --note test --yes":                     "--management-url",
		"waiting release --topic orders --level 1h --note test --yes --group emails": "--group",
	} {
		call{}.run(t, append(strings.Fields(args), "--broker", "amqp://127.0.0.1:1")...).want(t, 2, want)
	}
	levels := []string{"waiting", "release", "--topic", "orders", "--level", "1h", "--level", "30s", "--level", "1h", "--note", "test", "--yes"}
	call{}.run(t, append(levels, "--broker", "amqp://127.0.0.1:1")...).want(t, 1, "127.0.0.1:1")
}
