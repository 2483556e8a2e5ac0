// Package link connects to RabbitMQ and publishes.
//
// A [Link] is one connection, which is made again when it is used after a loss. A broker in alarm (memory or disk) blocks
// connections that publish, and does not even answer them. So links that read never publish, and acks still get through.
// Below the Go client, a filter replaces headers that the client cannot read, and several writes are gathered in one.
//
// A [Sender] publishes on a channel of its own. A publish has succeeded when the broker has confirmed it and has not
// returned it. If the broker refuses a message as it is, it closes the channel, with all other messages on it. So the
// sender repeats such a publish alone, to find out which one was meant.
//
// A request that the broker denies may need another login, because a token has expired: see [Link.Do].
//
// RabbitMQ answers that a quorum queue is empty when its leader does not answer in time. [Stat] and [ConfirmedStat]
// notice that.
package link
