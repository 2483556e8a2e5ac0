package brokerurl_test

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

var both = []brokerurl.Broker{brokerurl.Kafka, brokerurl.RabbitMQ}

var all = append(both, brokerurl.KafkaShare, brokerurl.SQS)

func TestParseKafka(t *testing.T) {
	one := []string{"host:9092"}
	for raw, want := range map[string]brokerurl.URL{
		"kafka://host:9092":                       {Hosts: one},
		"kafka://host:9092/":                      {Hosts: one},
		"kafka://host:9092,host2:9093,[::1]:9094": {Hosts: []string{"host:9092", "host2:9093", "[::1]:9094"}},
		"kafka+tls://host:9092":                   {Hosts: one, TLS: true},
		"kafka+tls://user:pass@host:9092":         {Hosts: one, TLS: true, User: "user", Password: "pass", SASL: brokerurl.Plain},
		"kafka://user:pass@host:9092?sasl=plain":  {Hosts: one, User: "user", Password: "pass", SASL: brokerurl.Plain},
		"kafka+tls://user:pass@host:9093,b:9093?sasl=scram-sha-512": {
			Hosts: []string{"host:9093", "b:9093"}, TLS: true, User: "user", Password: "pass", SASL: brokerurl.ScramSHA512,
		},
		"kafka+tls://u%3As%40er:p%3A%40%2F%3F%23%25+s@host:9092?sasl=scram-sha-256": {
			Hosts: one, TLS: true, User: "u:s@er", Password: "p:@/?#%+s", SASL: brokerurl.ScramSHA256,
		},
		"kafka://user:p:a@ss@host:9092": {Hosts: one, User: "user", Password: "p:a@ss", SASL: brokerurl.Plain},
	} {
		want.Broker = brokerurl.Kafka
		if got, err := brokerurl.Parse(raw, all...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", raw, got, err, want)
		}
		// A URL of share groups has the same parts.
		want.Broker, raw = brokerurl.KafkaShare, strings.Replace(raw, "kafka", "kafka+share", 1)
		if got, err := brokerurl.Parse(raw, all...); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestParseRabbitMQ(t *testing.T) {
	one := []string{"host:5672"}
	for raw, want := range map[string]brokerurl.URL{
		"amqp://host":                           {Hosts: one, VHost: "/"},
		"amqp://host/":                          {Hosts: one, VHost: "/"},
		"amqp://host:5672/%2f":                  {Hosts: one, VHost: "/"},
		"amqp://host/%2F":                       {Hosts: one, VHost: "/"},
		"amqp://host:5673/shop":                 {Hosts: []string{"host:5673"}, VHost: "shop"},
		"amqp://host/a%2Fb%20%C3%BC%25":         {Hosts: one, VHost: "a/b ü%"},
		"amqp://host,b:5673,[::1],[::1]:5674/v": {Hosts: []string{"host:5672", "b:5673", "[::1]:5672", "[::1]:5674"}, VHost: "v"},
		"amqp://guest:guest@host/":              {Hosts: one, VHost: "/", User: "guest", Password: "guest"},
		"amqp://u%3As%40er:p%3A%40%2F%3F%23%25+s@host/v": {
			Hosts: one, VHost: "v", User: "u:s@er", Password: "p:@/?#%+s",
		},
		"amqps://host":       {Hosts: []string{"host:5671"}, TLS: true, VHost: "/"},
		"amqps://host:443/v": {Hosts: []string{"host:443"}, TLS: true, VHost: "v"},
		"amqps://host?cacertfile=/etc/ca.pem&heartbeat=30": {
			Hosts: []string{"host:5671"}, TLS: true, VHost: "/", Client: url.Values{"cacertfile": {"/etc/ca.pem"}, "heartbeat": {"30"}},
		},
	} {
		want.Broker = brokerurl.RabbitMQ
		got, err := brokerurl.Parse(raw, both...)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", raw, got, err, want)
		}
		// The client must read the same values from our URLs as Parse reads from this one.
		for i, text := range got.AMQP() {
			read, err := amqp.ParseURI(text)
			host := net.JoinHostPort(read.Host, strconv.Itoa(read.Port))
			if err != nil || (read.Scheme == "amqps") != want.TLS || host != want.Hosts[i] || read.Vhost != want.VHost ||
				read.Username != cmp.Or(want.User, "guest") || read.Password != cmp.Or(want.Password, "guest") ||
				read.CACertFile != want.Client.Get("cacertfile") || strings.Count(text, "/") != 3 { // the virtual host is one name
				t.Errorf("%s: the client reads %+v, %v from %s", raw, read, err, text)
			}
		}
	}
}

func TestParseSQS(t *testing.T) {
	for raw, want := range map[string]struct {
		url           brokerurl.URL
		endpoint, key string
	}{
		"sqs://eu-central-1":          {brokerurl.URL{TLS: true, Region: "eu-central-1"}, "", "from-the-environment"},
		"sqs://us-gov-west-1/":        {brokerurl.URL{TLS: true, Region: "us-gov-west-1"}, "", "from-the-environment"},
		"sqs+http://host:9324":        {brokerurl.URL{Hosts: []string{"host:9324"}}, "http://host:9324", "redeliver"},
		"sqs+http://[::1]:9324/":      {brokerurl.URL{Hosts: []string{"[::1]:9324"}}, "http://[::1]:9324", "redeliver"},
		"sqs+http://a%2Fb:c@host:1":   {brokerurl.URL{Hosts: []string{"host:1"}, User: "a/b", Password: "c"}, "http://host:1", "a/b"},
		"sqs+http://key:se/ret@:1":    {},
		"sqs+http://key:secret@a,b:1": {},
	} {
		t.Setenv("AWS_ACCESS_KEY_ID", "from-the-environment")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		got, err := brokerurl.Parse(raw, all...)
		if reflect.DeepEqual(want.url, brokerurl.URL{}) {
			if err == nil {
				t.Errorf("%s is taken as %+v", raw, got)
			}
			continue
		}
		want.url.Broker = brokerurl.SQS
		if err != nil || !reflect.DeepEqual(got, want.url) || got.Endpoint() != want.endpoint {
			t.Errorf("%s is %+v at %s, %v; want %+v at %s", raw, got, got.Endpoint(), err, want.url, want.endpoint)
			continue
		}
		cfg, err := got.AWS(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		keys, err := cfg.Credentials.Retrieve(t.Context())
		if err != nil || keys.AccessKeyID != want.key || cfg.Region != cmp.Or(got.Region, "us-east-1") {
			t.Errorf("%s: the key is %q (%v), the region %q", raw, keys.AccessKeyID, err, cfg.Region)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, say := range map[string]string{
		"":                                     "add the scheme: kafka://host:9092, kafka+tls://host:9093, kafka+share://host:9092, kafka+share+tls://host:9093, amqp://",
		"host:9092":                            "add the scheme, for example kafka://host:9092",
		"a:5672,[::1]:5672":                    "for example amqp://a:5672,[::1]:5672",
		"eu-central-1":                         "for example sqs://eu-central-1",
		"user:secret":                          "add the scheme: kafka://",
		"user:secret@host:9092":                "add the scheme before the user, for example kafka://",
		"user:secret@host://":                  "add the scheme before the user",
		"http://host:9092":                     "unknown scheme http://",
		"kafka://":                             `"" must be host:port`,
		"kafka://host":                         `"host" must be host:port`,
		"kafka://:9092":                        `"" must be host:port`,
		"kafka://host:0":                       "must be host:port",
		"kafka://host:70000":                   "must be host:port",
		"kafka://host:kafka":                   "must be host:port",
		"kafka://host:9092,":                   "address 2 must be host:port",
		"kafka://host:9092,,b:9092":            "address 2 must be host:port",
		"kafka://::1:9092":                     "must be host:port",
		"kafka://host:9092/orders":             "no path",
		"kafka://host:9092//":                  "no path",
		"kafka://host:9092#x":                  "must not contain @ or #",
		"kafka://user@host:9092":               "a user and a password",
		"kafka://:secret@host:9092":            "a user and a password",
		"kafka://user:secret%zz@host:9092":     "percent-encoding",
		"kafka://user:secret/x@host:9092":      "as %2F",
		"kafka://user:secret":                  `begins with "user" must be host:port`, // no host
		"kafka://user:1,secret":                "address 2 must be host:port",
		"kafka://user:p@secret":                "address 1 after the @ must be host:port, as in kafka://host:9092",
		"kafka://user:secret@a:9092,":          "address 2 after the @ must be host:port",
		"kafka://host:9092?sasl=plain":         "sasl needs a user",
		"kafka://u:secret@h:1?sasl=gssapi":     `sasl is "gssapi"`,
		"kafka://u:secret@h:1?sasl=":           `sasl is ""`,
		"kafka://u:secret@h:1?sasl=plain&x=y":  `unknown parameter "x"`,
		"kafka://u:secret@h:1?tls=true":        `unknown parameter "tls"`,
		"kafka://u:secret@h:1?sasl=plain&%zz":  "malformed",
		"kafka://u:secret@h:1?sasl=a&sasl=b":   `sasl is "a, b"`,
		"kafka+tls://u:secret?x@h:1?sasl=none": "as %3F",
		"kafka+share://host":                   "must be host:port, as in kafka+share://host:9092",
		"kafka+share://u:secret@h:1?group=g":   `unknown parameter "group"`,
		"kafka+tls+share://u:secret@h:1":       "unknown scheme kafka+tls+share://",

		"amqp://":                              `"" must be host:port`,
		"amqp:///orders":                       `"" must be host:port`,
		"amqp://:5672":                         "must be host:port",
		"amqp://host:":                         "must be host:port",
		"amqp://host:amqp":                     "must be host:port",
		"amqp://host:0":                        "must be host:port",
		"amqp://host:70000":                    "must be host:port",
		"amqp://host,":                         "address 2 must be host:port",
		"amqp://::1":                           "must be host:port",
		"amqp://user:secret":                   `begins with "user" must be host:port`,
		"amqp://user:sec:secret":               `begins with "user" must be host:port`,
		"amqp://user@host":                     "user:password@ before the host",
		"amqp://user:@host":                    "a user and a password",
		"amqps://:secret@host":                 "user:password@ before the host",
		"amqp://user:secret%zz@host":           "percent-encoding",
		"amqp://user:secret/x@host":            "as %2F",
		"amqp://user:secret?x@host":            "as %3F",
		"amqp://user:secret#x@host":            "as %23",
		"amqp://user:secret@host/a/b":          "as %2F",
		"amqp://user:secret@host/v/":           "as %2F",
		"amqp://user:secret@host/%zz":          "percent-encoding",
		"amqp://user:secret@host?sasl=plain":   `unknown parameter "sasl"`,
		"amqp://user:secret@host?heartbeat=1s": `heartbeat is "1s"`,
		"amqp://user:secret@host?%zz":          "malformed",

		"sqs://":                      "a region only",
		"sqs://key:secret@eu-west-1":  "a region only",
		"sqs://eu-west-1,eu-west-2":   "a region only",
		"sqs://host:9324":             "a region only",
		"sqs://eu-west-1/orders":      "no path",
		"sqs://eu-west-1?profile=x":   "AWS_PROFILE",
		"sqs+http://":                 `"" must be host:port`,
		"sqs+http://host":             `"host" must be host:port`,
		"sqs+http://host:1,b:1":       "one address",
		"sqs+http://secret@host:1":    "a user and a password",
		"sqs+http://host:1/queue":     "no path",
		"sqs+https://key:secret@h:1":  "unknown scheme sqs+https://",
		"sqs+http://key:secret/x@h:1": "as %2F",
	} {
		u, err := brokerurl.Parse(raw, all...)
		if err == nil {
			t.Errorf("%s is taken as %+v", raw, u)
			continue
		}
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %q does not say %q", raw, err, say)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q contains the password", raw, err)
		}
	}
}

// A program accepts only the brokers that it names.
func TestParseAcceptsOnlyNamedBrokers(t *testing.T) {
	for _, c := range []struct {
		raw    string
		broker brokerurl.Broker
		say    string
	}{
		{"amqp://host", brokerurl.Kafka, "unknown scheme amqp://: must be one of kafka://, kafka+tls://"},
		{"kafka+share://host:9092", brokerurl.Kafka, "unknown scheme kafka+share://: must be one of kafka://, kafka+tls://"},
		{"kafka://host:9092", brokerurl.RabbitMQ, "unknown scheme kafka://: must be one of amqp://, amqps://"},
		{"", brokerurl.RabbitMQ, "add the scheme: amqp://host:5672/vhost or amqps://"},
	} {
		if _, err := brokerurl.Parse(c.raw, c.broker); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v, want %q", c.raw, err, c.say)
		}
	}
}

// secureCluster returns a cluster that requires the user us:er with the password p@ss/word, and TLS if withTLS is true.
func secureCluster(t *testing.T, mechanism string, certs *httptest.Server, withTLS bool) *kfake.Cluster {
	t.Helper()
	opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(mechanism, "us:er", "p@ss/word")}
	if withTLS {
		opts = append(opts, kfake.TLS(&tls.Config{Certificates: certs.TLS.Certificates, MinVersion: tls.VersionTLS12}))
	}
	cluster, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// Every way to authenticate works with a broker that requires it.
func TestSaramaUsesTLSAndSASL(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	for _, c := range []struct{ mechanism, parameter string }{
		{"PLAIN", ""}, {"PLAIN", "?sasl=plain"}, {"SCRAM-SHA-256", "?sasl=scram-sha-256"}, {"SCRAM-SHA-512", "?sasl=scram-sha-512"},
	} {
		for _, scheme := range []string{"kafka", "kafka+tls"} {
			t.Run(scheme+c.parameter, func(t *testing.T) {
				cluster := secureCluster(t, c.mechanism, certs, scheme == "kafka+tls")
				connect := func(password string) error {
					u, err := brokerurl.Parse(scheme+"://us%3Aer:"+password+"@"+cluster.ListenAddrs()[0]+c.parameter, brokerurl.Kafka)
					if err != nil {
						t.Fatal(err)
					}
					cfg := u.Sarama()
					cfg.Metadata.Retry.Max = 0
					if cfg.Net.TLS.Enable {
						cfg.Net.TLS.Config.RootCAs = certs.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
					}
					client, err := sarama.NewClient(u.Hosts, cfg)
					if err == nil {
						_ = client.Close()
					}
					return err
				}
				if err := connect("p%40ss%2Fword"); err != nil {
					t.Error(err)
				}
				if err := connect("wrong"); err == nil {
					t.Error("a wrong password is accepted")
				}
			})
		}
	}
}

// An error may repeat an address, but nothing that may be a password.
func TestShown(t *testing.T) {
	for raw, want := range map[string]bool{
		"localhost:9092": true, "kafka://a:1,b_2.c:22,[::1]:3": true, "amqp://host/": true, "sqs://eu-west-1": true, "localhost": true,
		"": false, "ann:secret": false, "kafka://ann:secret": false, "kafka://ann:1,secret": false, "kafka://ann:s@h:1": false, "amqp://h/v": false, "h:1?x=secret": false,
	} {
		if got := brokerurl.Shown(raw); (got == raw && raw != "") != want || got != "" && !want {
			t.Errorf("%q is shown as %q, want it shown: %v", raw, got, want)
		}
	}
	for _, raw := range []string{"kafka://a:1,b:2", "kafka+tls://ann:secret@a:1", "kafka+share://a:1,b:2", "kafka+share+tls://ann:secret@a:1", "amqp://ann:secret@h:5672/v", "amqps://h:5671", "sqs://eu-west-1", "sqs+http://k:secret@h:1"} {
		u, err := brokerurl.Parse(raw, all...)
		scheme, rest, _ := strings.Cut(raw, "://")
		rest, _, _ = strings.Cut(rest[strings.Index(rest, "@")+1:], "/")
		if err != nil || u.String() != scheme+"://"+rest {
			t.Errorf("%s is reported as %s: %v", raw, u, err)
		}
	}
}
