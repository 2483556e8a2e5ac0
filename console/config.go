package console

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// DefaultRefresh is how often the DLQs are read in the background.
const DefaultRefresh = 10 * time.Second

// Config configures the console. Queues is required.
type Config struct {
	// Queues are the DLQs, in the order of the page. Required if there are no Notes. Close them after the Console.
	Queues []Queue
	// Notes are shown on the page of all DLQs to everybody: for example which DLQs are missing, and why.
	// Default: none.
	Notes []string
	// Auth identifies users and their rights. Default: requests from this machine to a local host name are those of an
	// operator, and all others are refused.
	Auth Auth
	// Hosts are the host names of the console, without a port. A request with another name is refused, because a page
	// of another site could point a name of its own to the console. Default: any name; without Auth only localhost and
	// the loopback addresses.
	Hosts []string
	// ReadOnly forbids all changes. A look that costs something is not a change. Default: the role decides.
	ReadOnly bool
	// Redact gets each key, body, header and error before it is shown. Default: they are shown as they are.
	Redact Redactor
	// Decode turns binary bodies into JSON for display. Default: none is decoded.
	Decode Decoder
	// TraceURL is the address of a trace, with {trace} in place of its id: "https://jaeger.example.com/trace/{trace}".
	// Default: the page shows the id without a link.
	TraceURL string
	// Audit gets the record of all changes and of the payloads that were shown, with the user: one JSON object
	// in a line, each in one Write, never two at once. When a Write fails, nothing is done and no payload is
	// shown. Default: the default logger of log/slog.
	Audit io.Writer
	// Refresh is how often the DLQs are read in the background. A DLQ whose reading takes long is read less
	// often, so that reading takes at most a tenth of the time. Default 10 s.
	Refresh time.Duration
	// Title is on each page. Default "Dead letters".
	Title string
}

// Queue is a DLQ that the console shows.
type Queue struct {
	// Queue is the DLQ as an adapter opens it. When it is a [Waiter], too, the console shows waiting messages,
	// and with a [Commander] an operator may release and cancel them. Required.
	deadletter.Queue
	// Cluster names the broker where there are several of a kind. Default: the
	// kind, "kafka".
	Cluster string
}

// Waiter is a DLQ that counts the messages that wait for their next attempt in the group.
type Waiter interface {
	// Waiting returns the levels, the shortest first. It may be called at any time, and reads no message. The
	// console calls it every sixth refresh, with a timeout of 15 s, and shows its error beside the DLQ.
	Waiting(ctx context.Context) ([]Level, error)
}

// Level is the messages that wait on one level of a group.
type Level struct {
	Name  string // "10s"
	Count int64  // messages that wait there
	Late  int64  // of those, how many are already due; -1 if unknown
	// Overdue is for how long the first of them has been due. 0 where it is not due
	// yet, or that is not known.
	Overdue time.Duration
}

// Commander is a DLQ whose group's consumers accept commands about waiting messages, as kafka.Waiting sends
// them.
type Commander interface {
	// Command sends a command to the consumers, which obey in the background, and returns it with its id.
	Command(ctx context.Context, c deadletter.Command) (deadletter.Command, error)
	// Commands returns those that were given, the oldest first.
	Commands(ctx context.Context) ([]deadletter.Command, error)
	// Withdraw withdraws a command. Its effects until then remain.
	Withdraw(ctx context.Context, id string) error
}

func (c Config) withDefaults() Config {
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	c.Title = cmp.Or(c.Title, "Dead letters")
	if c.Audit == nil {
		c.Audit = toLogger{}
	}
	return c
}

// validate returns all problems at once.
func (c *Config) validate() error {
	var ps redeliver.Problems
	if len(c.Queues) == 0 && len(c.Notes) == 0 {
		ps.Add("Queues", "empty", "at least one DLQ is required, or Notes that say why there is none")
	}
	seen := make(map[string]bool)
	for i, q := range c.Queues {
		field := fmt.Sprintf("Queues[%d]", i)
		if q.Queue == nil {
			ps.Add(field, nil, "must have a Queue, as an adapter opens it")
			continue
		}
		if name := q.cluster() + "/" + q.Info().DLQ; seen[name] {
			ps.Add(field, name, "is there twice; name the brokers by Cluster")
		} else {
			seen[name] = true
		}
	}
	if u, err := url.Parse(c.TraceURL); c.TraceURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(c.TraceURL, traceMark)) {
		ps.Add("TraceURL", redeliver.RedactAddress(c.TraceURL), "must be an address of http or https with "+traceMark+" in it")
	}
	ps.Duration("Refresh", c.Refresh, time.Second, 0)
	c.Auth.check(&ps)
	return ps.Err()
}

// traceMark is the placeholder for the id of a trace.
const traceMark = "{trace}"

// traceURL is the address of a trace; empty where there is none.
func (c *Config) traceURL(id string) string {
	if id == "" || c.TraceURL == "" {
		return ""
	}
	return strings.ReplaceAll(c.TraceURL, traceMark, url.QueryEscape(id))
}

func (q *Queue) cluster() string {
	if q.Cluster != "" {
		return q.Cluster
	}
	return q.Info().Broker
}
