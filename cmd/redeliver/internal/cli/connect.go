package cli

import (
	"cmp"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// The environment variables. They override a profile, and flags override them.
const (
	envProfile  = "REDELIVER_PROFILE"
	envConfig   = "REDELIVER_CONFIG"
	envPassword = "REDELIVER_PASSWORD"
	envWho      = "REDELIVER_WHO"

	envManagement = "REDELIVER_MANAGEMENT_URL"
)

var brokers = []brokerurl.Broker{brokerurl.Kafka, brokerurl.KafkaShare, brokerurl.RabbitMQ, brokerurl.SQS}

// connection configures how the broker is reached.
type connection struct {
	broker       string
	profile      string
	config       string
	passwordFile string
	management   string
	stateKeyFile string
	maxBatch     int32

	from      string  // source of the broker for errors, such as --broker kafka://host:9092
	loaded    profile // set by c.url
	loadedAPI string  // the management-url of loaded, if its broker is used
}

func (c *connection) flags(flags *pflag.FlagSet) {
	flags.StringVar(&c.broker, "broker", "", "The `URL` of the broker (default $"+brokerurl.Env+", or the profile's)")
	flags.StringVar(&c.profile, "profile", "", "Use the profile with this `name` (default $"+envProfile+", or the profile \"default\" if there is one)")
	flags.StringVar(&c.config, "config", "", "Read profiles from this YAML `file` (default $"+envConfig+", or redeliver/config.yaml in the user's configuration directory)")
	flags.StringVar(&c.passwordFile, "password-file", "", "Read the password of the URL's user from this `file` (default the value of $"+envPassword+")")
	flags.StringVar(&c.management, "management-url", "", "RabbitMQ: the `URL` of the management API, http://host:15672. AMQP cannot list queues (default $"+envManagement+", or the profile's)")
	flags.StringVar(&c.stateKeyFile, "state-key-file", "", "RabbitMQ and SQS: read the keys that sign redeliver's state from this `file`, one per line. The first key signs, and every key verifies (default the profile's)")
	flags.Int32Var(&c.maxBatch, "max-batch-bytes", brokerurl.MaxDecompressedBatch, "Kafka: decompress no batch of records to more than this `number` of bytes")
}

// url returns the URL of the broker. Its errors contain no password.
func (c *connection) url(env func(string) string) (brokerurl.URL, error) {
	name := cmp.Or(c.profile, env(envProfile))
	if name == "" && c.broker == "" && env(brokerurl.Env) == "" {
		if all, _, err := c.profiles(env); err == nil && all[defaultProfile].Broker != "" {
			name = defaultProfile
		}
	}
	if name != "" {
		p, err := c.findProfile(env, name)
		if err != nil {
			return brokerurl.URL{}, err
		}
		c.loaded = p
	}
	raw, file := cmp.Or(c.broker, env(brokerurl.Env)), c.passwordFile
	if c.from = "--broker"; c.broker == "" {
		c.from = "$" + brokerurl.Env
	}
	// --profile overrides an environment variable, and --broker overrides both.
	if c.loaded.Broker != "" && c.broker == "" && (raw == "" || c.profile != "") {
		raw, file, c.loadedAPI = c.loaded.Broker, cmp.Or(file, c.loaded.PasswordFile), c.loaded.Management
		c.from = "the broker of profile " + name
	}
	if raw == "" {
		return brokerurl.URL{}, usagef("no broker given: give --broker URL, set $%s, or write a profile with \"redeliver init\"", brokerurl.Env)
	}
	password, err := readPassword(env, file)
	if err != nil {
		return brokerurl.URL{}, err
	}
	u, err := brokerurl.ParseWith(raw, password, brokers...)
	if err != nil {
		return brokerurl.URL{}, usagef("%s: %w", strings.TrimSpace(c.from+" "+brokerurl.Shown(raw)), err)
	}
	c.from += " " + u.String()
	if u.MaxBatch = c.maxBatch; u.MaxBatch < 1<<10 {
		return u, usagef("--max-batch-bytes is %d: must be at least 1024", u.MaxBatch)
	}
	u.StateKeys, err = readStateKeys(cmp.Or(c.stateKeyFile, c.loaded.StateKeyFile))
	return u, err
}

// readPassword returns the password that is not in the URL. The file overrides the environment.
func readPassword(env func(string) string, file string) (string, error) {
	if file == "" {
		return env(envPassword), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("reading the password: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case password == "":
		return "", usagef("the password file %s is empty", file)
	case strings.ContainsAny(password, "\r\n"):
		return "", usagef("the password file %s has more than one line", file)
	default:
		return password, nil
	}
}

// readStateKeys reads the keys of a file, one per line.
func readStateKeys(file string) (keys [][]byte, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("reading the state keys: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			keys = append(keys, []byte(line))
		}
	}
	if len(keys) == 0 {
		return nil, usagef("the state key file %s is empty: write one key of at least 16 random bytes on each line", file)
	}
	return keys, nil
}

var errNoProfiles = errors.New("there is no file of profiles")

// findProfile returns a profile.
func (c *connection) findProfile(env func(string) string, name string) (profile, error) {
	all, path, err := c.profiles(env)
	if err != nil {
		hint := ""
		if errors.Is(err, errNoProfiles) {
			hint = "; write one with \"redeliver init\""
		}
		return profile{}, usagef("profile %s: %w%s", name, err, hint)
	}
	p, ok := all[name]
	if !ok {
		return profile{}, usagef("there is no profile %s in %s%s", name, path, didYouMean(name, "", slices.Sorted(maps.Keys(all))))
	}
	if p.Broker == "" {
		return profile{}, usagef("profile %s in %s has no broker", name, path)
	}
	for _, file := range []*string{&p.PasswordFile, &p.StateKeyFile} {
		if *file != "" && !filepath.IsAbs(*file) { // relative to the file of profiles
			*file = filepath.Join(filepath.Dir(path), *file)
		}
	}
	return p, nil
}

// profileNames returns the names of the profiles for shell completion.
func (c *connection) profileNames(env func(string) string) (names []string) {
	all, _, err := c.profiles(env)
	if err != nil {
		return nil
	}
	for name, p := range all {
		names = append(names, name+"\t"+p.Group)
	}
	slices.Sort(names)
	return names
}
