package cli

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// defaultProfile is the profile that is used if nothing names a broker.
const defaultProfile = "default"

// initRow is what init prints.
type initRow struct {
	File    string `json:"file"`
	Profile string `json:"profile"`
}

// yamlText returns a text as a YAML value. JSON strings are valid YAML.
func yamlText(text string) string {
	if plainYAML.MatchString(text) {
		return text
	}
	quoted, _ := json.Marshal(text) //nolint:errchkjson // a string cannot fail
	return string(quoted)
}

var plainYAML = regexp.MustCompile(`^[a-z][a-zA-Z0-9._/@+?=,-]*(://[a-zA-Z0-9._/@+?=,-]*)?(:[0-9a-zA-Z._/@+?=,-]+)*$`)

// profileName matches a name that needs no quotes in YAML.
var profileName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*$`)

// profileTemplate is the file that init writes.
const profileTemplate = `# Profiles of the command redeliver: one for each broker.
# A verb uses the profile "default" unless --profile, --broker, $REDELIVER_PROFILE or $REDELIVER_BROKER
# names another broker.

{{name}}:
  # The URL of the broker, without a password:
  #   kafka://host:9092[,host2:9092]                        Kafka
  #   kafka+tls://user@host:9093?sasl=scram-sha-512         Kafka with TLS and a login
  #   kafka+share://host:9092, kafka+share+tls://host:9093  share groups of Kafka
  #   amqp://user@host:5672/vhost, amqps://user@host/vhost  RabbitMQ
  #   sqs://eu-central-1, sqs+http://localhost:9324         Amazon SQS, or a local server
  broker: {{broker}}

  # Kafka: the consumer group, for commands that are given --topic and not --group.
  {{group}}

  # The file with the password of the URL's user, on one line. A relative path starts at this file.
  # password-file: password

  # RabbitMQ: the management API. AMQP cannot list queues, so "redeliver dlq list" needs it.
  # management-url: http://host:15672

  # RabbitMQ and SQS: the keys that the consumers sign redeliver's state with (Config.StateKeys), one per line.
  # state-key-file: state-keys

# Another broker, for: redeliver dlq list --profile staging
# staging:
#   broker: kafka://staging:9092
`

func initCommand(a *app) *cobra.Command {
	var broker, group string
	cmd := &cobra.Command{
		Use: "init [NAME]", Short: "Write a commented profile",
		Long: `Write a commented profile, so that other commands need no --broker.

The file is --config, $` + envConfig + `, or redeliver/config.yaml in the user's configuration
directory. A file that exists is never changed. NAME is the name of the profile, by default
"default", which commands use unless another broker or profile is given.`,
		Example: `  redeliver init
  redeliver init production --broker kafka+tls://ops@kafka-1:9093?sasl=scram-sha-512 --group billing`,
		Args: atMostOne("the name of one profile"),
		RunE: func(_ *cobra.Command, args []string) error {
			row := initRow{Profile: defaultProfile}
			if len(args) > 0 {
				row.Profile = args[0]
			}
			if !profileName.MatchString(row.Profile) {
				return usagef("the profile's name is %q: must be letters, digits, dots, dashes and underscores, and begin with a letter", row.Profile)
			}
			user, _, hasUser := strings.Cut(broker, "@")
			_, user, _ = strings.Cut(user, "://")
			if hasUser && strings.Contains(user, ":") {
				return usagef("--broker has a password: omit it, and write it into the password-file of the profile")
			}
			password := "" // a URL with a user needs a password, which comes from a file later
			if hasUser {
				password = "unknown"
			}
			if _, err := brokerurl.ParseWith(broker, password, brokers...); err != nil {
				return usagef("%s: %w", strings.TrimSpace("--broker "+brokerurl.Shown(broker)), err)
			}
			var err error
			if row.File, err = a.conn.configPath(a.Env); err != nil {
				return usagef("there is no configuration directory, so give --config: %w", err)
			}
			line := "# group: billing"
			if group != "" {
				line = "group: " + yamlText(group)
			}
			text := strings.NewReplacer("{{name}}", row.Profile, "{{broker}}", yamlText(broker), "{{group}}", line).Replace(profileTemplate)
			if err := os.MkdirAll(filepath.Dir(row.File), 0o700); err != nil {
				return failed(codeFailed, "creating the directory of the profiles: %w", err)
			}
			file, err := os.OpenFile(row.File, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return failed(codeFailed, "%s exists already, and init does not change it: edit it, or name another file with --config", row.File)
			}
			if err == nil {
				_, err = file.WriteString(text)
				err = errors.Join(err, file.Close())
			}
			if err != nil {
				return failed(codeFailed, "writing the profile: %w", err)
			}
			next := "redeliver dlq list"
			if row.Profile != defaultProfile {
				next += " --profile " + row.Profile
			}
			a.sayf("Edit the file if something is missing, then try: %s", next)
			return a.printOne(row, func(c *details) {
				c.line("file", row.File)
				c.line("profile", row.Profile)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&broker, "broker", "kafka://localhost:9092", "The `URL` of the broker, without a password")
	flags.StringVar(&group, "group", "", "Kafka: the consumer `group` for commands that are given --topic and not --group")
	flags.StringVar(&a.conn.config, "config", "", "Write this `file` (default $"+envConfig+", or redeliver/config.yaml in the user's configuration directory)")
	return cmd
}
