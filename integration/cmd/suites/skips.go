package main

import "regexp"

// skip is a test that is expected to be skipped, with the reason why the skip loses nothing.
type skip struct {
	test *regexp.Regexp // matches package and test, as in "./integration/kafka TestName/sub"
	why  string
}

// expectedSkips are all skips that a run may have. Any other skip fails the run, whatever its reason: a feature that is
// turned off by mistake in a suite's options skips its tests with a good reason.
var expectedSkips = []skip{
	{
		regexp.MustCompile(`^\./integration/\w+ Test(OnRabbitMQ43/)?WatermillSuite/.*/TestReconnect/`),
		"it needs a command that restarts the broker of all other tests; integration/loss restarts its own and counts losses",
	},
	{
		regexp.MustCompile(`^\./integration/\w+ Test(OnRabbitMQ43/)?WatermillSuite/.*/TestNewSubscriberReceivesOldMessages/`),
		"it is for subscribers without a group; ours always have one",
	},
	{
		regexp.MustCompile(`^\./integration/\w+ Test(OnRabbitMQ43/)?WatermillSuite/(.*/unordered|standard)/(TestPublishSubscribeInOrder|TestNoAck)/`),
		"with many messages in flight, or on a standard queue of SQS, there is no order; the variant with order runs it",
	},
	{
		regexp.MustCompile(`^\./integration/(amqp TestWatermillSuite/queue/.*|sqs TestWatermillSuite/.*)/TestConsumerGroups/`),
		"the consumers of one queue compete; RabbitMQ's pubsub variant runs it",
	},
	{
		regexp.MustCompile(`^\./integration/brokers TestOwn(KafkaKeepsARecordThroughSIGKILL|RabbitMQ|SQSKeepsMessagesThroughSIGKILL)$`),
		"integration/loss, chaos and amqp kill and restart these brokers, close their connections, and count what is lost",
	},
	{
		regexp.MustCompile(`^\./integration/loss TestOverloadKafkaFullDisk$`),
		"a Kafka in docker has its disk elsewhere; where the broker runs natively, as in CI, it is filled",
	},
	{
		regexp.MustCompile(`^\./integration/command TestTheRetentionOfADLQ/SQS$`),
		"ElasticMQ knows no retention; make prove runs it on moto",
	},
}

// contains reports whether a list has a test.
func contains(list []skip, pkg, test string) bool {
	for _, s := range list {
		if s.test.MatchString(short(pkg) + " " + test) {
			return true
		}
	}
	return false
}
