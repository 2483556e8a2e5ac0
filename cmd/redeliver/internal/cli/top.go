package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/table"
	"github.com/redeliver/redeliver/deadletter"
)

// topRow is one DLQ with the waiting messages of its group. Fields that the broker does not report are absent.
type topRow struct {
	Broker           string     `json:"broker"`
	DLQ              string     `json:"dlq"`
	Origin           string     `json:"origin,omitempty"`
	Group            string     `json:"group,omitempty"`
	Messages         *int64     `json:"messages,omitempty"`
	PerMinute        *float64   `json:"per_minute,omitempty"` // change of messages, over the last minute; absent at first
	Oldest           time.Time  `json:"oldest,omitzero"`      // when the oldest message arrived
	Waiting          *int64     `json:"waiting,omitempty"`    // number of messages that wait for a retry
	WaitingPerMinute *float64   `json:"waiting_per_minute,omitempty"`
	Due              time.Time  `json:"due,omitzero"`     // when the first waiting message is due
	Levels           []topLevel `json:"levels,omitempty"` // the places where messages wait, without empty ones
	Running          *holderRow `json:"running,omitempty"`
	Problem          string     `json:"problem,omitempty"` // why a field is unknown
}

// topLevel is a delay topic or queue of a topRow, or the topic or queue of the retries.
type topLevel struct {
	Level    string    `json:"level,omitempty"` // absent for retries, and if there are no levels
	Place    string    `json:"place"`
	Messages *int64    `json:"messages,omitempty"`
	Due      time.Time `json:"due,omitzero"` // when its first message is due
}

const (
	rateWindow          = time.Minute // period over which changes are computed
	samplesPerDiscovery = 10          // samples between two searches for new DLQs
	topReaders          = 8           // number of DLQs that are read concurrently
)

func topCommand(a *app) *cobra.Command {
	var every time.Duration
	var count int
	var levels bool
	order := "messages"
	orders := []string{"messages", "change", "waiting", "name"}
	cmd := &cobra.Command{
		Use: "top", Short: "Watch all DLQs live: depth, waiting messages and rates", Args: exactly(),
		Long: `Watch all DLQs live: how many messages are in each, how many wait for a retry, how both
change per minute, when the next waiting message is due, and which task is running.

On a terminal top draws a screen: m, c, w and n sort it, l shows the levels, space pauses it,
and q ends it. Without a terminal, or with --count or an --output other than table, top prints
the list once, or --count times. On RabbitMQ it needs --management-url.`,
		Example: `  redeliver top --broker kafka://localhost:9092
  redeliver top --count 1 --levels
  redeliver top --count 60 --every 1m --output jsonl >> depth.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 100*time.Millisecond {
				return usagef("--every is %s: must be at least 100ms", every)
			}
			if count < 0 {
				return usagef("--count is %d: must be 0 or more", count)
			}
			if err := mustBeOneOf("sort", order, orders); err != nil {
				return err
			}
			if err := a.listable(); err != nil {
				return err
			}
			u, err := a.conn.url(a.Env)
			if err != nil {
				return err
			}
			return a.withBroker(cmd.Context(), setup{}, func(b *broker) error {
				w := &watch{b: b, queues: make(map[string]*watched)}
				defer w.close()
				if a.Screen != nil && a.InTerminal && a.OutTerminal && a.output == formatTable && count == 0 && a.Env("TERM") != "dumb" {
					s := &topScreen{a: a, from: u.String(), every: every, order: order, levels: levels}
					return s.run(cmd.Context(), w)
				}
				return a.printTop(cmd.Context(), w, every, max(count, 1), order, levels)
			})
		},
	}
	flags := cmd.Flags()
	flags.DurationVar(&every, "every", 2*time.Second, "Wait for this `duration` before reading the DLQs again")
	flags.IntVar(&count, "count", 0, "Print the list this `number` of times instead of drawing a screen")
	flags.BoolVar(&levels, "levels", false, "List the levels of each DLQ, too, with the messages that wait there")
	flags.StringVar(&order, "sort", order, "Sort by this `column`: messages, change, waiting or name")
	oneOf(cmd, "sort", orders...)
	return cmd
}

// printTop prints the list count times.
func (p *printer) printTop(ctx context.Context, w *watch, every time.Duration, count int, order string, levels bool) error {
	for i := range count {
		if i > 0 {
			select {
			case <-time.After(every):
			case <-ctx.Done():
				return nil
			}
		}
		all, err := w.sample(ctx)
		if err != nil {
			return err
		}
		sortTop(all, order)
		if p.output == formatTable {
			blocks := topTable(all, time.Now(), p.colour(p.OutTerminal), levels, 0)
			if err := p.write(strings.Join(slices.Concat(blocks...), "\n") + "\n"); err != nil {
				return err
			}
			continue
		}
		out := p.list()
		for _, row := range all {
			if err := out.add(row); err != nil {
				return err
			}
		}
		if err := out.end(); err != nil {
			return err
		}
	}
	return nil
}

// topTable returns the blocks of a table: the heading, then one block of lines for each DLQ. It shortens names so that
// a line has at most width characters, unless width is 0.
func topTable(all []topRow, now time.Time, colour, levels bool, width int) (blocks [][]string) {
	columns := []string{"DLQ", "MESSAGES", "/MIN", "OLDEST", "WAITING", "/MIN", "DUE"}
	g := newGrid(colour, columns)
	g.alignRight(2, 3, 5, 6)
	var rows [][]any               // of the DLQs and their levels
	sizes := make([]int, len(all)) // lines of each DLQ
	for i := range all {
		rows = append(rows, all[i].cells(now))
		sizes[i] = 1
		empty := 0
		for _, l := range all[i].Levels {
			switch {
			case !levels:
			case l.Messages != nil && *l.Messages == 0:
				empty++
			default:
				rows = append(rows, []any{"  " + cmp.Or(l.Level, l.Place), "", "", "", number(l.Messages), "", due(l.Due, now)})
				sizes[i]++
			}
		}
		if empty > 0 {
			rows = append(rows, []any{fmt.Sprintf("  %d empty levels", empty), "", "", "", "", "", ""})
			sizes[i]++
		}
	}
	room := width
	for i, heading := range columns[1:] {
		widest := len(heading)
		for _, row := range rows {
			widest = max(widest, len(fmt.Sprint(row[i+1])))
		}
		room -= widest + 2
	}
	for _, row := range rows {
		if width > 0 {
			row[0] = table.CutMiddle(visible(fmt.Sprint(row[0])), max(room, 16))
		}
		g.add(row)
	}
	lines := strings.Split(strings.TrimSuffix(g.text(), "\n"), "\n") // one for the heading and one for each row
	if len(rows) == 0 {
		return [][]string{{"no DLQs found"}}
	}
	blocks, lines = [][]string{lines[:1]}, lines[1:]
	for i := range all {
		n := sizes[i]
		block := slices.Clone(lines[:n])
		lines = lines[n:]
		if r := all[i].Running; r != nil {
			block = append(block, visible(fmt.Sprintf("  task %s by %s", r.Task, r.Who)))
		}
		if problem := visible(all[i].Problem); problem != "" {
			if problem = "  " + problem; colour {
				problem = text.FgRed.Sprint(problem)
			}
			block = append(block, problem)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// watch samples all DLQs of a broker, and keeps them open between samples.
type watch struct {
	b       *broker
	queues  map[string]*watched
	samples int
}

// watched is one DLQ.
type watched struct {
	info    deadletter.Info
	q       deadletter.Queue // nil if the name has no topic and group, or the DLQ could not be opened
	waits   *waiting         // nil if the broker does not report waiting messages
	problem error            // why q or waits is nil
	past    []depth          // samples of the last minute
}

// depth has the numbers of messages at one time, -1 if unknown.
type depth struct {
	at            time.Time
	dead, waiting int64
}

// sample reads every DLQ once.
func (w *watch) sample(ctx context.Context) ([]topRow, error) {
	if w.samples%samplesPerDiscovery == 0 {
		if err := w.discover(ctx); err != nil {
			return nil, err
		}
	}
	w.samples++
	rows := make([]topRow, 0, len(w.queues))
	var mu sync.Mutex
	var readers sync.WaitGroup
	free := make(chan struct{}, topReaders)
	for _, one := range w.queues {
		free <- struct{}{}
		readers.Go(func() {
			defer func() { <-free }()
			row := one.read(ctx)
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, row)
		})
	}
	readers.Wait()
	return rows, ctx.Err()
}

// discover opens new DLQs and closes deleted ones.
func (w *watch) discover(ctx context.Context) error {
	all, err := w.b.queues(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(all))
	for _, info := range all {
		there[info.DLQ] = true
		if one := w.queues[info.DLQ]; one != nil && one.problem == nil {
			continue
		} else if one != nil {
			one.close() // reopen: rights may have been granted since
		}
		one := &watched{info: info}
		w.queues[info.DLQ] = one
		if info.Origin == "" {
			one.problem = errUnowned
			continue
		}
		of := subject{topic: info.Origin, group: info.Group}
		var dead, waits error
		if one.q, dead = w.b.dlq(ctx, of); dead != nil {
			one.q = nil
		}
		if one.waits, waits = w.b.waiting(ctx, of); waits != nil {
			one.waits = nil
		}
		one.problem = errors.Join(dead, waits)
	}
	for name, one := range w.queues {
		if !there[name] {
			one.close()
			delete(w.queues, name)
		}
	}
	return nil
}

var errUnowned = errors.New("its name contains no topic and group")

// read reads one DLQ.
func (one *watched) read(ctx context.Context) topRow {
	row := topRow{Broker: one.info.Broker, DLQ: one.info.DLQ, Origin: one.info.Origin, Group: one.info.Group}
	now := depth{time.Now(), -1, -1}
	problems := []error{one.problem}
	if one.q != nil {
		n, _, err := one.q.Count(ctx)
		if err == nil {
			now.dead, row.Messages = n, &n
		}
		oldest, _, old := one.q.Oldest(ctx)
		if errors.Is(old, deadletter.ErrNotReported) {
			old = nil
		} else if old == nil && n > 0 {
			row.Oldest = oldest.UTC()
		}
		h, held, busy := one.q.Holder(ctx)
		if held {
			row.Running = &holderRow{Task: h.Task, Who: h.Who, Since: h.Since}
		}
		problems = append(problems, err, old, busy)
	}
	if one.waits != nil {
		levels, err := one.waits.levels(ctx)
		problems = append(problems, err)
		for _, l := range levels {
			if l.Depth < 0 {
				continue
			}
			now.waiting = max(now.waiting, 0) + l.Depth
			if l.Depth > 0 {
				row.Levels = append(row.Levels, topLevel{levelText(l.Level), l.Place, &l.Depth, l.Due.UTC()})
			}
			if !l.Due.IsZero() && (row.Due.IsZero() || l.Due.Before(row.Due)) {
				row.Due = l.Due.UTC()
			}
		}
		row.Waiting = countOrNil(now.waiting)
	}
	if err := errors.Join(problems...); err != nil {
		row.Problem = redeliver.Redact(inFlags(err))
	}
	one.past = append(one.past, now)
	for len(one.past) > 2 && now.at.Sub(one.past[1].at) >= rateWindow {
		one.past = one.past[1:]
	}
	row.PerMinute = change(one.past, func(d depth) int64 { return d.dead })
	row.WaitingPerMinute = change(one.past, func(d depth) int64 { return d.waiting })
	return row
}

// change returns by how much a number changes per minute, or nil if unknown.
func change(past []depth, of func(depth) int64) *float64 {
	first := slices.IndexFunc(past, func(d depth) bool { return of(d) >= 0 })
	last := past[len(past)-1]
	if first < 0 || first == len(past)-1 || of(last) < 0 {
		return nil
	}
	perMinute := float64(of(last)-of(past[first])) / last.at.Sub(past[first].at).Minutes()
	return &perMinute
}

func (w *watch) close() {
	for _, one := range w.queues {
		one.close()
	}
}

func (one *watched) close() {
	if one.q != nil {
		_ = one.q.Close() // nothing was written
	}
	if one.waits != nil {
		_ = one.waits.end()
	}
}

// sortTop sorts rows by a column, then by name.
func sortTop(all []topRow, order string) {
	value := func(r *topRow) float64 {
		switch {
		case order == "messages" && r.Messages != nil:
			return float64(*r.Messages)
		case order == "waiting" && r.Waiting != nil:
			return float64(*r.Waiting)
		case order == "change" && r.PerMinute != nil:
			return *r.PerMinute
		default:
			return 0
		}
	}
	slices.SortFunc(all, func(x, y topRow) int {
		if vx, vy := value(&x), value(&y); vx > vy {
			return -1
		} else if vx < vy {
			return 1
		}
		return strings.Compare(x.DLQ, y.DLQ)
	})
}

// cells returns the columns of a table.
func (r *topRow) cells(now time.Time) []any {
	oldest := "-"
	if !r.Oldest.IsZero() {
		oldest = span(now.Sub(r.Oldest))
	}
	return []any{r.DLQ, number(r.Messages), perMinute(r.PerMinute), oldest, number(r.Waiting), perMinute(r.WaitingPerMinute), due(r.Due, now)}
}

// number formats a number of messages.
func number(n *int64) string {
	if n == nil {
		return "?"
	}
	return thousands(*n)
}

// due formats when a message is due.
func due(at, now time.Time) any {
	wait := at.Sub(now)
	switch {
	case at.IsZero():
		return "-"
	case wait < -time.Second:
		return warning("late " + span(-wait))
	default:
		return "in " + span(max(wait, 0))
	}
}

// perMinute formats a change with its sign.
func perMinute(change *float64) string {
	switch {
	case change == nil:
		return "-"
	case *change > -0.05 && *change < 0.05:
		return "0"
	case *change > -10 && *change < 10:
		return fmt.Sprintf("%+.1f", *change)
	case *change > 0:
		return "+" + thousands(int64(*change+0.5))
	default:
		return thousands(int64(*change - 0.5))
	}
}

// span formats a duration in one unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
