package kafkaname

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// retentions are tried in order if a service refuses to keep records forever.
var retentions = []time.Duration{365 * 24 * time.Hour, 90 * 24 * time.Hour, 30 * 24 * time.Hour, 14 * 24 * time.Hour, 7 * 24 * time.Hour}

// Creation creates a topic on a broker that may refuse some of its settings. Managed services refuse settings that are
// only a safety net, and some whose default would do. So a refused setting is left out, and who creates the topic reads
// back what it has.
type Creation struct {
	Topic    string
	Settings map[string]string
	// Kept is the shortest retention.ms that will do, and BatchBytes the least max.message.bytes; 0 for none.
	Kept       time.Duration
	BatchBytes int
	// Try asks the broker for the topic. Refuses reports whether its error is about settings.
	Try     func(settings map[string]string) error
	Refuses func(error) bool
}

// Create creates the topic with as many of the settings as the broker takes. If it takes none, the error is the first.
func (c *Creation) Create() error {
	settings := maps.Clone(c.Settings)
	first := c.tryNamed(settings)
	if !c.Refuses(first) {
		return first
	}
	// The broker does not say which one it refuses: leave out the wished ones, then each other one, then all.
	maps.DeleteFunc(settings, func(name, _ string) bool { return IsWished(name) })
	if err := c.tryNamed(settings); !c.Refuses(err) {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		for without := maps.Clone(settings); without[name] != ""; {
			c.lower(without, name)
			if err := c.tryNamed(maps.Clone(without)); !c.Refuses(err) {
				return err
			}
		}
	}
	if err := c.Try(nil); !c.Refuses(err) {
		return err
	}
	return first
}

// tryNamed tries, and leaves out the settings that the refusals name. It returns the error of the last try.
func (c *Creation) tryNamed(settings map[string]string) error {
	for {
		err := c.Try(maps.Clone(settings))
		if !c.Refuses(err) {
			return err
		}
		named := namedIn(strings.ReplaceAll(err.Error(), c.Topic, ""), settings)
		if named == nil {
			return err
		}
		for _, name := range named {
			c.lower(settings, name)
		}
	}
}

// lower sets a setting to the next value that would do, or leaves it out.
func (c *Creation) lower(settings map[string]string, name string) {
	have, err := strconv.ParseInt(settings[name], 10, 64)
	switch {
	case err != nil:
	case name == "retention.ms" && c.Settings[name] == "-1":
		for _, r := range retentions {
			if r >= c.Kept && (have < 0 || r.Milliseconds() < have) {
				settings[name] = strconv.FormatInt(r.Milliseconds(), 10)
				return
			}
		}
	case name == "max.message.bytes" && int64(c.BatchBytes) < have && c.BatchBytes > 0:
		settings[name] = strconv.Itoa(c.BatchBytes)
		return
	}
	delete(settings, name)
}

// namedIn returns the settings that a text names. A longer name that contains a shorter one does not count for it.
func namedIn(text string, settings map[string]string) (named []string) {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
	for _, word := range words {
		if name := strings.Trim(word, "."); settings[name] != "" && !slices.Contains(named, name) {
			named = append(named, name)
		}
	}
	return named
}
