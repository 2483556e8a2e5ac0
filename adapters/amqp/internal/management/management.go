package management

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/shell"
)

var ErrNoAPI = errors.New("AMQP cannot list queues, and Config.ManagementURL is not set")

// API reads the broker's management API, which reports what AMQP does not.
type API struct {
	base  string // without credentials, safe for errors
	user  *url.Userinfo
	vhost string
	http  *http.Client
	// how long server errors are retried
	retryTime time.Duration
}

// New returns a reader of the API at an address, which must be valid. broker is a URL of the same broker for
// AMQP, and cfg the configuration of its client: they have the virtual host and the TLS configuration.
func New(address, broker string, cfg amqp091.Config) *API {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	m := &API{user: u.User, vhost: cfg.Vhost, retryTime: 10 * time.Second}
	base := url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/api")}
	m.base = base.String()
	if m.vhost == "" {
		if uri, err := amqp091.ParseURI(broker); err == nil {
			m.vhost = uri.Vhost
		}
	}
	transport := &http.Transport{DisableKeepAlives: true} // a few requests at a time; ignores proxies of the environment
	if cfg.TLSClientConfig != nil {
		transport.TLSClientConfig = cfg.TLSClientConfig.Clone()
		transport.TLSClientConfig.ServerName = "" // it was for the AMQP listener
	}
	m.http = &http.Client{
		Transport: transport,
		// Never send the credentials to another address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return m
}

// maxAnswer bounds an answer. Thousands of queues fit in.
const maxAnswer = 32 << 20

// answerError is an answer with a status other than 200.
type answerError struct {
	where, what string
	code        int
}

func (e *answerError) Error() string { return "amqp: the management API at " + e.where + " " + e.what }

// IsDenied reports whether the user may not see a resource, or the server does not have it.
func IsDenied(err error) bool {
	e, ok := errors.AsType[*answerError](err)
	return ok && (e.code == http.StatusUnauthorized || e.code == http.StatusForbidden || e.code == http.StatusNotFound)
}

// get reads one resource, and retries server errors: RabbitMQ 3.10 answers a list of queues with 500 if one of them
// is deleted meanwhile, and caches that answer for five times as long as it took to make. No error contains
// credentials.
func (m *API) get(ctx context.Context, into any, query url.Values, path ...string) error {
	pause := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond), backoff.WithMaxElapsedTime(m.retryTime))
	return backoff.Retry(func() error {
		err := m.request(ctx, into, query, path...)
		if e, ok := errors.AsType[*answerError](err); ok && e.code >= http.StatusInternalServerError {
			return err
		}
		if err != nil {
			return backoff.Permanent(err)
		}
		return nil
	}, backoff.WithContext(pause, ctx))
}

// request sends one request.
func (m *API) request(ctx context.Context, into any, query url.Values, path ...string) error {
	escaped := make([]string, len(path))
	for i, p := range path {
		escaped[i] = url.PathEscape(p)
	}
	where := m.base + "/api/" + strings.Join(escaped, "/")
	address := where
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return fmt.Errorf("amqp: asking the management API at %s: %w", where, err)
	}
	if m.user != nil {
		password, _ := m.user.Password()
		req.SetBasicAuth(m.user.Username(), password)
	}
	res, err := m.http.Do(req)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // the text has the address already
		}
		return fmt.Errorf("amqp: asking the management API at %s: %w; is Config.ManagementURL right, and the plugin rabbitmq_management enabled?", where, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("amqp: reading the answer of the management API at %s: %w", where, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("amqp: the management API at %s answers with more than %d MiB", where, maxAnswer>>20)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return &answerError{where, fmt.Sprintf("refuses the user %q of Config.ManagementURL (%s): check the password; the user needs the tag monitoring, or administrator to see everything",
			m.user.Username(), res.Status), res.StatusCode}
	case res.StatusCode != http.StatusOK:
		return &answerError{where, fmt.Sprintf("answers %s: %s", res.Status, redeliver.Redact(limits.Cut(string(body), 200))), res.StatusCode}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("amqp: the management API at %s answers with something other than its JSON (%s): %w; is Config.ManagementURL its address?",
			where, res.Header.Get("Content-Type"), err)
	}
	return nil
}

// Object is a JSON object. An empty one may come as an empty array, because Erlang does not distinguish them.
type Object map[string]any

func (o *Object) UnmarshalJSON(text []byte) error {
	if bytes.Equal(bytes.Join(bytes.Fields(text), nil), []byte("[]")) {
		*o = Object{}
		return nil
	}
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	err := dec.Decode(&fields)
	*o = fields
	return err
}

// ServerInfo is information about the server.
type ServerInfo struct {
	Version string `json:"rabbitmq_version"`
	Cluster string `json:"cluster_name"`
}

// QueueInfo is the API's information about a queue. Unknown fields are nil; counts and policies are some seconds old.
type QueueInfo struct {
	Name           string  `json:"name"`
	Type           string  `json:"type"`
	State          string  `json:"state"`
	Durable        bool    `json:"durable"`
	AutoDelete     bool    `json:"auto_delete"`
	Arguments      Object  `json:"arguments"`
	Policy         *string `json:"policy"`
	OperatorPolicy *string `json:"operator_policy"`
	Effective      *Object `json:"effective_policy_definition"`
	DeliveryLimit  any     `json:"delivery_limit"` // RabbitMQ 4: a number or "unlimited"
	Messages       *int64  `json:"messages"`
	Ready          *int64  `json:"messages_ready"`
	Unacked        *int64  `json:"messages_unacknowledged"`
	HeadTimestamp  any     `json:"head_message_timestamp"` // Unix seconds, or an empty text
}

// Stuck returns how many messages of a level have expired but do not move: neither ready nor unacked.
func (q *QueueInfo) Stuck() int64 {
	if q.Messages == nil || q.Ready == nil {
		return 0
	}
	over := *q.Messages - *q.Ready
	if q.Unacked != nil {
		over -= *q.Unacked
	}
	return max(0, over)
}

const queueColumns = "name,type,state,durable,auto_delete,arguments,policy,operator_policy,effective_policy_definition," +
	"delivery_limit,messages,messages_ready,messages_unacknowledged,head_message_timestamp"

func (m *API) Overview(ctx context.Context) (info ServerInfo, err error) {
	if err = m.get(ctx, &info, nil, "overview"); err == nil && info.Version == "" {
		err = fmt.Errorf("amqp: the management API at %s does not report RabbitMQ's version: is Config.ManagementURL its address?", m.base)
	}
	return info, err
}

// Queues returns the queues whose names match a pattern.
func (m *API) Queues(ctx context.Context, pattern string) (map[string]QueueInfo, error) {
	found := make(map[string]QueueInfo)
	for n := 1; ; n++ {
		var page struct {
			Items *[]QueueInfo `json:"items"`
			Pages int          `json:"page_count"`
		}
		err := m.get(ctx, &page, url.Values{
			"page": {strconv.Itoa(n)}, "page_size": {"500"}, "name": {pattern}, "use_regex": {"true"}, "columns": {queueColumns},
		}, "queues", m.vhost)
		if err != nil {
			return nil, err
		}
		if page.Items == nil {
			return nil, fmt.Errorf("amqp: the management API at %s lists no queues: is Config.ManagementURL its address?", m.base)
		}
		for _, q := range *page.Items {
			found[q.Name] = q
		}
		if n >= page.Pages {
			return found, nil
		}
	}
}

// DeleteCommand returns the broker's command that deletes a queue.
func (m *API) DeleteCommand(queue string) string {
	command := "rabbitmqctl delete_queue "
	if m.vhost != "/" {
		command += "--vhost " + shell.Quote(m.vhost) + " "
	}
	return command + shell.Quote(queue)
}

// Exists reports whether a queue exists.
func (m *API) Exists(ctx context.Context, queue string) (bool, error) {
	found, err := m.Queues(ctx, "^"+regexp.QuoteMeta(queue)+"$")
	return len(found) > 0, err
}

// Disabled returns those of names that are known flags and not enabled.
func (m *API) Disabled(ctx context.Context, names ...string) (missing []string, err error) {
	var flags []struct {
		Name  string `json:"name"`
		State string `json:"state"`
	}
	if err := m.get(ctx, &flags, nil, "feature-flags"); err != nil {
		return nil, err
	}
	for _, name := range names {
		for _, f := range flags {
			if f.Name == name && f.State != "enabled" {
				missing = append(missing, name)
			}
		}
	}
	return missing, nil
}
