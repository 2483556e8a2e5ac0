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
		"exponential":                            redeliver.Exponential(),
		"exponential:2s,90s":                     redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: 90 * time.Second},
		"exponential:2s,90s,factor=3,jitter=0.2": redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: 90 * time.Second, Factor: 3, Jitter: 0.2},
		"exponential:jitter=1":                   redeliver.ExponentialBackoff{Jitter: 1},
		"exponential:factor=1.5,2s,90s":          redeliver.ExponentialBackoff{Base: 2 * time.Second, Max: 90 * time.Second, Factor: 1.5},
		"fixed:1m30s":                            redeliver.Fixed(90 * time.Second),
		"steps:1s,5s":                            redeliver.Steps(time.Second, 5*time.Second),
		"rocketmq":                               redeliver.RocketMQ(),
	} {
		if got, err := backofftext.Parse(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %#v, %v, want %#v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                              "is \"\": must be " + backofftext.Usage,
		"linear:1s":                     "is \"linear:1s\": must be " + backofftext.Usage,
		"fixed":                         "is \"fixed\": must be " + backofftext.Usage,
		"fixed:1s,2s":                   "is \"fixed:1s,2s\": must be " + backofftext.Usage,
		"exponential:1s":                "is \"exponential:1s\": must be " + backofftext.Usage,
		"rocketmq:1s":                   "is \"rocketmq:1s\": must be " + backofftext.Usage,
		"fixed:1s,factor=2":             "is \"fixed:1s,factor=2\": must be " + backofftext.Usage,
		"exponential:1s,factor=2":       "is \"exponential:1s,factor=2\": must be " + backofftext.Usage,
		"exponential:factor=2,factor=3": "has \"factor=3\": only factor=F and jitter=SHARE are options, of an exponential backoff and once each",
		"exponential:base=2s":           "has \"base=2s\": only factor=F and jitter=SHARE are options, of an exponential backoff and once each",
		"exponential:factor=two":        "has \"factor=two\", whose value is not a number",
		"fixed:0s":                      "has \"0s\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,,5s":                  "has \"\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,-5s":                  "has \"-5s\", which is not a positive duration: write for example 1s or 1m30s",
		"steps:1s,5 bees":               "has \"5 bees\", which is not a positive duration: write for example 1s or 1m30s",
	} {
		if _, err := backofftext.Parse(text); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}
