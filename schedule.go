package redeliver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/limits"
)

// Bounds of the schedule in a header. A schedule beyond them is neither written nor accepted.
const (
	maxScheduleBytes   = 256
	maxScheduleRetries = 10_000
	// scheduleVersion begins the text. A text that begins otherwise was written by another version, and is a finding.
	scheduleVersion = "1"
)

// Schedule returns the policy's retries, delays and MaxAge as text. Every waiting message has it in the header redeliver-policy,
// after the fingerprint, so that the same schedule decides about its retries after a deploy with another policy. See
// [Policy.WithSchedule].
//
//	1;3;1s,2s,4s,8s;j1s        Exponential(): 3 retries, and up to 1 s of jitter
//	1;288;5m*289               RocketMQHTTP(): the same wait many times
//	1;5;10s*4;i2;a24h          2 of the 5 immediate, and a MaxAge of a day
//
// It lists one more wait than there are delayed retries, for a message that is postponed when it has no retries left. If it lists
// fewer, the retries end there. It has no Timeout, Order, MaxCrashes, Levels or functions: those of the running process
// apply. The text is empty if the Backoff is no [DelayLister], if it would have more than 256 bytes or 10,000 retries, or if a
// wait is invalid. Then the policy of the process that runs the message decides.
func (p Policy) Schedule() string {
	p = p.WithDefaults()
	listed, ok := p.Backoff.(DelayLister)
	n := retries(p.MaxRetries)
	if !ok || n > maxScheduleRetries {
		return ""
	}
	delays, jitter := listed.Delays(max(0, n-p.Immediate) + 1)
	b := append(make([]byte, 0, 64), scheduleVersion...)
	b = strconv.AppendInt(append(b, ';'), int64(n), 10)
	sep := byte(';')
	for i := 0; i < len(delays) && len(b) <= maxScheduleBytes; sep = ',' {
		same := i + 1
		for same < len(delays) && delays[same] == delays[i] {
			same++
		}
		b = append(append(b, sep), limits.ShortDuration(delays[i])...)
		if same-i > 1 {
			b = strconv.AppendInt(append(b, '*'), int64(same-i), 10)
		}
		i = same
	}
	if p.Immediate > 0 {
		b = strconv.AppendInt(append(b, ";i"...), int64(p.Immediate), 10)
	}
	if jitter > 0 {
		b = append(append(b, ";j"...), limits.ShortDuration(jitter)...)
	}
	if p.MaxAge > 0 {
		b = append(append(b, ";a"...), limits.ShortDuration(p.MaxAge)...)
	}
	if checkSchedule(string(b)) != nil { // too long, or a user's Backoff lists invalid waits
		return ""
	}
	return string(b)
}

// WithSchedule returns the policy with MaxRetries, Immediate, Backoff and MaxAge of a [Policy.Schedule]. ok is false,
// and the policy is unchanged, for a text that is not a schedule.
//
// If a Class has a larger MaxRetries, the last listed wait is repeated. The jitter is uniform, like that of Exponential.
func (p Policy) WithSchedule(schedule string) (under Policy, ok bool) {
	s, err := parseSchedule(schedule)
	if err != nil {
		return p, false
	}
	p.MaxRetries, p.Immediate, p.MaxAge, p.Backoff = s.retries, s.immediate, s.maxAge, &s
	if s.retries == 0 {
		p.MaxRetries = NoRetries
	}
	return p, true
}

// schedule is a parsed schedule. Delay parses the text of the waits again, because each message needs only one of them.
type schedule struct {
	retries, immediate int
	waits              string
	jitter, maxAge     time.Duration
	ends               bool // no retry after the listed waits
}

// Delay implements [Backoff].
func (s *schedule) Delay(n int, draw float64) (d time.Duration, ok bool) {
	left := max(0, n)
	for rest, more := s.waits, true; more; {
		var listed string
		listed, rest, more = strings.Cut(rest, ",")
		wait, times, err := parseRepeated(listed)
		if err != nil {
			return 0, false // impossible: parseSchedule has checked it
		}
		d = wait
		if left < times {
			return d + time.Duration(draw*float64(s.jitter)), true
		}
		left -= times
	}
	return d + time.Duration(draw*float64(s.jitter)), !s.ends
}

// Delays implements [DelayLister].
func (s *schedule) Delays(n int) ([]time.Duration, time.Duration) {
	var delays []time.Duration
	for i := range n {
		d, ok := s.Delay(i, 0)
		if !ok {
			break
		}
		delays = append(delays, d)
	}
	return delays, s.jitter
}

func checkSchedule(text string) error {
	_, err := parseSchedule(text)
	return err
}

// parseSchedule parses a schedule, and returns an error for values that no policy may have.
func parseSchedule(text string) (s schedule, err error) {
	if len(text) > maxScheduleBytes {
		return s, fmt.Errorf("is longer than %d bytes", maxScheduleBytes)
	}
	version, rest, _ := strings.Cut(text, ";")
	if version != scheduleVersion {
		return s, fmt.Errorf("is not a schedule of version %s", scheduleVersion)
	}
	count, rest, _ := strings.Cut(rest, ";")
	if s.retries, err = parseCount(count, 0, maxScheduleRetries); err != nil {
		return s, fmt.Errorf("has %w retries", err)
	}
	waits, options, more := strings.Cut(rest, ";")
	s.waits = waits
	seen := ""
	for more {
		var o string
		if o, options, more = strings.Cut(options, ";"); o == "" || strings.Contains(seen, o[:1]) {
			return s, fmt.Errorf("has an option that is empty or given twice")
		}
		seen += o[:1]
		switch o[0] {
		case 'i':
			s.immediate, err = parseCount(o[1:], 0, s.retries)
		case 'j':
			s.jitter, err = parseWait(o[1:])
		case 'a':
			s.maxAge, err = parseAge(o[1:])
		default:
			err = fmt.Errorf("an unknown option")
		}
		if err != nil {
			return s, fmt.Errorf("has %w in %q", err, limits.Cut(o, 32))
		}
	}
	return s, s.checkWaits()
}

func (s *schedule) checkWaits() error {
	listed, needed := 0, s.retries-s.immediate+1
	for text := range strings.SplitSeq(s.waits, ",") {
		wait, times, err := parseRepeated(text)
		switch {
		case err != nil:
			return fmt.Errorf("has %w in %q", err, limits.Cut(text, 32))
		case wait > MaxWait-s.jitter:
			return fmt.Errorf("has a wait of %s, with the jitter longer than %s", wait, MaxWait)
		}
		if listed += times; listed > needed {
			return fmt.Errorf("has more waits than its %d retries need", s.retries)
		}
	}
	s.ends = listed < needed
	return nil
}

// parseRepeated parses a wait and the number of its repetitions: 5m*289.
func parseRepeated(listed string) (wait time.Duration, times int, err error) {
	text, count, many := strings.Cut(listed, "*")
	times = 1
	if many {
		if times, err = parseCount(count, 2, maxScheduleRetries+1); err != nil {
			return 0, 0, err
		}
	}
	wait, err = parseWait(text)
	return wait, times, err
}

func parseCount(text string, minValue, maxValue int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < minValue || n > maxValue || !startsWithDigit(text) {
		return 0, fmt.Errorf("no number from %d to %d", minValue, maxValue)
	}
	return n, nil
}

func parseWait(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || d > MaxWait || !startsWithDigit(text) {
		return 0, fmt.Errorf("no wait from 1ms to %s", MaxWait)
	}
	return d, nil
}

func parseAge(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Millisecond || !startsWithDigit(text) {
		return 0, fmt.Errorf("no age from 1ms on")
	}
	return d, nil
}

// startsWithDigit reports whether a number or a duration begins with a digit, and so has no sign.
func startsWithDigit(text string) bool { return text != "" && text[0] >= '0' && text[0] <= '9' }

// fingerprintBytes is the length of a fingerprint. In redeliver-policy a schedule may follow it, after a space.
const fingerprintBytes = 16

// appendPolicy writes the value of redeliver-policy.
func appendPolicy(b []byte, s *State) []byte {
	b = append(b, limits.Cut(s.Policy, maxPolicy)...)
	if s.Schedule != "" && len(s.Schedule) <= maxScheduleBytes && isFingerprint(s.Policy) {
		b = append(append(b, ' '), s.Schedule...)
	}
	return b
}

func isFingerprint(s string) bool {
	return len(s) == fingerprintBytes && !slices.ContainsFunc([]byte(s), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// policy reads the value of redeliver-policy.
func (p *parser) policy(h Header) (fingerprint, schedule string) {
	if len(h.Value) > fingerprintBytes && h.Value[fingerprintBytes] == ' ' && isFingerprint(h.Value[:fingerprintBytes]) {
		fingerprint, schedule = h.Value[:fingerprintBytes], h.Value[fingerprintBytes+1:]
		if err := checkSchedule(schedule); err != nil {
			p.addFinding(h, "its schedule "+err.Error()+"; the running policy is taken")
			schedule = ""
		}
		return fingerprint, schedule
	}
	return p.text(h, maxPolicy), ""
}
