package cli_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// The offsets of the consumer group that reads the retries of a share group decide how many wait.
func TestWaitingMessagesOfAShareGroup(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.url = strings.Replace(s.url, "kafka://", "kafka+share://", 1)
	s.fill()
	s.writeWaiting() // three messages in partition 0, and two in partition 1
	var settled kadm.Offsets
	settled.AddOffset("orders.billing.retry.1h", 0, 3, -1)
	if err := s.adm.CommitAllOffsets(t.Context(), "billing-retry", settled); err != nil {
		t.Fatal(err)
	}
	levels := s.waiting("list", "-o", "json").want(t, 0, "FIRST DUE is when").objects(t)
	if len(levels) != 2 || levels[0]["messages"] != 0.0 || levels[1]["level"] != "1h" || levels[1]["messages"] != 2.0 || levels[1]["group"] != "billing" {
		t.Errorf("%v", levels)
	}
	if rows := s.run("top", "--count", "1", "-o", "json").want(t, 0).objects(t); len(rows) != 1 || rows[0]["waiting"] != 2.0 || rows[0]["messages"] != 5.0 || rows[0]["problem"] != nil {
		t.Errorf("%v", rows)
	}
	e := s.exporter()
	e.await(
		`redeliver_dlq_messages{dlq="orders.billing.dlq",exact="true",group="billing",messaging_system="kafka",origin="orders"} 5`,
		`redeliver_waiting_messages{exact="true",group="billing",level="1h",messaging_system="kafka",origin="orders"} 2`,
	)
	e.stop().want(t, 0)
}
