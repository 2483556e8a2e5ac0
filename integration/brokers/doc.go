// Package brokers starts the real brokers that the integration tests and benchmarks talk to, waits until they
// answer, and stops them again.
//
// Each broker is found in one of three ways, in this order:
//
//   - given: an environment variable such as REDELIVER_TEST_KAFKA names the addresses of one that runs already;
//   - docker: a docker daemon answers, and compose starts the broker from integration/compose;
//   - native: the broker's own packages run as a child process, as on a machine with nothing but Java and Maven.
//
// REDELIVER_TEST_WAY=docker or =native insists on one of the last two. Without it, a compose that cannot start the
// broker (no network for images, say) is told in the log, and the native way is taken.
//
// A test that is content with the run's common broker calls [RequireKafka]. One that restarts or kills its broker
// calls [OwnKafka] and disturbs nobody. Neither ever skips: a missing broker is a failure.
//
// A native broker dies with the process that started it, also when that is killed. It runs on Linux and other Unix
// systems; the files that need one say so.
package brokers
