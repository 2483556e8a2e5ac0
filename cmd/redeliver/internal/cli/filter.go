package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// filterFlags are a deadletter.Filter on the command line. All that is given must
// hold; of what may be given more than once, any.
type filterFlags struct {
	fingerprints, ids, positions, headers, reasons []string
	key, after, before, errorText, errorType       string
	quarantined                                    bool
	flagSet                                        *pflag.FlagSet
}

func (f *filterFlags) flags(flags *pflag.FlagSet) {
	f.flagSet = flags
	flags.StringSliceVar(&f.fingerprints, "fingerprint", nil, "messages of this cause, as dlq groups has it; may be repeated")
	flags.StringArrayVar(&f.ids, "id", nil, "the message with this `id`; may be repeated")
	flags.StringSliceVar(&f.positions, "position", nil, "the message at this place, as dlq show has it; may be repeated")
	flags.StringVar(&f.key, "key", "", "messages with exactly this key; an empty one means an empty key")
	flags.StringArrayVar(&f.headers, "header", nil, "messages with this header, `name=value`; of several, all")
	flags.StringVar(&f.after, "after", "", "messages that failed at this `time` or later: 2026-01-31T12:00:00Z, 2026-01-31, or 2h for 2 hours ago")
	flags.StringVar(&f.before, "before", "", "messages that failed before this `time`")
	flags.StringSliceVar(&f.reasons, "reason", nil, "messages that are dead for this reason: exhausted, permanent, timeout, ...; may be repeated")
	flags.StringVar(&f.errorText, "error-text", "", "messages whose error has this text, in upper or lower case")
	flags.StringVar(&f.errorType, "error-type", "", "messages with exactly this type of error")
}

// chooser adds what only a replay asks.
func (f *filterFlags) chooser(flags *pflag.FlagSet) {
	flags.BoolVar(&f.quarantined, "quarantined", false, "replay also what was replayed too often")
}

// filter reads them. now is the time from which "2h" counts back.
func (f *filterFlags) filter(now time.Time) (deadletter.Filter, error) {
	filter := deadletter.Filter{
		Fingerprints: f.fingerprints, IDs: f.ids, ErrorText: f.errorText, ErrorType: f.errorType, Quarantined: f.quarantined,
	}
	for _, p := range f.positions {
		filter.Positions = append(filter.Positions, deadletter.Position(p))
	}
	if f.flagSet.Changed("key") {
		filter.Key = []byte(f.key)
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return filter, usagef("--header is %q: write name=value", h)
		}
		if filter.Headers == nil {
			filter.Headers = make(map[string]string)
		}
		if before, twice := filter.Headers[name]; twice && before != value {
			return filter, usagef("--header names %s twice, with two values", name)
		}
		filter.Headers[name] = value
	}
	for _, r := range f.reasons {
		reason := redeliver.Reason(r)
		if reasons := redeliver.Reasons(); !slices.Contains(reasons, reason) {
			return filter, usagef("--reason is %q: it must be one of %v", r, reasons)
		}
		filter.Reasons = append(filter.Reasons, reason)
	}
	var err error
	if filter.After, err = moment("after", f.after, now); err != nil {
		return filter, err
	}
	if filter.Before, err = moment("before", f.before, now); err != nil {
		return filter, err
	}
	return filter, nil
}

// moment reads a time, or how long ago it was.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d).UTC(), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} { // a day begins in UTC
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, usagef("--%s is %q: write 2026-01-31T12:00:00Z, 2026-01-31, or 2h for two hours ago", flag, text)
}
