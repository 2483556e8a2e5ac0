package cli_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// springs returns a record as @RetryableTopic writes it to a retry topic or to its DLT.
func springs(topic string, n int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: 0, Key: []byte("k"), Value: fmt.Appendf(nil, "order %d", n), Timestamp: day, Headers: []kgo.RecordHeader{
		{Key: "tenant", Value: []byte("acme")},
		{Key: "kafka_original-topic", Value: []byte("orders")},
		{Key: "kafka_original-partition", Value: binary.BigEndian.AppendUint32(nil, 1)},
		{Key: "kafka_original-offset", Value: binary.BigEndian.AppendUint64(nil, uint64(n))},
		{Key: "kafka_dlt-original-consumer-group", Value: []byte("billing")},
		{Key: "kafka_exception-cause-fqcn", Value: []byte("java.net.SocketTimeoutException")},
		{Key: "kafka_exception-message", Value: []byte("Read timed out")},
		{Key: "retry_topic-attempts", Value: binary.BigEndian.AppendUint32(nil, 3)},
	}}
}

// The commands of docs/how-to/move-from-spring.md do what that page says.
func TestMovingFromSpring(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("orders-retry-1000", "orders-dlt")
	s.put(springs("orders-retry-1000", 1), springs("orders-retry-1000", 2), springs("orders-dlt", 3), springs("orders-dlt", 4))
	var dealt kadm.Offsets
	dealt.Add(kadm.Offset{Topic: "orders-retry-1000", Partition: 0, At: 1, LeaderEpoch: -1})
	if err := s.adm.CommitAllOffsets(t.Context(), "billing-retry-1000", dealt); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../../docs/how-to/move-from-spring.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, command := range regexp.MustCompile(`redeliver dlq (\w+ orders-[^\n`+"`"+`]+)`).FindAllStringSubmatch(string(text), -1) {
		args := append([]string{"dlq"}, regexp.MustCompile(`'[^']*'|\S+`).FindAllString(command[1], -1)...)
		for i, a := range args {
			args[i] = strings.Trim(a, "'")
		}
		verb := args[1]
		if verb == "replay" {
			args = append(args, "--yes")
		}
		got := s.run(append(args, "-o", "json")...).want(t, 0)
		seen[verb+" "+args[2]]++
		switch verb + " " + args[2] {
		case "show orders-retry-1000": // Spring has processed the first of the two
			if all := got.objects(t); len(all) != 1 || all[0]["body_text"] != "order 2" || all[0]["filler"] != "spring-kafka" {
				t.Errorf("on the retry topic are %v", all)
			}
		case "groups orders-dlt":
			if all := got.objects(t); len(all) != 1 || all[0]["count"] != 2.0 || all[0]["error_type"] != "java.net.SocketTimeoutException" || all[0]["error"] != "Read timed out" {
				t.Errorf("the causes are %v", all)
			}
		case "replay orders-retry-1000", "replay orders-dlt":
			if task := got.object(t); task["replay_to"] != back || task["status"] != "done" {
				t.Errorf("%v", task)
			}
		default:
			t.Errorf("the page says %q, which this test does not expect", command[0])
		}
	}
	if len(seen) != 4 {
		t.Fatalf("the page says %v: this test does not read it", seen)
	}
	bodies := make(map[string]bool)
	for _, r := range s.records(back, 3) {
		bodies[string(r.Value)] = true
		for _, h := range r.Headers {
			if strings.HasPrefix(h.Key, "kafka_") || strings.HasPrefix(h.Key, "retry_topic-") {
				t.Errorf("%s comes back with %s", r.Value, h.Key)
			}
		}
	}
	if fmt.Sprint(bodies) != "map[order 2:true order 3:true order 4:true]" {
		t.Errorf("on the retry topic are %v", bodies)
	}
}
