// Package compose embeds the compose files of the brokers, so that a test finds them from any directory.
package compose

import _ "embed" // for the files below

// Kafka is kafka.yml, one Kafka node.
//
//go:embed kafka.yml
var Kafka []byte

// RabbitMQ is rabbitmq.yml, one RabbitMQ node with the management plugin.
//
//go:embed rabbitmq.yml
var RabbitMQ []byte

// SQS is elasticmq.yml, one ElasticMQ node.
//
//go:embed elasticmq.yml
var SQS []byte

// Redis is redis.yml, one Redis.
//
//go:embed redis.yml
var Redis []byte
