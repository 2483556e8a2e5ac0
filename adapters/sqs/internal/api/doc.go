// Package api sends requests to SQS.
//
// A [Queue] is what SQS says about a queue, and the requests for its messages, up to ten in each. A [Batcher] gathers
// messages of many goroutines into such requests. A [Sender] writes messages with a Batcher. SQS may accept a request
// and refuse a message in it, so each message has a result of its own. No error contains a secret ([RedactError]).
package api
