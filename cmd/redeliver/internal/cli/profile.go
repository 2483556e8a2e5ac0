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

// profile configures how one broker is reached. The file contains profiles by name:
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
	if path, err = c.configPath(env); err != nil {
		return nil, "", fmt.Errorf("%w (%w)", errNoProfiles, err)
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
		return nil, path, fmt.Errorf("reading the profiles in %s: %s", path, quoted.ReplaceAllString(err.Error(), "the value"))
	}
	return all, path, nil
}

// configPath returns the path of the file of profiles.
func (c *connection) configPath(env func(string) string) (string, error) {
	if path := cmp.Or(c.config, env(envConfig)); path != "" {
		return path, nil
	}
	dir := env("XDG_CONFIG_HOME")
	if dir == "" {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "redeliver", "config.yaml"), nil
}

// quoted matches text of the file that the YAML parser's errors quote. It may be a password.
var quoted = regexp.MustCompile("`[^`]*`")
