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
	"github.com/redeliver/redeliver/internal/check"
)

// DefaultRefresh is the default of Config.Refresh.
const DefaultRefresh = 10 * time.Second

// Config configures the console. Queues is required.
type Config struct {
	// Queues are the DLQs, in their order on the page. Close them after the Console. Required if there are no Notes.
	Queues []Queue
	// Notes are shown to everybody on the page of all DLQs, for example which DLQs are missing and why. Default: none.
	Notes []string
	// Auth identifies users and their rights. Default: requests from this machine to a local host name have the role
	// Operator, and all others are refused.
	Auth Auth
	// Hosts are the host names of the console, without a port. A request for another name is refused, because another
	// site could point a name of its own to the console. Default: any name; without Auth only localhost and the
	// loopback addresses.
	Hosts []string
	// ReadOnly forbids all changes. A read that has an effect (Info.ReadEffect) is no change. Default: the role decides.
	ReadOnly bool
	// Redact is called with each key, body, header and error before it is shown. Default: all are shown unchanged.
	Redact Redactor
	// Decode converts binary bodies to JSON for display. Default: no body is decoded.
	Decode Decoder
	// TraceURL is the address of a trace, with {trace} for its id: "https://jaeger.example.com/trace/{trace}". Default:
	// the page shows the id without a link.
	TraceURL string
	// Audit receives the record of all changes and of the payloads that were shown, with the user. Each record is one
	// line with a JSON object, written with one Write, never concurrently. If a Write fails, nothing is done and no
	// payload is shown. Default: the default logger of log/slog.
	Audit io.Writer
	// Refresh is the interval of background reads of the DLQs. A DLQ that takes long to read is read less often, so
	// that reading takes at most a tenth of the time. Default 10 s.
	Refresh time.Duration
	// Title is shown on each page. Default "Dead letters".
	Title string
}

// Queue is a DLQ that the console shows.
type Queue struct {
	// Queue is the DLQ as an adapter opens it. If it is also a [Waiter], the console shows waiting messages. If it is
	// also a [Commander], an operator may release and cancel them. If it is a [Pauser], an operator may pause its group.
	// Required.
	deadletter.Queue
	// Cluster is the name of the broker, if there are several of a kind. Default: the kind, such as "kafka".
	Cluster string
}

// Waiter is a DLQ that can count the messages that wait for their next attempt in its group.
type Waiter interface {
	// Waiting returns the levels, the shortest delay first. It must not read messages. The console calls it at every sixth
	// refresh with a timeout of 15 s, and shows its error beside the DLQ.
	Waiting(ctx context.Context) ([]Level, error)
}

// Level is the state of one retry level of a group.
type Level struct {
	Name  string // "10s"
	Count int64  // number of waiting messages
	Late  int64  // number of those that are already due; -1 if unknown
	// Overdue is how long the first of the waiting messages has been due. It is 0 if that is unknown or the message is not due.
	Overdue time.Duration
}

// Commander is a DLQ whose group's consumers accept commands about waiting messages, like kafka.Waiting.
type Commander interface {
	// SendCommand sends a command to the consumers, which execute it in the background. It returns the command with its id.
	SendCommand(ctx context.Context, c deadletter.Command) (deadletter.Command, error)
	// Commands returns the commands that were sent, the oldest first.
	Commands(ctx context.Context) ([]deadletter.Command, error)
}

// Pauser is a DLQ whose group can be paused until somebody resumes it, like kafka.Waiting. The group's consumers follow
// within about 10 s.
type Pauser interface {
	// Pause pauses the group. The reason, which names the console's user, is shown to others.
	Pause(ctx context.Context, reason string) error
	// Resume ends a pause. It does nothing if there is none.
	Resume(ctx context.Context) error
	// Paused returns by whom, when and why the group was paused, or nil. The console calls it at every sixth refresh with a
	// timeout of 15 s.
	Paused(ctx context.Context) (*redeliver.PauseMark, error)
}

func (c Config) withDefaults() Config {
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	c.Title = cmp.Or(c.Title, "Dead letters")
	if c.Audit == nil {
		c.Audit = auditLogger{}
	}
	return c
}

// validate returns all problems at once.
func (c *Config) validate() error {
	var ps check.Problems
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
			ps.Add(field, name, "is listed twice; name the brokers by Cluster")
		} else {
			seen[name] = true
		}
	}
	if u, err := url.Parse(c.TraceURL); c.TraceURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || !strings.Contains(c.TraceURL, traceMark)) {
		ps.Add("TraceURL", redeliver.RedactAddress(c.TraceURL), "must be an address of http or https with "+traceMark+" in it")
	}
	ps.CheckDuration("Refresh", c.Refresh, time.Second, 0)
	c.Auth.check(&ps)
	return ps.Err()
}

// traceMark is the placeholder for the id of a trace.
const traceMark = "{trace}"

// traceURL returns the address of a trace. It is empty if there is none.
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
