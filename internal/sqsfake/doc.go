// Package sqsfake is an SQS in memory, for tests. It speaks the JSON protocol of the AWS SDK behind an
// http.RoundTripper, so there is no network. It uses only the time of its process: in a bubble of testing/synctest an
// hour passes at once.
//
// It does what AWS documents, which internal/sqscontract checks. Where AWS documents nothing, it does what is hardest for a client:
//
//   - A receive that waits does not notice that a message group becomes free
//     (https://github.com/google/go-cloud/issues/3456).
//   - A receive whose client has gone continues until its wait is over, and may deliver messages to nobody.
//
// A standard queue delivers in the order in which messages were sent, and once for each visibility timeout. [Server.Edit]
// makes a message come late, early or twice, as SQS may.
//
// A [Server] has queues. A test connects each process with [Server.Connect], makes requests fail with [Server.Inject], and
// cuts a connection to kill a process:
//
//	server := sqsfake.New(sqsfake.Options{})
//	server.Create("orders")
//	process := server.Connect("one")
//	client := sqs.NewFromConfig(*process.Config())
//	heal := server.Inject(func(c *sqsfake.Call) *sqsfake.Fault {
//		if c.Action == "DeleteMessageBatch" {
//			return sqsfake.LostAnswer()
//		}
//		return nil
//	})
//
// A test in a bubble ends with [Server.Wait], because a bubble waits for its goroutines.
package sqsfake
