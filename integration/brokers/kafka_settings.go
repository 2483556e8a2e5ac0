package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// kafkaSettings returns the settings of every Kafka that the tests start, in either way. compose/kafka.yml repeats them
// for manual starts; TestComposeFileHasOurSettings compares the two.
func kafkaSettings() map[string]string {
	return map[string]string{
		// If the broker created topics automatically, that would hide a client that creates none, or the wrong one.
		"auto.create.topics.enable": "false",
		"num.partitions":            "4",
		// Groups form at once, and a killed member is removed within seconds.
		"group.initial.rebalance.delay.ms": "0",
		"group.min.session.timeout.ms":     "1000",
		// The same for share groups, and tests need not wait long for the end of a record's lock.
		"group.share.heartbeat.interval.ms":       "500",
		"group.share.min.heartbeat.interval.ms":   "500",
		"group.share.min.record.lock.duration.ms": "1000",
		// There is one node.
		"offsets.topic.replication.factor":                 "1",
		"transaction.state.log.replication.factor":         "1",
		"transaction.state.log.min.isr":                    "1",
		"share.coordinator.state.topic.replication.factor": "1",
		"share.coordinator.state.topic.min.isr":            "1",
		// After a SIGKILL the node may not register again before its former session is over, see KafkaOptions.Session.
		"broker.heartbeat.interval.ms": "500",
		"broker.session.timeout.ms":    "3000",
	}
}

// kafkaNative returns the settings of a single KRaft node on loopback ports.
func kafkaNative(o KafkaOptions, dataDir string, port, controllerPort, usersPort int) map[string]string {
	p := kafkaSettings()
	maps.Copy(p, map[string]string{
		"process.roles":                  "broker,controller",
		"node.id":                        "1",
		"controller.quorum.voters":       fmt.Sprintf("1@127.0.0.1:%d", controllerPort),
		"listeners":                      fmt.Sprintf("PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d", port, controllerPort),
		"advertised.listeners":           fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port),
		"controller.listener.names":      "CONTROLLER",
		"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", // before 3.x there is no default
		"inter.broker.listener.name":     "PLAINTEXT",
		"log.dirs":                       dataDir,
	})
	if o.Session > 0 {
		p["broker.session.timeout.ms"] = strconv.FormatInt(o.Session.Milliseconds(), 10)
	}
	if o.Brief {
		// Each partition of these topics has files that are created and mapped. Kafka's default is 50 partitions.
		p["offsets.topic.num.partitions"] = "8"
		p["transaction.state.log.num.partitions"] = "8"
	}
	if len(o.Users) > 0 {
		kafkaUsers(p, o.Users, "127.0.0.1", usersPort)
	}
	maps.Copy(p, o.Properties)
	return p
}

// properties returns p in the format of server.properties.
func properties(p map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(p)) {
		// A backslash is an escape character in this format, even in values.
		fmt.Fprintf(&b, "%s=%s\n", k, strings.ReplaceAll(p[k], `\`, `\\`))
	}
	return b.String()
}

// imageVariable returns the variable by which the image of Apache Kafka sets a property.
func imageVariable(property string) string {
	return "KAFKA_" + strings.ToUpper(strings.NewReplacer("_", "__", "-", "___", ".", "_").Replace(property))
}
