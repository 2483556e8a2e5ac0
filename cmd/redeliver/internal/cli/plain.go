package cli

import (
	"net/url"
	"strings"

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

// plainSecrets warns of the other secrets of a subscription that are sent unencrypted to another machine.
func (f *runFlags) plainSecrets() (warnings []string) {
	warn := func(what, host, instead string) {
		if !brokerurl.Loopback(host) {
			warnings = append(warnings, what+" for "+host+" is sent without TLS: use "+instead)
		}
	}
	if f.to != nil && f.to.Scheme == "http" {
		switch {
		case f.bearer != nil: // it replaces the other
			warn("the token of --bearer-file", f.to.Host, "https://")
		case f.authorization != "":
			warn(envAuthorization, f.to.Host, "https://")
		}
	}
	if to := f.webhook.to; to != nil && to.Scheme == "http" {
		if f.webhook.authorization != "" {
			warn(envWebhookAuthorization, to.Host, "https://")
		} else if strings.Trim(to.Path, "/") != "" || to.RawQuery != "" {
			warn("the path of --on-dead-letter, which may be a secret,", to.Host, "https://")
		}
	}
	if r := f.dedup.redis; r != nil && r.Password != "" && r.TLSConfig == nil && r.Network != "unix" {
		warn("the password of --dedup", r.Addr, "rediss://")
	}
	return warnings
}

// plainHTTP warns of a password that is sent unencrypted to an address of another machine.
func plainHTTP(address string) []string {
	if at, err := url.Parse(address); err == nil && at.Scheme == "http" && !brokerurl.Loopback(at.Host) {
		return []string{"the password for " + at.Redacted() + " is sent without TLS: use https://"}
	}
	return nil
}
