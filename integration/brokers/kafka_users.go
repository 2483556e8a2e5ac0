package brokers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// usersListener is the listener on which the users of KafkaOptions.Users log in.
const usersListener = "USERS"

// kafkaUsers turns Kafka's authorizer on, and adds a listener on which users log in with SASL/PLAIN. They may do what
// ACLs allow. Clients of the other listeners, which have no name, may do everything: the broker itself, and the test
// that grants the rights.
func kafkaUsers(p, users map[string]string, host string, port int) {
	p["listeners"] += fmt.Sprintf(",%s://%s:%d", usersListener, host, port)
	p["advertised.listeners"] += fmt.Sprintf(",%s://127.0.0.1:%d", usersListener, port)
	p["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT," + usersListener + ":SASL_PLAINTEXT"
	p["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
	p["super.users"] = "User:ANONYMOUS"
	p["sasl.enabled.mechanisms"] = "PLAIN"
	var jaas strings.Builder
	jaas.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, name := range slices.Sorted(maps.Keys(users)) {
		fmt.Fprintf(&jaas, ` user_%s="%s"`, name, users[name])
	}
	p["listener.name."+strings.ToLower(usersListener)+".plain.sasl.jaas.config"] = jaas.String() + ";"
}

// userAddrs returns the value of UserAddrs.
func (o KafkaOptions) userAddrs(port int) []string {
	if len(o.Users) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("127.0.0.1:%d", port)}
}

// UserAddrs returns the addresses at which the users of KafkaOptions.Users log in, host:port of each node.
func (b *Broker) UserAddrs() []string { return slices.Clone(b.userAddrs) }
