package brokerurl_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/redeliver/redeliver/examples/internal/brokerurl"
)

func TestParse(t *testing.T) {
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
		if got, err := brokerurl.Parse(raw); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for raw, say := range map[string]string{
		"":                                     "no broker is named",
		"host:9092":                            "a URL",
		"amqp://host:5672":                     "amqp:// is not known here",
		"http://host:9092":                     "http:// is not known here",
		"kafka://":                             `"" is no host:port`,
		"kafka://host":                         `"host" is no host:port`,
		"kafka://:9092":                        `":9092" is no host:port`,
		"kafka://host:0":                       "no host:port",
		"kafka://host:70000":                   "no host:port",
		"kafka://host:kafka":                   "no host:port",
		"kafka://host:9092,":                   `"" is no host:port`,
		"kafka://host:9092,,b:9092":            `"" is no host:port`,
		"kafka://::1:9092":                     "no host:port",
		"kafka://host:9092/orders":             "no path",
		"kafka://host:9092#x":                  "no path, no fragment",
		"kafka://user@host:9092":               "a user and a password",
		"kafka://:secret@host:9092":            "a user and a password",
		"kafka://user:secret%zz@host:9092":     "in percent",
		"kafka://user:se/cret@host:9092/x":     "no path",
		"kafka://host:9092?sasl=plain":         "sasl needs a user",
		"kafka://u:secret@h:1?sasl=gssapi":     `sasl is "gssapi"`,
		"kafka://u:secret@h:1?sasl=":           `sasl is ""`,
		"kafka://u:secret@h:1?sasl=plain&x=y":  `no parameter "x"`,
		"kafka://u:secret@h:1?tls=true":        `no parameter "tls"`,
		"kafka://u:secret@h:1?sasl=plain&%zz":  "cannot be read",
		"kafka://u:secret@h:1?sasl=a&sasl=b":   `sasl is "a, b"`,
		"kafka+tls://u:sec?ret@h:1?sasl=plain": "no host:port", // an unescaped ? ends the hosts
	} {
		u, err := brokerurl.Parse(raw)
		if err == nil {
			t.Errorf("%s is taken as %+v", raw, u)
			continue
		}
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %q does not say %q", raw, err, say)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %q tells the password", raw, err)
		}
	}
}

// Every way to authenticate, against a broker that insists on it.
func TestSaramaSpeaksTLSAndSASL(t *testing.T) {
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	for _, c := range []struct{ mechanism, parameter string }{
		{"PLAIN", ""}, {"PLAIN", "?sasl=plain"}, {"SCRAM-SHA-256", "?sasl=scram-sha-256"}, {"SCRAM-SHA-512", "?sasl=scram-sha-512"},
	} {
		for _, scheme := range []string{"kafka", "kafka+tls"} {
			t.Run(scheme+c.parameter, func(t *testing.T) {
				opts := []kfake.Opt{kfake.NumBrokers(1), kfake.EnableSASL(), kfake.Superuser(c.mechanism, "us:er", "p@ss/word")}
				if scheme == "kafka+tls" {
					opts = append(opts, kfake.TLS(&tls.Config{Certificates: certs.TLS.Certificates, MinVersion: tls.VersionTLS12}))
				}
				cluster, err := kfake.NewCluster(opts...)
				if err != nil {
					t.Fatal(err)
				}
				defer cluster.Close()
				connect := func(password string) error {
					u, err := brokerurl.Parse(scheme + "://us%3Aer:" + password + "@" + cluster.ListenAddrs()[0] + c.parameter)
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
					t.Error("a wrong password is let in")
				}
			})
		}
	}
}
