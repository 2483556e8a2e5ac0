package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// A server that answers a probe's receipt with a code of its own has not refused the action. One that denies it has.
func TestAProbeFailsOnlyIfItsActionIsDenied(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		body   string
		fails  bool
	}{
		"as SQS answers":            {200, `{"Failed":[{"Id":"0","Code":"ReceiptHandleIsInvalid","SenderFault":true}]}`, false},
		"an entry with another":     {200, `{"Failed":[{"Id":"0","Code":"1","Message":"Message not found","SenderFault":true}]}`, false},
		"the request with another":  {400, `{"__type":"InvalidParameterValue","message":"bad handle"}`, false},
		"denied":                    {400, `{"__type":"AccessDeniedException","message":"no right"}`, true},
		"an entry is denied":        {200, `{"Failed":[{"Id":"0","Code":"AccessDenied","SenderFault":true}]}`, true},
		"the login has expired":     {400, `{"__type":"ExpiredTokenException","message":"old"}`, true},
		"an entry fails for itself": {200, `{"Failed":[{"Id":"0","Code":"InternalError","SenderFault":false}]}`, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(c.status)
			_, _ = fmt.Fprint(w, c.body)
		}))
		var results []error
		q := &Queue{
			Name: "orders", URL: server.URL + "/1/orders", OnResult: func(_ string, err error) { results = append(results, err) },
			API: sqs.New(sqs.Options{Region: "eu-west-1", BaseEndpoint: &server.URL, Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""), Retryer: aws.NopRetryer{}}),
		}
		for _, action := range []string{"DeleteMessageBatch", "ChangeMessageVisibilityBatch"} {
			results = nil
			if q.Probe(t.Context(), action); len(results) != 1 || (results[0] != nil) != c.fails {
				t.Errorf("%s: %s reports %v", name, action, results)
			}
		}
		server.Close()
	}
}
