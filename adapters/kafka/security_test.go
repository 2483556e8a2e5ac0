package kafka_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

const (
	user     = "billing-service"
	password = "pa55-phrase"
	wrong    = "wr0ng-phrase"
)

// certificate makes a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kafka"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

// secureKafka starts a Kafka with TLS and a single user.
func secureKafka(t *testing.T, mechanism string) (*kfake.Cluster, *x509.CertPool) {
	t.Helper()
	cert, pool := certificate(t)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"), kfake.EnableSASL(), kfake.Superuser(mechanism, user, password),
		kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, pool
}

func credentials(mechanism, secret string, pool *x509.CertPool) *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Net.TLS.Enable = true
	cfg.Net.TLS.Config = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	cfg.Net.SASL.Enable = true
	cfg.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	cfg.Net.SASL.User, cfg.Net.SASL.Password = user, secret
	cfg.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scram{} }
	return cfg
}

func TestOpenWithTLSAndSASL(t *testing.T) {
	for _, mechanism := range []string{sarama.SASLTypePlaintext, sarama.SASLTypeSCRAMSHA512} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			cluster, pool := secureKafka(t, mechanism)
			addrs := cluster.ListenAddrs()
			c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Sarama: credentials(mechanism, password, pool)})
			route(t, c, "orders", failFirst(0))
			if err := c.Publisher().Publish("orders", message.NewMessage("a", nil)); err != nil {
				t.Fatal(err)
			}
			ev.awaitEnds(t, "a")
		})
		// kfake closes the connection, and so does a broker before 1.0; a newer one returns an error.
		for _, answers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s wrong password, the broker answers: %v", mechanism, answers), func(t *testing.T) {
				t.Parallel()
				cluster, pool := secureKafka(t, mechanism)
				addrs := cluster.ListenAddrs()
				want := []string{addrs[0], "Sarama.Net.SASL", user, mechanism}
				if answers {
					want = append(want, "SASL Authentication failed")
					cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
						cluster.KeepControl()
						res := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
						res.ErrorCode = kerr.SaslAuthenticationFailed.Code
						return res, nil, true
					})
				}
				_, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", Sarama: credentials(mechanism, wrong, pool)})
				refusedBy(t, err, want...)
			})
		}
	}
	t.Run("unknown authority", func(t *testing.T) {
		t.Parallel()
		cluster, _ := secureKafka(t, sarama.SASLTypePlaintext)
		addrs := cluster.ListenAddrs()
		_, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", Sarama: credentials(sarama.SASLTypePlaintext, password, x509.NewCertPool())})
		refusedBy(t, err, addrs[0], "TLS", "certificate")
	})
	t.Run("no TLS", func(t *testing.T) {
		t.Parallel()
		cluster, _ := secureKafka(t, sarama.SASLTypePlaintext)
		addrs := cluster.ListenAddrs()
		cfg := credentials(sarama.SASLTypePlaintext, password, nil)
		cfg.Net.TLS.Enable = false
		_, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", Sarama: cfg})
		refusedBy(t, err, addrs[0], "Sarama.Net.TLS (off)")
	})
}

func refusedBy(t *testing.T, err error, says ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("was accepted")
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	for _, secret := range []string{password, wrong} {
		if strings.Contains(fmt.Sprintf("%+v", err), secret) {
			t.Errorf("%q contains the password", err)
		}
	}
}

// scram implements SCRAM-SHA-512 (RFC 5802), which sarama leaves to its caller.
type scram struct {
	user, secret, first, challenge string
	done                           bool
}

func (s *scram) Begin(user, secret, _ string) error {
	s.user, s.secret = user, secret
	return nil
}

func (s *scram) Done() bool { return s.done }

func (s *scram) Step(challenge string) (string, error) {
	if s.first == "" {
		s.first = "n=" + s.user + ",r=" + rand.Text()
		return "n,," + s.first, nil
	}
	if s.challenge != "" { // the server's proof is not checked here
		s.done = true
		return "", nil
	}
	s.challenge = challenge
	fields := make(map[string]string)
	for part := range strings.SplitSeq(challenge, ",") {
		name, value, _ := strings.Cut(part, "=")
		fields[name] = value
	}
	salt, err := base64.StdEncoding.DecodeString(fields["s"])
	if err != nil {
		return "", err
	}
	rounds, err := strconv.Atoi(fields["i"])
	if err != nil {
		return "", err
	}
	salted, err := pbkdf2.Key(sha512.New, s.secret, salt, rounds, sha512.Size)
	if err != nil {
		return "", err
	}
	sign := func(key []byte, text string) []byte {
		m := hmac.New(sha512.New, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	final := "c=biws,r=" + fields["r"]
	key := sign(salted, "Client Key")
	stored := sha512.Sum512(key)
	proof := sign(stored[:], s.first+","+challenge+","+final)
	for i := range proof {
		proof[i] ^= key[i]
	}
	return final + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}
