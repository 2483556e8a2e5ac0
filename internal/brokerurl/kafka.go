package brokerurl

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// The ways to authenticate with Kafka, as the parameter sasl names them.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
)

// readKafka parses what follows the hosts of kafka:// and the other schemes of Kafka.
func (u *URL) readKafka(path string, values url.Values) error {
	if path != "" && path != "/" {
		return errors.New("a URL of Kafka has no path: in a user or password write / as %2F")
	}
	if u.User != "" {
		u.SASL = Plain
	}
	for name, value := range values {
		known := []string{Plain, ScramSHA256, ScramSHA512}
		switch {
		case name != "sasl":
			return fmt.Errorf("unknown parameter %q: the only one is sasl", name)
		case u.User == "":
			return errors.New("sasl needs a user and a password: write user:password@ before the hosts")
		case len(value) != 1 || !slices.Contains(known, value[0]):
			return fmt.Errorf("sasl is %q: must be one of %s", strings.Join(value, ", "), strings.Join(known, ", "))
		}
		u.SASL = value[0]
	}
	return nil
}

// MaxDecompressedBatch bounds the size of a decompressed batch of records, in bytes, for programs that import this package,
// unless URL.MaxBatch is set. A record of 350 bytes can decompress to 8 MB of empty headers, which sarama makes 224 MB of
// before anybody can count them. The records that such a program writes are not compressed.
const MaxDecompressedBatch = 8 << 20

// sarama has one bound for the process. It must be set before any client exists.
var _ = func() bool {
	sarama.MaxDecompressedBatchSize = MaxDecompressedBatch
	return true
}()

// Sarama returns a client's configuration with the URL's TLS and SASL settings and otherwise sarama's defaults, except
// that a new group begins at the oldest record.
func (u URL) Sarama() *sarama.Config {
	if u.MaxBatch != 0 && u.MaxBatch != sarama.MaxDecompressedBatchSize {
		sarama.MaxDecompressedBatchSize = u.MaxBatch // of the process: a command has one broker
	}
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Net.TLS.Enable = u.TLS
	if u.TLS {
		cfg.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if u.SASL == "" {
		return cfg
	}
	cfg.Net.SASL.Enable = true
	cfg.Net.SASL.User, cfg.Net.SASL.Password = u.User, u.Password
	switch u.SASL {
	case ScramSHA256:
		cfg.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		cfg.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{mechanism: scram.Auth.AsSha256Mechanism} }
	case ScramSHA512:
		cfg.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		cfg.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{mechanism: scram.Auth.AsSha512Mechanism} }
	default:
		cfg.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	}
	return cfg
}

// Franz returns the options of a client of franz-go: the URL's TLS and SASL settings, and the client's id.
func (u URL) Franz(clientID string) []kgo.Opt {
	opts := []kgo.Opt{kgo.ClientID(clientID), kgo.MaxDecompressBatchBytes(int(cmp.Or(u.MaxBatch, MaxDecompressedBatch)))}
	if u.TLS {
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	login := scram.Auth{User: u.User, Pass: u.Password}
	switch u.SASL {
	case Plain:
		opts = append(opts, kgo.SASL(plain.Auth{User: u.User, Pass: u.Password}.AsMechanism()))
	case ScramSHA256:
		opts = append(opts, kgo.SASL(login.AsSha256Mechanism()))
	case ScramSHA512:
		opts = append(opts, kgo.SASL(login.AsSha512Mechanism()))
	}
	return opts
}

// conversation adapts franz-go's SCRAM to sarama, which has no implementation.
type conversation struct {
	mechanism func(scram.Auth) sasl.Mechanism
	session   sasl.Session
	first     []byte
	done      bool
}

// Begin implements [sarama.SCRAMClient].
func (c *conversation) Begin(user, password, authzID string) (err error) {
	c.session, c.first, err = c.mechanism(scram.Auth{Zid: authzID, User: user, Pass: password}).Authenticate(context.Background(), "")
	return err
}

// Step implements [sarama.SCRAMClient].
func (c *conversation) Step(challenge string) (string, error) {
	switch {
	case c.session == nil:
		return "", errors.New("the SCRAM exchange has not begun")
	case challenge == "" && c.first != nil:
		first := c.first
		c.first = nil
		return string(first), nil
	}
	done, response, err := c.session.Challenge([]byte(challenge))
	c.done = done
	return string(response), err
}

// Done implements [sarama.SCRAMClient].
func (c *conversation) Done() bool { return c.done }
