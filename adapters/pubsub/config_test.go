package pubsub

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
)

// All problems are in one error, each with its field.
func TestOpenRefusesInvalidConfig(t *testing.T) {
	m := newMemoryBroker().member(t, "billing")
	whole := checkConfig(m, m)
	whole.MaxUnacked = 10 * time.Minute
	for name, c := range map[string]struct {
		change func(*Config)
		fields []string
	}{
		"nothing":                  {func(c *Config) { *c = Config{} }, []string{"Publisher", "Subscriber", "Group", "Confirms", "MaxUnacked"}},
		"no confirms":              {func(c *Config) { c.Confirms = false }, []string{"Confirms"}},
		"negative limit":           {func(c *Config) { c.MaxUnacked = -2 }, []string{"MaxUnacked"}},
		"long attempts":            {func(c *Config) { c.MaxUnacked = 5 * time.Minute }, []string{"Policy.Timeout"}},
		"immediate tries":          {func(c *Config) { c.Policy.Immediate = 1 }, []string{"Policy.Timeout"}},
		"endless attempts":         {func(c *Config) { c.Policy.Timeout = redeliver.NoTimeout }, []string{"Policy.Timeout"}},
		"endless, no limit":        {func(c *Config) { c.Policy.Timeout, c.MaxUnacked = redeliver.NoTimeout, NoLimit }, nil},
		"many levels":              {func(c *Config) { c.Policy.MaxLevels = 9 }, []string{"Policy.MaxLevels"}},
		"a topic's policy":         {func(c *Config) { c.Topics = map[string]redeliver.Policy{"x": {MaxRetries: -9}} }, []string{`Topics["x"].MaxRetries`}},
		"negative times":           {func(c *Config) { c.NackDelay, c.DrainTimeout, c.SendTimeout = -1, -1, -1 }, []string{"NackDelay", "DrainTimeout", "SendTimeout"}},
		"too many in flight":       {func(c *Config) { c.MaxInFlight = 1001 }, []string{"MaxInFlight"}},
		"none in flight":           {func(c *Config) { c.MaxInFlight = -1 }, []string{"MaxInFlight"}},
		"shrinks to less":          {func(c *Config) { c.MinInFlight = -1 }, []string{"MinInFlight"}},
		"shrinks to more":          {func(c *Config) { c.MaxInFlight, c.MinInFlight = 4, 5 }, []string{"MinInFlight"}},
		"turns that take too long": {func(c *Config) { c.MaxInFlight, c.MinInFlight = 4, 4 }, []string{"MinInFlight"}}, // two attempts of 5.5 minutes
		"turns that fit":           {func(c *Config) { c.MaxInFlight, c.MinInFlight, c.Policy.Timeout = 4, 4, 4*time.Minute+30*time.Second }, nil},
		"turns, no limit":          {func(c *Config) { c.MaxInFlight, c.MinInFlight, c.MaxUnacked = 4, 1, NoLimit }, nil},
		"a low rate":               {func(c *Config) { c.Policy.Rate.PerSecond = 0.1 }, []string{"Policy.Rate.PerSecond"}}, // 32 lanes of 10 s
		"a rate that suffices":     {func(c *Config) { c.Policy.Rate.PerSecond = 0.12 }, nil},
		"a low rate, no limit":     {func(c *Config) { c.Policy.Rate.PerSecond, c.MaxUnacked = 0.1, NoLimit }, nil},
		"the maximum":              {func(*Config) {}, nil},
		"the longest attempt":      {func(c *Config) { c.MaxUnacked = 5*time.Minute + 30*time.Second }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := whole
			c.change(&cfg)
			_, err := Open(t.Context(), cfg)
			var fields []string
			if bad, ok := errors.AsType[*redeliver.ConfigError](err); ok {
				for _, p := range bad.Problems {
					fields = append(fields, p.Field)
				}
			}
			if (err == nil) != (c.fields == nil) || !slices.Equal(fields, c.fields) {
				t.Errorf("refused for %v, want %v: %v", fields, c.fields, err)
			}
		})
	}
}

func TestTopicsOfASubscriptionMustDiffer(t *testing.T) {
	m := newMemoryBroker().member(t, "billing")
	cfg := checkConfig(m, m)
	cfg.Names.DLQ = func(topic, _ string) string { return topic }
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Subscriber().Subscribe(t.Context(), "orders"); !errors.Is(err, redeliver.ErrConfig) {
		t.Errorf("a DLQ that is the origin: %v, want a ConfigError", err)
	}
	cfg.Names.DLQ = func(string, string) string { return "dead" }
	if c, err = Open(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for i, topic := range []string{"orders", "refunds"} {
		if err := c.Subscriber().SubscribeInitialize(topic); (err == nil) != (i == 0) {
			t.Errorf("a DLQ of two topics, topic %d: %v", i, err)
		}
	}
}

// A service may read its own DLQ. Its retry and delay topics have one reader: another one would take the group's
// retries as first deliveries.
func TestTopicsOfASubscriptionAreNoOrigins(t *testing.T) {
	m := newMemoryBroker().member(t, "billing")
	for topic, refused := range map[string]bool{"orders.billing.dlq": false, "orders.billing.retry": true, "orders.billing.retry.8": true} {
		for _, both := range [][2]string{{"orders", topic}, {topic, "orders"}} {
			c, err := Open(t.Context(), checkConfig(m, m))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Subscriber().SubscribeInitialize(both[0]); err != nil {
				t.Fatal(err)
			}
			if err := c.Subscriber().SubscribeInitialize(both[1]); errors.Is(err, redeliver.ErrConfig) != refused || (err != nil) != refused {
				t.Errorf("%s after %s: %v, want a ConfigError: %t", both[1], both[0], err, refused)
			}
		}
	}
}

// Two groups never share a name, and names are valid topics of Kafka.
func TestNamesOfGroupsDiffer(t *testing.T) {
	seen := make(map[string]string)
	for _, group := range []string{"a.b", "a_2eb", "a_5f2eb", "a b", "a_b", "ä", "A", "a"} {
		name := Names{}.delay("orders", group, 1)
		if other, ok := seen[name]; ok {
			t.Errorf("%q and %q share %s", group, other, name)
		}
		seen[name] = group
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzA0123456789._-") != "" {
			t.Errorf("%q has the name %q", group, name)
		}
	}
}
