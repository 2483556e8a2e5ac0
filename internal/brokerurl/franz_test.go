package brokerurl_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/internal/brokerurl"
)

// Every way to authenticate works with a broker that requires it.
func TestFranzUsesTLSAndSASL(t *testing.T) {
	t.Parallel()
	certs := httptest.NewTLSServer(nil)
	defer certs.Close()
	roots := certs.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for mechanism, parameter := range map[string]string{"PLAIN": "", "SCRAM-SHA-256": "?sasl=scram-sha-256", "SCRAM-SHA-512": "?sasl=scram-sha-512"} {
		for _, scheme := range []string{"kafka+share", "kafka+share+tls"} {
			t.Run(scheme+parameter, func(t *testing.T) {
				cluster := secureCluster(t, mechanism, certs, scheme == "kafka+share+tls")
				connect := func(password string) error {
					u, err := brokerurl.Parse(scheme+"://us%3Aer:"+password+"@"+cluster.ListenAddrs()[0]+parameter, brokerurl.KafkaShare)
					if err != nil {
						t.Fatal(err)
					}
					opts := u.Franz("test")
					if u.TLS {
						cl, err := kgo.NewClient(opts...)
						if err != nil {
							t.Fatal(err)
						}
						cfg, _ := cl.OptValue(kgo.DialTLSConfig).(*tls.Config)
						cl.Close()
						cfg.RootCAs = roots
					}
					cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(u.Hosts...), kgo.RequestRetries(0))...)
					if err != nil {
						t.Fatal(err)
					}
					defer cl.Close()
					return cl.Ping(t.Context())
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
