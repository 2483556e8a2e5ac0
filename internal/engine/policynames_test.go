package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
)

func TestPolicyNamesOfNothingAreRefused(t *testing.T) {
	t.Parallel()
	exists := func(name string) (bool, error) {
		switch name {
		case "mails":
			return true, nil
		case "secret":
			return false, errors.New("access denied")
		}
		return false, nil
	}
	policies := func(names ...string) map[string]redeliver.Policy {
		all := make(map[string]redeliver.Policy)
		for _, name := range names {
			all[name] = redeliver.Policy{}
		}
		return all
	}
	if err := CheckPolicyNames("topic", policies("orders", "mails", "secret"), []string{"orders"}, exists); err != nil {
		t.Errorf("names that are read, exist or cannot be checked: %v", err)
	}
	err := CheckPolicyNames("queue", policies("ordesr", "mials", "orders"), []string{"orders"}, exists)
	if !errors.Is(err, redeliver.ErrConfig) {
		t.Fatal(err)
	}
	for _, want := range []string{`Queues["mials"] is set`, `Queues["ordesr"] is set`, "queue ordesr does not exist", "reads orders"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
