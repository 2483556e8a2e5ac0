// Package backofftext parses a backoff in the form that all programs of redeliver accept on their command lines:
//
//	exponential[:BASE,MAX]   exponential:1s,60s, and then ,factor=3 and ,jitter=0.2
//	fixed:D                  fixed:1s
//	steps:D,D,...            steps:1s,5s,30s
//	rocketmq
package backofftext

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// Usage has the forms, for the help of a flag.
const Usage = "exponential:BASE,MAX[,factor=F][,jitter=SHARE], fixed:D, steps:D,D,... or rocketmq"

// Parse parses text. Its errors continue a sentence that begins with the name of a flag.
func Parse(text string) (redeliver.Backoff, error) {
	name, list, _ := strings.Cut(text, ":")
	var delays []time.Duration
	var exponential redeliver.ExponentialBackoff
	options := 0
	if list != "" {
		for s := range strings.SplitSeq(list, ",") {
			if option, value, ok := strings.Cut(s, "="); ok {
				options++
				if err := setOption(&exponential, option, value); err != nil {
					return nil, err
				}
				continue
			}
			d, err := time.ParseDuration(s)
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("has %q, which is not a positive duration: write for example 1s or 1m30s", s)
			}
			delays = append(delays, d)
		}
	}
	switch {
	case name == "exponential" && len(delays) == 0:
		return exponential, nil
	case name == "exponential" && len(delays) == 2:
		exponential.Base, exponential.Max = delays[0], delays[1]
		return exponential, nil
	case options > 0:
	case name == "fixed" && len(delays) == 1:
		return redeliver.Fixed(delays[0]), nil
	case name == "steps" && len(delays) > 0:
		return redeliver.Steps(delays...), nil
	case name == "rocketmq" && len(delays) == 0:
		return redeliver.RocketMQ(), nil
	}
	return nil, fmt.Errorf("is %q: must be %s", text, Usage)
}

// setOption sets a field of an exponential backoff that is not a duration. The policy checks the number.
func setOption(b *redeliver.ExponentialBackoff, option, value string) error {
	field, ok := map[string]*float64{"factor": &b.Factor, "jitter": &b.Jitter}[option]
	if !ok || *field != 0 {
		return fmt.Errorf("has %q: only factor=F and jitter=SHARE are options, of an exponential backoff and once each", option+"="+value)
	}
	number, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("has %q, whose value is not a number", option+"="+value)
	}
	*field = number
	return nil
}
