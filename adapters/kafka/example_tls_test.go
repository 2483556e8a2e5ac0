package kafka_test

import (
	"context"
	"crypto/tls"
	"log"
	"os"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// TLS and SASL are fields of sarama's configuration. A page of docs shows a part of it. A test compares them.
func ExampleOpen_tls() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // sarama's default skips records from before the group existed
	config.Net.TLS.Enable = true
	config.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
	config.Net.SASL.Enable = true
	config.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	config.Net.SASL.User, config.Net.SASL.Password = "billing", os.Getenv("KAFKA_PASSWORD")

	billing, err := kafka.Open(ctx, kafka.Config{Brokers: []string{"kafka-1:9093"}, Group: "billing", Sarama: config})
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close(ctx)
}
