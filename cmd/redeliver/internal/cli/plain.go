package cli

import (
	"net/url"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// plainPasswords warns of passwords that are sent unencrypted to another machine: to the broker, or to RabbitMQ's
// management API if there is one.
func plainPasswords(u brokerurl.URL, api string) (warnings []string) {
	if u.PlainPassword() {
		secure := map[brokerurl.Broker]string{
			brokerurl.RabbitMQ: "amqps://", brokerurl.Kafka: "kafka+tls://, or sasl=scram-sha-512", brokerurl.KafkaShare: "kafka+share+tls://, or sasl=scram-sha-512",
		}
		warnings = append(warnings, "the password for "+u.String()+" is sent without TLS: use "+secure[u.Broker])
	}
	return append(warnings, plainHTTP(api)...)
}

// plainHTTP warns of a password that is sent unencrypted to an address of another machine.
func plainHTTP(address string) []string {
	if at, err := url.Parse(address); err == nil && at.Scheme == "http" && !brokerurl.Loopback(at.Host) {
		return []string{"the password for " + at.Redacted() + " is sent without TLS: use https://"}
	}
	return nil
}
