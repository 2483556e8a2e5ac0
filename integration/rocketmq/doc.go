// Package rocketmq speaks as much of Apache RocketMQ's remoting protocol as is needed to start a broker, to fill it, to
// read it, and to see what a group has left there. RocketMQ's own client in Java is the side under test in the
// benchmarks, and its client in Go has neither the administration nor the offsets of another's group, so what checks
// that side is this: it shares nothing with it, and takes little of the machine beside it.
//
// A request is a frame with a header in JSON and a body, as its answer is; an answer carries the number of its request,
// so any number of requests may be under way on one connection.
package rocketmq
