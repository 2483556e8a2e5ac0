// Command after is the service in ../before with retries and a dead-letter queue. A failed message is retried
// three times with delays, and then goes to the DLQ with the reason. Its handler is unchanged. One call replaces the
// loop, which handled one message at a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := config.LoadDefaultConfig(ctx)
	check(err)
	check(sqs.Consume(ctx, sqs.Config{AWS: &cfg}, os.Args[1:2], charge))
}

func charge(_ context.Context, m types.Message) error {
	if *m.Body == "declined" {
		return errors.New("card declined")
	}
	fmt.Printf("%s is charged\n", *m.Body)
	return nil
}

func check(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}
