package sqs_test

import (
	"context"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/redeliver/redeliver/adapters/sqs"
)

// The service passes its own AWS configuration. A page of docs contains a part of this example; a test compares them.
func ExampleOpen() { //nolint:testableexamples // it needs a broker
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion("eu-central-1"), config.WithSharedConfigProfile("billing"))
	if err != nil {
		log.Fatal(err)
	}
	billing, err := sqs.Open(ctx, sqs.Config{AWS: &cfg})
	if err != nil {
		log.Fatal(err)
	}
	defer billing.Close(ctx)
}
