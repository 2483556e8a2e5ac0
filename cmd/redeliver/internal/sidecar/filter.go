package sidecar

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/bytetext"
	"github.com/redeliver/redeliver/internal/engine"
)

// Filter says which messages are acked without the handler. The zero value skips none.
type Filter struct {
	// Tombstones skips records without a value (Kafka).
	Tombstones bool
	// Only has values of headers, by name. A message is skipped unless, for each name, it has one of the values.
	Only map[string][]string
	// Skip has values of headers, by name. A message that has any of them is skipped.
	Skip map[string][]string
}

// The reasons why a message is skipped, as the metric has them.
const (
	skippedTombstone = "tombstone"
	skippedHeader    = "header"
)

// why returns why a message is skipped, or an empty text.
func (f *Filter) why(d *engine.Delivery) string {
	if f.Tombstones && d.Body() == nil {
		return skippedTombstone
	}
	if len(f.Only)+len(f.Skip) == 0 {
		return ""
	}
	headers := d.Headers()
	for name, values := range f.Only {
		if !slices.Contains(values, headers.Get(name)) {
			return skippedHeader
		}
	}
	for name, values := range f.Skip {
		if slices.Contains(values, headers.Get(name)) {
			return skippedHeader
		}
	}
	return ""
}

// Describe says in words which messages are skipped.
func (f *Filter) Describe() (all []string) {
	if f.Tombstones {
		all = append(all, "records without a value")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Only)) {
		all = append(all, "messages without the header "+headerText(name, f.Only[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Skip)) {
		all = append(all, "messages with the header "+headerText(name, f.Skip[name]))
	}
	return all
}

func headerText(name string, values []string) string {
	var all []string
	for _, v := range values {
		all = append(all, bytetext.Format([]byte(name))+"="+bytetext.Format([]byte(v)))
	}
	return strings.Join(all, " or ")
}

// skips reports whether a message is acked without the handler, and counts it.
func (r *runner) skips(ctx context.Context) bool {
	d := engine.FromContext(ctx)
	if d == nil {
		return false
	}
	why := r.Filter.why(d)
	if why == "" {
		return false
	}
	d.SkipHandler()
	r.countSkipped(d, why)
	return true
}

func (r *runner) countSkipped(d *engine.Delivery, why string) {
	if r.Skipped != nil {
		st := d.State()
		r.Skipped(st.Origin, st.Group, why)
	}
}

// batchFilter answers the messages of batches that are skipped, before next gets the others.
type batchFilter struct {
	*runner

	next redeliver.BatchDedup // nil for none
}

// Begin implements [redeliver.BatchDedup].
func (f batchFilter) Begin(ctx context.Context, all []redeliver.BatchedMessage) (rest []redeliver.BatchedMessage, end func(), err error) {
	for _, one := range all {
		m, ok := one.(*engine.Batched)
		if !ok || m.Delivery() == nil {
			rest = append(rest, one)
			continue
		}
		d := m.Delivery()
		why := f.Filter.why(d)
		if why == "" {
			rest = append(rest, m)
			continue
		}
		m.OnEnd(func(handled bool) {
			if handled {
				f.countSkipped(d, why)
			}
		})
		d.SkipHandler()
		m.Answer(nil)
	}
	if len(rest) == 0 || f.next == nil {
		return rest, nil, nil
	}
	return f.next.Begin(ctx, rest)
}
