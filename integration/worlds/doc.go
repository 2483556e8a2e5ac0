// Package worlds searches random worlds for broken promises. A world is a plan that a seed determines: services with
// policies, the messages and the answers of their handlers, and what operators, deploys and brokers do meanwhile.
//
//   - package world has the plan and the generator. It imports nothing of redeliver.
//   - package live runs a plan: it starts the services on a [live.Driver] and records a history.
//   - package check compares a history with the promises. It uses none of redeliver's code.
//   - kafkaworld and its neighbours are the drivers: one small package for each broker. RabbitMQ's are real, the others fakes
//     in virtual time.
//
// The command integration/cmd/worlds, which make worlds runs, starts one process for each world. docs/evidence/worlds.md
// says what is searched and what is not.
package worlds
