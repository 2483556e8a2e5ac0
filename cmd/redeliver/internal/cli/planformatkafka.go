package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// kafkaFormatters returns the formatters for Kafka's own tools. order is that of the policy.
func kafkaFormatters(p *mq.Plan, hosts []string, order redeliver.Order) map[string]planFormatter {
	return map[string]planFormatter{
		formatKafkaTopics: func(*formatFlags) (string, []string, error) { return kafkaTopics(p, hosts), nil, nil },
		formatKafkaACLs: func(m *formatFlags) (string, []string, error) {
			if err := checkScriptName("--group", p.Group); err != nil {
				return "", nil, err
			}
			return kafkaACLs(p, hosts, order, m), nil, nil
		},
	}
}

// kafkaTopics returns a script with one kafka-topics.sh per topic. It omits the levels of older policies.
func kafkaTopics(p *mq.Plan, hosts []string) string {
	var lines [][]string
	for _, t := range slices.Concat(p.Places, p.OperatorPlaces) {
		if t.Old {
			continue
		}
		line := []string{
			"--create", "--if-not-exists", "--topic", t.Name,
			"--partitions", strconv.Itoa(int(t.Partitions)), "--replication-factor", strconv.Itoa(int(t.Replicas)),
		}
		for _, name := range slices.Sorted(maps.Keys(t.Settings)) {
			line = append(line, "--config", name+"="+t.Setting(name))
		}
		lines = append(lines, line)
	}
	return script("kafka-topics.sh", hosts, lines,
		fmt.Sprintf("The topics that group %s needs besides %s, with every setting that is not a broker's default.", p.Group, p.Origin),
		"A service may refuse segment.bytes, unclean.leader.election.enable and min.compaction.lag.ms: leave them out then.",
		"Run it with sh FILE, or to log in: sh FILE --command-config admin.properties")
}

// kafkaACLs returns a script with one kafka-acls.sh per topic and for the group.
func kafkaACLs(p *mq.Plan, hosts []string, order redeliver.Order, m *formatFlags) string {
	rights, what := p.Rights, fmt.Sprintf("The rights that %s needs to consume %s as group %s, with retries and a DLQ.", m.principal, p.Origin, p.Group)
	if m.role == forOperator {
		rights, what = p.OperatorRights, fmt.Sprintf("The rights that %s needs to work on the DLQ of %s and group %s with redeliver dlq and redeliver doctor.", m.principal, p.Origin, p.Group)
	}
	var lines [][]string
	for _, r := range rights {
		line := []string{"--add", "--allow-principal", m.principal}
		for _, o := range r.Operations {
			line = append(line, "--operation", o)
		}
		lines = append(lines, append(line, "--"+r.Resource, r.Name))
	}
	comments := []string{what, "Run it with sh FILE, or to log in: sh FILE --command-config admin.properties"}
	if m.role == forConsumer {
		comments = append(comments, fmt.Sprintf("This group delivers messages that are published to %s with a delay. If there are any, it also needs Write on %s.", p.Origin, p.Origin))
		if order == redeliver.OrderThroughRetries {
			comments = append(comments, fmt.Sprintf("The order is through-retries. Without NoProvisioning it also needs Alter on the delay and retry topics, to add partitions when %s gets more.", p.Origin))
		}
	}
	return script("kafka-acls.sh", hosts, lines, comments...)
}
