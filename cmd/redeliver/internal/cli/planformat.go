package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// The formats in which a plan is made by something else than redeliver, for shops that
// forbid provisioning.
const (
	formatText           = "text"
	formatKafkaTopics    = "kafka-topics"
	formatKafkaACLs      = "kafka-acls"
	formatRabbitMQ       = "rabbitmq-definitions"
	formatCloudFormation = "sqs-cloudformation"
	formatIAM            = "iam"
)

// Whose rights are written: --for.
const (
	forConsumer = "consumer"
	forOperator = "operator"
)

// formatsOf are those of each broker.
var formatsOf = map[brokerurl.Broker][]string{
	brokerurl.Kafka:    {formatKafkaTopics, formatKafkaACLs},
	brokerurl.RabbitMQ: {formatRabbitMQ},
	brokerurl.SQS:      {formatCloudFormation, formatIAM},
}

// allFormats are what plan --format takes.
func allFormats() []string {
	all := []string{formatText, formatJSON}
	for _, broker := range brokers {
		all = append(all, formatsOf[broker]...)
	}
	return all
}

// making is what the flags say of a plan that something else makes.
type making struct {
	format    string
	principal string // Kafka's "User:billing", or RabbitMQ's user
	whose     string // --for
	account   string // of AWS
}

// maker writes a plan in one format, and says what is worth knowing about it.
type maker func(m *making) (text string, notes []string, err error)

// check refuses what no broker has to be asked for.
func (m *making) check(broker brokerurl.Broker) error {
	if m.whose != forConsumer && m.whose != forOperator {
		return usagef("--for is %q: it must be %s, or %s for who works on the DLQ", m.whose, forConsumer, forOperator)
	}
	if m.format == "" || m.format == formatText || m.format == formatJSON {
		return nil
	}
	for _, of := range slices.Sorted(maps.Keys(formatsOf)) {
		if !slices.Contains(formatsOf[of], m.format) {
			continue
		}
		if of != broker {
			return usagef("--format %s is of %s, and the broker is %s: there it is %s", m.format, called(of), called(broker), strings.Join(formatsOf[broker], " or "))
		}
		if m.format == formatKafkaACLs {
			return m.checkPrincipal()
		}
		return nil
	}
	return usagef("--format is %q: it must be one of %s", m.format, strings.Join(allFormats(), ", "))
}

// checkPrincipal refuses what kafka-acls.sh would read otherwise than it is meant.
func (m *making) checkPrincipal() error {
	if kind, name, ok := strings.Cut(m.principal, ":"); !ok || kind == "" || name == "" {
		return usagef("--principal is %q: %s wants it with its type, as Kafka has it: User:billing", m.principal, m.format)
	}
	return sayable("--principal", m.principal)
}

// sayable refuses a name that kafka-acls.sh would change: it cuts blanks off, and a
// star is all there are.
func sayable(what, name string) error {
	switch {
	case name != strings.TrimSpace(name):
		return usagef("%s is %q: kafka-acls.sh would cut the blanks off", what, name)
	case name == "*":
		return usagef("%s is *, which in ACLs means all there are", what)
	case visible(name) != name:
		return usagef("%s is %q: a script with such a name in it cannot be read", what, name)
	default:
		return nil
	}
}

// shell is an argument as a POSIX shell reads it back. There is nothing in it that a
// line could not hold: see sayable.
func shell(arg string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("._-/:=,@%+", r)
	}
	if arg != "" && strings.IndexFunc(arg, func(r rune) bool { return !plain(r) }) < 0 {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// script is a POSIX shell script: what it is for, then a command in each line.
func script(tool string, hosts []string, lines [][]string, comments ...string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, c := range comments {
		fmt.Fprintf(&b, "# %s\n", visible(c))
	}
	b.WriteString("set -eu\n")
	for _, line := range lines {
		// What the script is called with goes to each command: how to log in.
		b.WriteString(tool + ` "$@" --bootstrap-server ` + shell(strings.Join(hosts, ",")))
		for _, arg := range line {
			b.WriteString(" " + shell(arg))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// byName orders what a plan has, so that the same plan is the same file.
func byName[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// jsonFile is a file of JSON.
func jsonFile(v any) (string, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing %T as JSON: %w", v, err)
	}
	return harmless(string(text)) + "\n", nil
}
