// Package management reads RabbitMQ's management API, which reports what AMQP does not: the arguments of a queue, the
// policies and operator policies that apply to it, counts, and the consumers.
//
// A limit on a queue may come from an argument, a policy and an operator policy at once. For most of them RabbitMQ applies
// the lowest, for some it prefers the argument. [QueueSettings] knows which one counts, and where it came from. Counts and
// policies are some seconds old.
package management
