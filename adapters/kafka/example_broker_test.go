package kafka_test

import (
	"log"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// kafkaWith starts an in-process Kafka for an example. Its topic orders has one record for each value.
func kafkaWith(values ...string) (brokers []string, end func()) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		log.Panic(err)
	}
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(cluster.ListenAddrs(), config)
	if err != nil {
		log.Panic(err)
	}
	defer producer.Close()
	for _, value := range values {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "orders", Value: sarama.StringEncoder(value)}); err != nil {
			log.Panic(err)
		}
	}
	return cluster.ListenAddrs(), cluster.Close
}
