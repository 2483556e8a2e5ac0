// Package brokers starts the real brokers that the integration tests and benchmarks talk to, waits until they
// answer, and stops them again.
//
// Each broker is found in one of three ways, in this order:
//
//   - given: an environment variable such as REDELIVER_TEST_KAFKA names the addresses of one that runs already;
//   - docker: a docker daemon answers, and compose starts the broker from integration/compose;
//   - native: the broker's own packages run as child processes. Kafka and ElasticMQ, which stands for SQS, need Java and
//     Maven; RabbitMQ 3.10 and 4.0 are those of Debian 12 and 13: the one that this machine has installed, the other
//     from a chroot that debootstrap makes once in the user's cache directory, as root. moto, a second SQS, is always
//     native, in a Python virtual environment that is made once in the cache directory, too. Redis is the one that this
//     machine has installed. RocketMQ, which only the benchmarks want, is always native, from Maven.
//
// REDELIVER_TEST_WAY=docker or =native insists on one of the last two. Without it, a compose that cannot start the
// broker (no network for images, say) is reported in the log, and the native way is taken.
//
// A test that is content with the run's common broker calls [RequireKafka], [RequireRabbitMQ], [RequireRabbitMQ4],
// [RequireSQS], [RequireMoto] or [RequireRedis]. One that restarts or kills its broker calls [OwnKafka], [OwnRabbitMQ],
// [OwnSQS] or [OwnRedis] and disturbs nobody; [OwnKafkaCluster] starts a Kafka of several nodes. None of them ever skips:
// a missing broker is a failure.
//
// ElasticMQ and moto are no SQS, and differ from it in what they refuse. ElasticMQ, which is fast and keeps FIFO order
// and deduplication, is for everything; moto for what ElasticMQ does not look at: sizes, pages of queues, the kind of
// a dead-letter queue. Where both differ from what AWS documents, that counts, and the test says so.
//
// A native broker dies with the process that started it, also when that is killed. It runs on Linux and other Unix
// systems; the files that need one say so.
package brokers
