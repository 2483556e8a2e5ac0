// Package rocketmq implements a part of Apache RocketMQ's remoting protocol: it creates, fills and reads topics, and
// finds the messages that a group has not handled. The benchmarks check RocketMQ's client in Java with it, because it
// shares no code with that client and uses little CPU. RocketMQ's client in Go has neither administration nor the
// offsets of other groups.
//
// Requests and answers are frames with a header in JSON and a body. An answer has the number of its request, so any
// number of requests may be under way on one connection.
package rocketmq
