package amqp

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

func problemsOf(t *testing.T, err error) map[string]redeliver.Problem {
	t.Helper()
	if err == nil {
		return nil
	}
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatalf("%v is not a ConfigError", err)
	}
	found := make(map[string]redeliver.Problem)
	for _, p := range bad.Problems {
		if _, twice := found[p.Field]; twice {
			t.Errorf("%s is named twice: %v", p.Field, err)
		}
		if p.Rule == "" || p.Value == nil {
			t.Errorf("%+v has no explanation", p)
		}
		found[p.Field] = p
	}
	return found
}

func TestInvalidConfigIsRefusedWithAllProblems(t *testing.T) {
	_, err := Open(t.Context(), Config{
		URLs:     []string{"amqp://guest:s3cret@nowhere:x", "http://host"},
		Policy:   redeliver.Policy{Levels: []time.Duration{time.Minute, time.Second}},
		Queues:   map[string]redeliver.Policy{"amq.gen": {}, "": {}, strings.Repeat("q", 256): {}, "\xff": {}, "fine": {MaxRetries: -7}},
		Topology: Topology{Kind: "x-random"}, MaxInFlight: -1, MaxRetriesInFlight: maxPrefetch + 1, Prefetch: -1, RetryPrefetch: -1,
		NackDelay: -1, DrainTimeout: -1, SendTimeout: -1, DialTimeout: -1, ConsumerTimeout: time.Millisecond,
		ManagementURL: "amqp://guest:s3cret@host", AMQP: amqp091.Config{FrameSize: 4096, Recovery: &amqp091.Recovery{}},
	})
	found := problemsOf(t, err)
	for _, field := range []string{
		"URLs[0]", "URLs[1]", "Policy.Levels[1]", `Queues["amq.gen"]`, `Queues[""]`, `Queues["` + strings.Repeat("q", 256) + `"]`, `Queues["\xff"]`, `Queues["fine"].MaxRetries`,
		"Topology.Kind", "MaxInFlight", "MaxRetriesInFlight", "Prefetch", "RetryPrefetch", "NackDelay", "DrainTimeout", "SendTimeout",
		"DialTimeout", "ConsumerTimeout", "ManagementURL", "AMQP.FrameSize", "AMQP.Recovery",
	} {
		if _, ok := found[field]; !ok {
			t.Errorf("%s is not named", field)
		}
		delete(found, field)
	}
	if len(found) > 0 {
		t.Errorf("named too: %v", slices.Sorted(maps.Keys(found)))
	}
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error contains a password: %v", err)
	}
}

func TestConfigLimits(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"least":                               {func(*Config) {}, nil},
		"no URL":                              {func(c *Config) { c.URLs = nil }, []string{"URLs"}},
		"most":                                {func(c *Config) { c.MaxInFlight, c.RetryPrefetch = maxPrefetch, maxPrefetch }, nil},
		"prefetch below MaxInFlight":          {func(c *Config) { c.MaxInFlight, c.Prefetch = 10, 9 }, []string{"Prefetch"}},
		"prefetch equal to MaxInFlight":       {func(c *Config) { c.MaxInFlight, c.Prefetch = 10, 10 }, nil},
		"most prefetch":                       {func(c *Config) { c.MaxInFlight, c.Prefetch = 10, 20 }, nil},
		"prefetch above the limit of returns": {func(c *Config) { c.MaxInFlight, c.Prefetch = 10, 21 }, []string{"Prefetch"}},
		"prefetch of ordered queues": {func(c *Config) {
			c.MaxInFlight, c.Prefetch, c.Queues = 10, maxPrefetch, map[string]redeliver.Policy{"a": {Order: redeliver.OrderBlocking}}
		}, nil},
		"retry prefetch below":           {func(c *Config) { c.MaxRetriesInFlight, c.RetryPrefetch = 10, 9 }, []string{"RetryPrefetch"}},
		"shortest consumer timeout":      {func(c *Config) { c.ConsumerTimeout = time.Second }, nil},
		"longest drain timeout":          {func(c *Config) { c.DrainTimeout = redeliver.MaxWait }, nil},
		"endless drain timeout":          {func(c *Config) { c.DrainTimeout = redeliver.MaxWait + 1 }, []string{"DrainTimeout"}},
		"management without a host":      {func(c *Config) { c.ManagementURL = "http://" }, []string{"ManagementURL"}},
		"management by a host name only": {func(c *Config) { c.ManagementURL = "host:15672" }, []string{"ManagementURL"}},
		"management over TLS":            {func(c *Config) { c.ManagementURL = "https://host:15672" }, nil},
		"a Recovery is not permitted":    {func(c *Config) { c.AMQP.Recovery = &amqp091.Recovery{} }, []string{"AMQP.Recovery"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{URLs: []string{"amqp://localhost"}}
			row.change(&cfg)
			got := slices.Sorted(maps.Keys(problemsOf(t, cfg.withDefaults().validate())))
			if !slices.Equal(got, row.want) {
				t.Errorf("problems with %v, want %v", got, row.want)
			}
		})
	}
}

// Every field has a default, or a reason here for having none.
func TestEveryFieldHasADefault(t *testing.T) {
	exempt := map[string]string{
		"URLs": "is required", "Policy": "its own zero value is the default", "Queues": "none", "Key": "required where it is used", "Prefetch": "depends on the policy", "Topology": "its own zero value is the default",
		"RetryPrefetch": "depends on the policy", "NackDelay": "the policy's", "NoProvisioning": "false", "ManagementURL": "not asked", "MinInFlight": "nothing shrinks",
		"StateKeys": "nothing is signed", "Names": "its own zero value is the default", "AMQP": "the client's", "Tracer": "none", "DLQ": "its own zero value is the default",
	}
	cfg := reflect.ValueOf(Config{}.withDefaults())
	for i := range cfg.NumField() {
		name := cfg.Type().Field(i).Name
		_, without := exempt[name]
		if cfg.Field(i).IsZero() != without {
			t.Errorf("%s is zero: %v, want %v", name, cfg.Field(i).IsZero(), without)
		}
		delete(exempt, name)
	}
	if len(exempt) > 0 {
		t.Errorf("there are no such fields: %v", exempt)
	}
}

func TestDefaultsKeepSetFields(t *testing.T) {
	want := Config{
		MaxInFlight: 1, MaxRetriesInFlight: 2, Prefetch: 3, RetryPrefetch: 4, RetryBytes: 11, NackDelay: 6, DrainTimeout: 7, SendTimeout: 8, DialTimeout: 9,
		ConsumerTimeout: 10, Marshaler: &DefaultMarshaler{}, Sink: redeliver.NewSlogSink(nil),
	}
	if got := want.withDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	in := Config{MaxInFlight: 7}.withDefaults()
	if prefetch := in.prefetch(redeliver.Policy{}); in.MaxRetriesInFlight != 7 || prefetch != 7 {
		t.Errorf("retries %d, prefetch %d, want both 7", in.MaxRetriesInFlight, prefetch)
	}
	if prefetch := in.prefetch(redeliver.Policy{Order: redeliver.OrderThroughRetries}); prefetch != defaultKeyPrefetch {
		t.Errorf("prefetch %d with OrderThroughRetries, want %d", prefetch, defaultKeyPrefetch)
	}
}

// If other queues are ordered, the unordered ones still have no more unacked messages than alone.
func TestPrefetchDependsOnTheOrder(t *testing.T) {
	c := Config{MaxInFlight: 10, Prefetch: 500}.withDefaults()
	if got := c.prefetch(redeliver.Policy{Order: redeliver.OrderThroughRetries}); got != 500 {
		t.Errorf("%d by key, want 500", got)
	}
	if got := c.prefetch(redeliver.Policy{}); got != 20 {
		t.Errorf("%d elsewhere, want 20", got)
	}
	for _, n := range []int{1, 500} { // a deploy may change it
		if got := (Config{MaxInFlight: n}).withDefaults().prefetch(redeliver.Policy{Order: redeliver.OrderBlocking}); got != defaultBlockingPrefetch {
			t.Errorf("%d with OrderBlocking and MaxInFlight %d, want %d", got, n, defaultBlockingPrefetch)
		}
	}
}

// A delay above the longest wait is refused.
func TestNackDelayIsAtMostMaxWait(t *testing.T) {
	for d, refused := range map[time.Duration]bool{redeliver.MaxWait: false, redeliver.MaxWait + 1: true, -1: true} {
		err := Config{URLs: []string{"amqp://localhost"}, NackDelay: d}.withDefaults().validate()
		if _, is := problemsOf(t, err)["NackDelay"]; is != refused {
			t.Errorf("%s is refused: %v, want %v", d, is, refused)
		}
	}
}

func TestRetryPrefetchDependsOnThePolicy(t *testing.T) {
	still := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)}
	for name, row := range map[string]struct {
		cfg    Config
		policy redeliver.Policy
		want   int
	}{
		"jitter":                {Config{}, redeliver.Policy{}, defaultJitterPrefetch},
		"none":                  {Config{}, still, 2 * DefaultMaxInFlight},
		"set":                   {Config{RetryPrefetch: 150}, redeliver.Policy{}, 150},
		"many and jitter":       {Config{MaxInFlight: 3000}, redeliver.Policy{}, 6000},
		"more than the maximum": {Config{MaxInFlight: 60_000}, still, maxPrefetch},
		"delays not listed":     {Config{}, redeliver.Policy{Backoff: unlisted{}}, defaultJitterPrefetch},
		"its own MaxRetries":    {Config{MaxRetriesInFlight: 5}, still, 10},
	} {
		t.Run(name, func(t *testing.T) {
			if got := row.cfg.withDefaults().retryPrefetch(row.policy.WithDefaults()); got != row.want {
				t.Errorf("%d, want %d", got, row.want)
			}
		})
	}
}

// unlisted is a backoff that cannot list its delays.
type unlisted struct{}

func (unlisted) Delay(int, float64) (time.Duration, bool) { return time.Second, true }

func TestQueueHasItsOwnPolicy(t *testing.T) {
	cfg := Config{Policy: redeliver.Policy{MaxRetries: 1}, Queues: map[string]redeliver.Policy{"orders": {MaxRetries: 9}}}
	own, field := cfg.policy("orders")
	other, otherField := cfg.policy("other")
	if own.MaxRetries != 9 || other.MaxRetries != 1 || field != `Queues["orders"]` || otherField != "Policy" {
		t.Errorf("%d retries of %s and %d of %s, want 9 and 1", own.MaxRetries, field, other.MaxRetries, otherField)
	}
}

func TestDLQRetentionOfASecondIsRefused(t *testing.T) {
	cfg := Config{URLs: []string{"amqp://localhost/"}, DLQ: deadletter.Config{Retention: time.Second}}.withDefaults()
	if problems := problemsOf(t, cfg.validate()); len(problems) != 1 || problems["DLQ.Retention"].Field == "" {
		t.Errorf("problems: %v", problems)
	}
}
