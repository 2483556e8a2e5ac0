// Package backofftext parses a backoff in the form that all programs of redeliver accept on their command lines:
//
//	exponential[:BASE,MAX]   exponential:1s,60s
//	fixed:D                  fixed:1s
//	steps:D,D,...            steps:1s,5s,30s
//	rocketmq
package backofftext

import (
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// Parse parses text. Its errors continue a sentence that begins with the name of a flag.
func Parse(text string) (redeliver.Backoff, error) {
	name, list, _ := strings.Cut(text, ":")
	var delays []time.Duration
	if list != "" {
		for s := range strings.SplitSeq(list, ",") {
			d, err := time.ParseDuration(s)
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("has %q, which is not a positive duration: write for example 1s or 1m30s", s)
			}
			delays = append(delays, d)
		}
	}
	switch {
	case name == "exponential" && len(delays) == 0:
		return redeliver.Exponential(), nil
	case name == "exponential" && len(delays) == 2:
		return redeliver.ExponentialBackoff{Base: delays[0], Max: delays[1]}, nil
	case name == "fixed" && len(delays) == 1:
		return redeliver.Fixed(delays[0]), nil
	case name == "steps" && len(delays) > 0:
		return redeliver.Steps(delays...), nil
	case name == "rocketmq" && len(delays) == 0:
		return redeliver.RocketMQ(), nil
	default:
		return nil, fmt.Errorf("is %q: must be exponential:BASE,MAX, fixed:D, steps:D,D,... or rocketmq", text)
	}
}
