package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/shell"
)

// The formats of a plan that an administrator applies without redeliver.
const (
	formatKafkaTopics    = "kafka-topics"
	formatKafkaACLs      = "kafka-acls"
	formatRabbitMQ       = "rabbitmq-definitions"
	formatCloudFormation = "sqs-cloudformation"
	formatIAM            = "iam"
)

// The values of --for: the role whose rights are written.
const (
	forConsumer = "consumer"
	forOperator = "operator"
)

// formatsOf maps each broker to its formats.
var formatsOf = map[brokerurl.Broker][]string{
	brokerurl.Kafka:      {formatKafkaTopics, formatKafkaACLs},
	brokerurl.KafkaShare: {formatKafkaTopics, formatKafkaACLs},
	brokerurl.RabbitMQ:   {formatRabbitMQ},
	brokerurl.SQS:        {formatCloudFormation, formatIAM},
}

// allFormats returns the values of plan --format.
func allFormats() (all []string) {
	for _, broker := range []brokerurl.Broker{brokerurl.Kafka, brokerurl.RabbitMQ, brokerurl.SQS} {
		all = append(all, formatsOf[broker]...)
	}
	return all
}

// formatFlags are the flags of a plan that an administrator applies.
type formatFlags struct {
	format    string
	principal string // "User:billing" on Kafka, the user on RabbitMQ
	role      string // --for
	account   string // AWS account
}

// planFormatter returns a plan in one format, and notes about it.
type planFormatter func(m *formatFlags) (text string, notes []string, err error)

// check checks the flags before any request to the broker.
func (m *formatFlags) check(broker brokerurl.Broker) error {
	if err := mustBeOneOf("for", m.role, []string{forConsumer, forOperator}); err != nil {
		return err
	}
	if m.format == "" {
		return nil
	}
	if m.format == formatKafkaACLs && slices.Contains(formatsOf[broker], m.format) {
		return m.checkPrincipal()
	}
	for _, of := range slices.Sorted(maps.Keys(formatsOf)) {
		if slices.Contains(formatsOf[of], m.format) && !slices.Contains(formatsOf[broker], m.format) {
			return usagef("--format %s is for %s, and the broker is %s: use %s", m.format, displayName(of), displayName(broker), strings.Join(formatsOf[broker], " or "))
		}
	}
	return mustBeOneOf("format", m.format, allFormats())
}

// checkPrincipal refuses a principal that kafka-acls.sh would misinterpret.
func (m *formatFlags) checkPrincipal() error {
	if kind, name, ok := strings.Cut(m.principal, ":"); !ok || kind == "" || name == "" {
		return usagef("--principal is %q: with --format %s it must have its type, as in User:billing", m.principal, m.format)
	}
	return checkScriptName("--principal", m.principal)
}

// checkScriptName refuses a name that kafka-acls.sh would misinterpret: it trims spaces and treats * as all names.
func checkScriptName(what, name string) error {
	switch {
	case name != strings.TrimSpace(name):
		return usagef("%s is %q: kafka-acls.sh would cut off the spaces", what, name)
	case name == "*":
		return usagef("%s is *, which an ACL reads as every name", what)
	case visible(name) != name:
		return usagef("%s is %q: a script must not contain control characters", what, name)
	default:
		return nil
	}
}

// script returns a POSIX shell script: comments, then one command per line.
func script(tool string, hosts []string, lines [][]string, comments ...string) string {
	var b strings.Builder
	b.WriteString("#!/bin/sh\n")
	for _, c := range comments {
		fmt.Fprintf(&b, "# %s\n", visible(c))
	}
	b.WriteString("set -eu\n")
	for _, line := range lines {
		// The script passes its arguments to each command, because they configure the login.
		b.WriteString(tool + ` "$@" --bootstrap-server ` + shell.Quote(strings.Join(hosts, ",")))
		for _, arg := range line {
			b.WriteString(" " + shell.Quote(arg))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// jsonFile returns v as the content of a JSON file.
func jsonFile(v any) (string, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("writing %T as JSON: %w", v, err)
	}
	return escapeHidden(string(text)) + "\n", nil
}
