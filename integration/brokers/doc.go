// Package brokers starts the real brokers that the integration tests and benchmarks use, waits until they answer, and
// stops them again.
//
// Each broker is found in one of three ways, in this order:
//
//   - given: an environment variable such as REDELIVER_TEST_KAFKA has the addresses of a running broker;
//   - docker: a docker daemon answers, and compose starts the broker from integration/compose;
//   - native: the broker's own packages run as child processes. Kafka and ElasticMQ, which replaces SQS, need Java and
//     Maven. RabbitMQ 3.10 and 4.0 are those of Debian 12 and 13: one is installed on this machine, the other is in a
//     chroot that debootstrap creates once in the user's cache directory, as root. moto, a second SQS, is always
//     native, in a Python virtual environment that is created once in the cache directory, too. Redis is the one that
//     this machine has installed. RocketMQ, which only the benchmarks use, is always native, from Maven.
//
// REDELIVER_TEST_WAY=docker or =native requires one of the last two. Without it, if compose cannot start the broker (no
// network for images, say), the log reports that, and the broker is started natively.
//
// A test that can share the run's common broker calls [RequireKafka], [RequireRabbitMQ], [RequireRabbitMQ4],
// [RequireSQS], [RequireMoto] or [RequireRedis]. A test that restarts or kills its broker calls [OwnKafka],
// [OwnRabbitMQ], [OwnSQS] or [OwnRedis] and so does not affect others. [OwnKafkaCluster] starts a Kafka of several
// nodes. None of them ever skips: a missing broker is a failure.
//
// ElasticMQ and moto differ from SQS in what they refuse. ElasticMQ, which is fast and keeps FIFO order and
// deduplication, is the default. moto is for what ElasticMQ does not check: sizes, pages of queues, the kind of a
// dead-letter queue. If both differ from AWS's documentation, the documentation counts, and the test says so.
//
// A native broker dies with the process that started it, even if that is killed. The package runs on Linux and other
// Unix systems; files that need one of them say so.
package brokers
