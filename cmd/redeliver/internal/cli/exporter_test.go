package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
)

// exporter is a redeliver exporter that runs in this process.
type exporter struct {
	s    *testKafka
	url  string
	stop func() ending
}

func (s *testKafka) exporter(args ...string) *exporter {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	ended := make(chan ending, 1)
	var out, errs buffer
	args = append([]string{"exporter", "-o", "json", "--broker", s.url, "--listen", "127.0.0.1:0", "--every", "1s"}, args...)
	go func() {
		code := cli.Run(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs, Env: func(string) string { return "" }, MaxClose: maxWait})
		ended <- ending{code, out.String(), errs.String()}
	}()
	e := &exporter{s: s}
	e.stop = sync.OnceValue(func() ending {
		cancel()
		select {
		case e := <-ended:
			return e
		case <-time.After(maxWait):
			s.t.Error("it does not end")
			return ending{code: -1}
		}
	})
	s.t.Cleanup(func() { e.stop() })
	var row struct {
		Metrics string `json:"metrics"`
	}
	s.await("it says where its metrics are", func() bool { return json.Unmarshal([]byte(out.String()), &row) == nil })
	e.url = row.Metrics
	return e
}

// await waits until the metrics have all of these series, and returns them.
func (e *exporter) await(series ...string) (text string) {
	e.s.t.Helper()
	defer func() {
		if e.s.t.Failed() {
			e.s.t.Logf("the metrics:\n%s", text)
		}
	}()
	e.s.await("the metrics have "+strings.Join(series, "\n"), func() bool {
		text = get(e.s.t, e.url)
		for _, want := range series {
			if !strings.Contains(text, want+"\n") {
				return false
			}
		}
		return true
	})
	return text
}

const exported = `{dlq="orders.billing.dlq",group="billing",messaging_system="kafka",origin="orders"}`

// The exporter counts what is in a DLQ, what waits, what nobody reads and what the origin has, and finds new DLQs.
func TestExporter(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	s.put(dead(9, 0, declined)) // the origin has the same records
	e := s.exporter()
	text := e.await(
		`redeliver_exporter_up{messaging_system="kafka"} 1`,
		`redeliver_exporter_omitted_dlqs{messaging_system="kafka"} 0`,
		`redeliver_dlq_up`+exported+` 1`,
		`redeliver_dlq_messages{dlq="orders.billing.dlq",exact="true",group="billing",messaging_system="kafka",origin="orders"} 6`,
		`redeliver_waiting_up{group="billing",messaging_system="kafka",origin="orders"} 1`,
		`redeliver_waiting_messages{exact="true",group="billing",level="hold",messaging_system="kafka",origin="orders"} 0`,
		`redeliver_origin_messages{group="billing",messaging_system="kafka",origin="orders"} 0`,
		`redeliver_doctor_findings{group="billing",kind="consumer",messaging_system="kafka",origin="orders"} 0`,
	)
	if !strings.Contains(text, "redeliver_dlq_oldest_age_seconds"+exported) || !strings.Contains(text, "go_goroutines") {
		t.Errorf("not all is exported:\n%s", text)
	}
	e.stop().want(t, 0)
}

// Beyond --max-dlqs, DLQs are only counted, and the log says so.
func TestExporterIsBounded(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("orders.audit.retry", "orders.audit.dlq")
	e := s.exporter("--max-dlqs", "1")
	text := e.await(`redeliver_exporter_omitted_dlqs{messaging_system="kafka"} 1`, `redeliver_dlq_up{dlq="orders.audit.dlq",group="audit",messaging_system="kafka",origin="orders"} 1`)
	if strings.Contains(text, "orders.billing.dlq") {
		t.Errorf("it exports more than one DLQ:\n%s", text)
	}
	e2 := s.exporter("--dlq", "orders.billing.dlq")
	if text := e2.await(`redeliver_dlq_up` + exported + ` 1`); strings.Contains(text, "orders.audit.dlq") {
		t.Errorf("it exports another DLQ than the named one:\n%s", text)
	}
	e.stop().want(t, 0)
}

// While the broker does not answer, old values disappear. They come back with its answers.
func TestExporterDropsOldValues(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.fill()
	e := s.exporter()
	e.await(`redeliver_dlq_up` + exported + ` 1`)
	silent := make(chan struct{})
	answer := sync.OnceFunc(func() { close(silent) })
	defer answer()
	s.broker.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.broker.KeepControl()
		s.broker.SleepControl(func() { <-silent })
		return nil, nil, false
	})
	if text := e.await(`redeliver_exporter_up{messaging_system="kafka"} 0`); strings.Contains(text, "redeliver_dlq") || strings.Contains(text, "redeliver_waiting") {
		t.Errorf("old values are still there:\n%s", text)
	}
	answer()
	e.await(`redeliver_exporter_up{messaging_system="kafka"} 1`, `redeliver_dlq_up`+exported+` 1`)
}

// A group whose rights or topics are missing is reported, and hides no other.
func TestExporterReportsDLQsThatItCannotOpen(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	e := s.exporter("--dlq", "orders.billing.dlq", "--dlq", "gone.dlq,topic=gone,group=billing")
	e.await(`redeliver_dlq_up`+exported+` 1`, `redeliver_dlq_up{dlq="gone.dlq",group="billing",messaging_system="kafka",origin="gone"} 0`)
}

func TestExporterRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--listen here": "--listen", "--every 1ms": "--every", "--timeout 0s": "--timeout", "--max-dlqs 0": "--max-dlqs",
	} {
		call{}.run(t, append([]string{"exporter", "--broker", "kafka://127.0.0.1:1"}, strings.Fields(args)...)...).want(t, 2, says)
	}
	call{}.run(t, "exporter", "--broker", "kafka://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
}

// A sidecar exports the same of its own topics.
func TestRunExportsItsDLQ(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	p := newProgram(t, func(w http.ResponseWriter, _ asked) { http.Error(w, "no such card", http.StatusUnprocessableEntity) })
	s.put(payments("a")...)
	first := s.handle("--http", p.URL)
	_ = s.dead(1)
	first.stop().want(t, 0)
	h := s.handle("--http", p.URL, "--health", "127.0.0.1:0", "--metrics")
	e := &exporter{s: s, url: h.healthOf(s) + "/metrics"}
	text := e.await(
		`redeliver_dlq_messages{dlq="payments.billing.dlq",exact="true",group="billing",messaging_system="kafka",origin="payments"} 1`,
		`redeliver_waiting_messages{exact="true",group="billing",level="hold",messaging_system="kafka",origin="payments"} 0`,
		`redeliver_exporter_up{messaging_system="kafka"} 1`,
	)
	if !strings.Contains(text, `redeliver_origin_messages{group="billing",messaging_system="kafka",origin="payments"}`) {
		t.Errorf("the lag is not exported:\n%s", text)
	}
	h.stop().want(t, 0)
}
