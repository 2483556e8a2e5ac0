package sqs_test

import (
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/sqscontract"
)

// Each server of the tests follows the rules of SQS, except for the differences that the table of the contract has.
func TestContract(t *testing.T) {
	for server, endpoint := range brokers.RequireSQSServers(t) {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			sqscontract.Run(t, server, awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint }))
		})
	}
}
