package backofftext_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/backofftext"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]redeliver.Backoff{
		"exponential":        redeliver.Exponential(),
		"exponential:2s,90s": redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: 90 * time.Second},
		"fixed:1m30s":        redeliver.Fixed(90 * time.Second),
		"steps:1s,5s":        redeliver.Steps(time.Second, 5*time.Second),
		"rocketmq":           redeliver.RocketMQ(),
	} {
		if got, err := backofftext.Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, %v, want %#v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                "is \"\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"linear:1s":       "is \"linear:1s\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"fixed":           "is \"fixed\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"fixed:1s,2s":     "is \"fixed:1s,2s\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"exponential:1s":  "is \"exponential:1s\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"rocketmq:1s":     "is \"rocketmq:1s\": must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq",
		"fixed:0s":        "has \"0s\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,,5s":    "has \"\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,-5s":    "has \"-5s\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,5 bees": "has \"5 bees\", which is not a positive duration: write for example 1s or 1m30s",
	} {
		if _, err := backofftext.Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
