package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/mq"
)

// CloudFormation refuses a template without resources.
func TestNoTemplateWhereAllQueuesAreThere(t *testing.T) {
	t.Parallel()
	p := &mq.Plan{
		Origin: "orders", Places: []mq.Place{{Name: "orders", Kind: "queue", Exists: true}},
		OperatorPlaces: []mq.Place{{Name: "orders-dlq-state.fifo", Kind: "state", Exists: true}},
	}
	made := func() (out, errs string) {
		var o, e bytes.Buffer
		a := &app{printer: printer{Streams: Streams{Out: &o, Err: &e}}}
		if err := a.writePlan(&planned{formatters: sqsFormatters(p, "eu-west-1")}, &formatFlags{format: formatCloudFormation, role: forConsumer}); err != nil {
			t.Fatal(err)
		}
		return o.String(), e.String()
	}
	if out, errs := made(); out != "" || !strings.Contains(errs, "orders exists already") || !strings.Contains(errs, "there is no template") {
		t.Errorf("it prints %q and says %q", out, errs)
	}
	p.OperatorPlaces[0].Exists = false
	if out, errs := made(); !strings.Contains(out, `"State"`) || strings.Contains(errs, "there is no template") {
		t.Errorf("of one that is missing it prints %q and says %q", out, errs)
	}
}
