package brokerurl_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// For any address, an error contains no part of a password, and a result names hosts or a region.
func FuzzParse(f *testing.F) {
	for _, url := range []string{
		"kafka://localhost:9092", "kafka://a:9092,b:9093,", "kafka+tls://ops:XsecretX@h:9093?sasl=scram-sha-512", "amqp://guest:XsecretX@h:5672/%2F?heartbeat=5",
		"amqps://u:p%XsecretX@h/", "sqs://eu-central-1", "sqs+http://h:9324?XsecretX=1", "kafka://[::1]:9092", "kafka://u:a@XsecretX@h:1", "amqp://h:0/", "://", "kafka://h:9092#XsecretX",
		"sqs://XsecretX", "amqp://:XsecretX@h", "kafka://u:x/XsecretX@h", "kafka://u:p@XsecretX", "kafka://u:1,XsecretX",
	} {
		f.Add(url, "")
		f.Add(url, "XsecretX")
	}
	f.Fuzz(func(t *testing.T, url, password string) {
		u, err := brokerurl.ParseWith(url, password, brokerurl.Kafka, brokerurl.KafkaShare, brokerurl.RabbitMQ, brokerurl.SQS)
		if err != nil {
			// The text between :// and the first colon is a user or a host, never a password. A password may be
			// anywhere after that if there is an @, and in all of it if nothing ends the hosts.
			_, behind, _ := strings.Cut(url, "://")
			_, behind, _ = strings.Cut(behind, ":")
			if strings.Contains(behind, "XsecretX") && !strings.Contains(strings.TrimSuffix(url, behind), "XsecretX") && (strings.Contains(behind, "@") || !strings.ContainsAny(behind, "/?#")) && strings.Contains(err.Error(), "XsecretX") {
				t.Errorf("%q: %v", url, err)
			}
			return
		}
		if len(u.Hosts) == 0 && u.Region == "" {
			t.Errorf("%q names nothing: %+v", url, u)
		}
		if u.User == "" && u.Password != "" {
			t.Errorf("%q: a password and no user", url)
		}
	})
}
