package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// profile is what somebody always says of one broker. The file holds them by name:
//
//	production:
//	  broker: kafka+tls://ops@kafka-1:9093,kafka-2:9093?sasl=scram-sha-512
//	  group: billing
//	  password-file: /run/secrets/kafka
type profile struct {
	Broker       string `yaml:"broker"`
	Group        string `yaml:"group"`
	PasswordFile string `yaml:"password-file"`
	Management   string `yaml:"management-url"`
	StateKeyFile string `yaml:"state-key-file"`
}

// profiles reads the file.
func (c *connection) profiles(env func(string) string) (all map[string]profile, path string, err error) {
	path = cmp.Or(c.config, env(envConfig))
	if path == "" {
		dir, err := configDir(env)
		if err != nil {
			return nil, "", fmt.Errorf("%w: %w; name one with --config", errNoProfiles, err)
		}
		path = filepath.Join(dir, "redeliver", "config.yaml")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, path, fmt.Errorf("%w at %s", errNoProfiles, path)
	}
	if err != nil {
		return nil, path, fmt.Errorf("reading the profiles: %w", err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(&all); err != nil && !errors.Is(err, io.EOF) {
		return nil, path, fmt.Errorf("the profiles in %s cannot be read: %s", path, quoted.ReplaceAllString(err.Error(), "what stands there"))
	}
	return all, path, nil
}

// quoted is what the YAML reader repeats of the file: it may be of a password.
var quoted = regexp.MustCompile("`[^`]*`")

// configDir is where this user's configurations are.
func configDir(env func(string) string) (string, error) {
	if dir := env("XDG_CONFIG_HOME"); dir != "" {
		return dir, nil
	}
	return os.UserConfigDir()
}
