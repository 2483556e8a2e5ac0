package engine_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A name that two subscriptions share would bring one of them the other's retries. Only a DLQ may be read by another
// subscription, and the same subscription may be listed twice.
func TestNamesOfSubscriptionsAreDistinct(t *testing.T) {
	orders := engine.Places{Origin: "orders", DLQ: "orders.dlq", Own: []string{"orders.retry", "orders.retry.1s"}}
	for name, c := range map[string]struct {
		other engine.Places
		want  []string
	}{
		"nothing":                  {engine.Places{Origin: "mails", DLQ: "mails.dlq", Own: []string{"mails.retry"}}, nil},
		"no DLQ":                   {engine.Places{Origin: "mails", Own: []string{"mails.retry"}}, nil},
		"the same subscription":    {orders, nil},
		"the DLQ":                  {engine.Places{Origin: "mails", DLQ: "orders.dlq"}, []string{"orders.dlq"}},
		"the retries":              {engine.Places{Origin: "mails", Own: []string{"orders.retry"}}, []string{"orders.retry"}},
		"a DLQ that is a level":    {engine.Places{Origin: "mails", DLQ: "orders.retry.1s"}, []string{"orders.retry.1s"}},
		"a reader of the DLQ":      {engine.Places{Origin: "orders.dlq", DLQ: "orders.dlq.dlq"}, nil},
		"a reader of the retries":  {engine.Places{Origin: "orders.retry", DLQ: "orders.retry.dlq"}, []string{"orders.retry"}},
		"retries in the origin":    {engine.Places{Origin: "mails", Own: []string{"orders"}}, []string{"orders"}},
		"a DLQ that is the origin": {engine.Places{Origin: "mails", DLQ: "orders"}, nil},
		"another name of the same": {engine.Places{Origin: "arn:orders.retry", Read: "orders.retry"}, []string{"orders.retry"}},
	} {
		for _, pair := range [][2]engine.Places{{orders, c.other}, {c.other, orders}} {
			got := refusedNames(engine.CheckDistinct("kafka", named(pair[0]), slices.Values([]named{named(pair[1])})))
			if !slices.Equal(got, c.want) {
				t.Errorf("%s, %s beside %s: refused %q, want %q", name, pair[0].Origin, pair[1].Origin, got, c.want)
			}
		}
	}
}

func TestNamesOfASubscriptionAreDistinct(t *testing.T) {
	for _, p := range []engine.Places{
		{Origin: "orders", DLQ: "orders"},
		{Origin: "orders", DLQ: "orders.retry", Own: []string{"orders.retry"}},
		{Origin: "orders", Own: []string{"orders.retry", "orders.retry"}},
		{Origin: "arn:orders", Read: "orders", DLQ: "orders"},
	} {
		if got := refusedNames(engine.CheckDistinct("kafka", named(p), slices.Values[[]named](nil))); len(got) != 1 {
			t.Errorf("%+v: refused %q, want one", p, got)
		}
	}
}

type named engine.Places

func (n named) Places() engine.Places { return engine.Places(n) }

func refusedNames(err error) (names []string) {
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); ok {
		for _, p := range refused.Problems {
			names = append(names, p.Value.(string))
		}
	}
	return names
}
