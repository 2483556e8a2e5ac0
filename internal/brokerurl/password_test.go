package brokerurl_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// A password that is passed beside the URL belongs to the user in the URL.
func TestParseWithAPassword(t *testing.T) {
	t.Parallel()
	const secret = "p:@/?#% s"
	for _, raw := range []string{"kafka://ann@host:9092", "kafka+tls://ann@a:1,b:2?sasl=scram-sha-256", "amqp://ann@host/v", "amqps://ann:@host", "sqs+http://ann@host:9324"} {
		u, err := brokerurl.ParseWith(raw, secret, all...)
		if err != nil || u.User != "ann" || u.Password != secret {
			t.Errorf("%s: user %q, password %q, %v", raw, u.User, u.Password, err)
		}
		if _, err := brokerurl.ParseWith(raw, "", all...); err == nil {
			t.Errorf("%s is accepted without a password", raw)
		}
	}
	for raw, says := range map[string]string{
		"kafka://host:9092":           "no user",
		"amqp://host":                 "no user",
		"sqs://eu-central-1":          "the AWS configuration",
		"kafka://ann:0ther@host:9092": "omit one",
		"kafka://:0ther@host:9092":    "omit one",
		"kafka://@host:9092":          "needs a user",
	} {
		_, err := brokerurl.ParseWith(raw, secret, all...)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "0ther") {
			t.Errorf("%s: %v, want that it says %q", raw, err, says)
		}
	}
}
