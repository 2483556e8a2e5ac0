package amqp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"os"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp"
)

// A client certificate replaces the password. A page of docs contains a part of this example; a test compares them.
func ExampleOpen_tls() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	authority, err := os.ReadFile("ca.pem")
	if err != nil {
		log.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(authority)
	certificate, err := tls.LoadX509KeyPair("billing.pem", "billing-key.pem")
	if err != nil {
		log.Fatal(err)
	}

	billing, err := amqp.Open(ctx, amqp.Config{
		URLs: []string{"amqps://rabbit-1:5671/shop"},
		AMQP: amqp091.Config{
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, Certificates: []tls.Certificate{certificate}},
			SASL:            []amqp091.Authentication{&amqp091.ExternalAuth{}},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close(ctx)
}
