package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/bytetext"
)

// filterFlags are the flags of a deadletter.Filter. A message must match every given flag: of a repeated flag one
// value, of --header all.
type filterFlags struct {
	fingerprints, ids, positions, headers, reasons []string
	key, after, before, errorText, errorType       string
	bodyText                                       string
	positionsFrom                                  string
	flagSet                                        *pflag.FlagSet
	in                                             io.Reader // of --positions -
}

func (f *filterFlags) flags(cmd *cobra.Command, in io.Reader) {
	f.in = in
	grouped(cmd.Flags(), groupFilter, f.define)
	oneOf(cmd, "reason", reasons()...)
}

func (f *filterFlags) define(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.reasons, "reason", nil, "Select messages that were dead-lettered for this `reason`: "+strings.Join(reasons(), ", ")+". Repeatable")
	f.common(flags)
	flags.StringVar(&f.bodyText, "body-text", "", "Select messages whose body contains exactly this `text`, of at most 1000 bytes")
	flags.StringVar(&f.after, "after", "", "Select messages that failed at this `time` or later: 2026-01-31T12:00:00Z, 2026-01-31, or 2h for two hours ago")
	flags.StringVar(&f.before, "before", "", "Select messages that failed before this `time`, written as for --after")
	flags.StringSliceVar(&f.positions, "position", nil, "Select the message at this `position`, as \"dlq show\" prints it. Repeatable")
	flags.StringVar(&f.positionsFrom, "positions", "", "Select the messages at the positions in this `file`, - for stdin: at most 1000 lines, each a position or an object of \"dlq show -o jsonl\"")
}

// common adds the flags that can also select waiting messages.
func (f *filterFlags) common(flags *pflag.FlagSet) {
	f.flagSet = flags
	flags.StringSliceVar(&f.fingerprints, "fingerprint", nil, "Select messages with this `fingerprint` of their cause, as \"dlq groups\" prints it. Repeatable")
	flags.StringVar(&f.errorText, "error-text", "", "Select messages whose last error contains this `text`, in upper or lower case")
	flags.StringVar(&f.errorType, "error-type", "", "Select messages whose last error has exactly this `type`")
	flags.StringArrayVar(&f.ids, "id", nil, "Select the message with this `id`. Repeatable")
	flags.StringVar(&f.key, "key", "", "Select messages with exactly this `key`: text, or base64:... for any bytes, as \"dlq show\" prints it. An empty value selects empty keys")
	flags.StringArrayVar(&f.headers, "header", nil, "Select messages with this header, `name=value`. Both may be written as for --key. Of several headers a message must have all")
}

// reasons returns the values of --reason.
func reasons() (all []string) {
	for _, r := range redeliver.Reasons() {
		all = append(all, string(r))
	}
	return all
}

// filter returns the filter of the flags. A duration such as "2h" counts back from now.
func (f *filterFlags) filter(now time.Time) (deadletter.Filter, error) {
	if err := f.refuseEmpty(); err != nil {
		return deadletter.Filter{}, err
	}
	filter := deadletter.Filter{
		Fingerprints: f.fingerprints, IDs: f.ids, ErrorText: f.errorText, ErrorType: f.errorType,
		BodyText: f.bodyText,
	}
	positions := f.positions
	if f.positionsFrom != "" {
		more, err := readPositions(f.positionsFrom, f.in)
		if err != nil {
			return filter, err
		}
		positions = append(positions, more...)
	}
	for _, p := range positions {
		filter.Positions = append(filter.Positions, deadletter.Position(p))
	}
	if f.flagSet.Changed("key") {
		key, err := bytetext.Parse(f.key)
		if err != nil {
			return filter, usagef("--key: %s", err)
		}
		filter.Key = key
	}
	for _, h := range f.headers {
		name, value, err := parseHeader("header", h)
		if err != nil {
			return filter, err
		}
		if filter.Headers == nil {
			filter.Headers = make(map[string]string)
		}
		if before, twice := filter.Headers[name]; twice && before != value {
			return filter, usagef("--header gives %s two different values, and no message can match both", name)
		}
		filter.Headers[name] = value
	}
	for _, r := range f.reasons {
		if err := mustBeOneOf("reason", r, reasons()); err != nil {
			return filter, err
		}
		filter.Reasons = append(filter.Reasons, redeliver.Reason(r))
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

// parseHeader parses the value of a flag that names a header with its value.
func parseHeader(flag, text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok || name == "" {
		return "", "", usagef("--%s is %q: must be name=value", flag, text)
	}
	for _, part := range []*string{&name, &value} {
		raw, err := bytetext.Parse(*part)
		if err != nil {
			return "", "", usagef("--%s %s: %s", flag, text, err)
		}
		*part = string(raw)
	}
	return name, value, nil
}

// maxPositions bounds the positions in a file, because a task records its filter.
const maxPositions = 1000

// readPositions reads a file of positions, - for stdin. Each line is a position, or an object that has one.
func readPositions(path string, in io.Reader) (positions []string, err error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, usagef("--positions: %w", err)
		}
		defer file.Close()
		in = file
	}
	for r := bufio.NewReader(in); ; {
		line, err := r.ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, usagef("--positions: %w", err)
		}
		if text := strings.TrimSpace(line); text != "" {
			var row struct {
				Position string `json:"position"`
			}
			switch {
			case text[0] != '{':
				row.Position = text
			case json.Unmarshal([]byte(text), &row) != nil || row.Position == "":
				return nil, usagef("--positions: line %d is neither a position nor a JSON object with one: write JSON Lines, as in \"dlq show -o jsonl\" or \"jq -c\"", len(positions)+1)
			}
			positions = append(positions, row.Position)
		}
		switch {
		case len(positions) > maxPositions:
			return nil, usagef("--positions has more than %d positions: divide the file, for example with \"split -l %d\"", maxPositions, maxPositions)
		case err != nil && len(positions) == 0: // otherwise the filter would match all messages
			return nil, usagef("--positions has no position")
		case err != nil:
			return positions, nil
		}
	}
}

// refuseEmpty refuses flags with an empty value: the variable of a script may be unset, and without the condition the
// command would select more messages.
func (f *filterFlags) refuseEmpty() (err error) {
	f.flagSet.VisitAll(func(flag *pflag.Flag) {
		empty := flag.Value.String() == ""
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			all := list.GetSlice()
			empty = len(all) == 0 || slices.Contains(all, "")
		}
		if flag.Changed && empty && slices.Contains(filterNames, flag.Name) && err == nil {
			err = usagef("--%s is empty: omit it, or give a value", flag.Name)
		}
	})
	return err
}

// filterNames are the flags that select messages, and have no meaning if they are empty.
var filterNames = []string{"after", "before", "body-text", "error-text", "error-type", "fingerprint", "header", "id", "level", "position", "positions", "reason"}

// moment parses a time or a duration before now.
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
	return time.Time{}, usagef("--%s is %q: must be 2026-01-31T12:00:00Z, 2026-01-31, or 2h for two hours ago", flag, text)
}
