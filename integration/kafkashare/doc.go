// Package kafkashare tests adapters/kafkashare on a real Kafka.
package kafkashare
