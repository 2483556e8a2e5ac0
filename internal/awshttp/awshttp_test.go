package awshttp_test

import (
	"net/http"
	"testing"
	"time"

	aws "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"github.com/redeliver/redeliver/internal/awshttp"
)

// A server that accepts requests and does not answer must not make a service or the command wait forever.
func TestAServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	own := aws.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.ResponseHeaderTimeout = time.Minute })
	for name, row := range map[string]struct {
		client *aws.BuildableClient
		wait   time.Duration
	}{
		"the default":        {aws.NewBuildableClient(), awshttp.MaxResponseWait},
		"with its own bound": {own, time.Minute},
		"a total bound":      {aws.NewBuildableClient().WithTimeout(time.Hour), 0},
	} {
		got, ok := awshttp.BoundResponses(row.client).(*aws.BuildableClient)
		if !ok || got.GetTransport().ResponseHeaderTimeout != row.wait {
			t.Errorf("%s: waits for %s, want %s", name, got.GetTransport().ResponseHeaderTimeout, row.wait)
		}
	}
	if other := new(http.Client); awshttp.BoundResponses(other) != awshttp.Client(other) {
		t.Error("another client is replaced")
	}
}
