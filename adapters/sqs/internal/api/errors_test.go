package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// An error that comes from a wrong configuration of the client says what to do.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	_, refused := (&net.Dialer{}).DialContext(t.Context(), "tcp", "127.0.0.1:0")
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("request send failed: %w", refused), "is Config.Endpoint right"},
		{errors.New("operation error SQS: GetQueueUrl, get identity: get credentials: no EC2 IMDS role found"), "give the process AWS credentials"},
		{context.DeadlineExceeded, "context deadline exceeded"},
	} {
		if text := ErrorOf("looking for queue", "orders", c.err).Error(); !strings.Contains(text, c.want) || !strings.HasPrefix(text, "sqs: looking for queue orders: ") {
			t.Errorf("the error is %q, want one with %q", text, c.want)
		}
	}
	if text := ErrorOf("looking for queue", "orders", context.DeadlineExceeded).Error(); strings.Contains(text, ";") {
		t.Errorf("an error without known advice has some: %q", text)
	}
}

func TestErrorsContainNoSecrets(t *testing.T) {
	for _, s := range []string{
		"SignatureDoesNotMatch: ... The Canonical String for this request should have been\n'POST\n/\n\nx-amz-security-token:hunter2\n'",
		`signed with Credential=AKIAIOSFODNN7EXAMPLE/20261121/eu-west-1/sqs/aws4_request, Signature=hunter2`,
		`x-amz-security-token: hunter2`, `Get "http://h/?X-Amz-Signature=hunter2&X-Amz-Security-Token=hunter2": reset`,
		"InvalidClientTokenId: the key ASIAIOSFODNN7EXAMPLE is not known", "dial http://key:hunter2@host/",
	} {
		got := RedactError(errors.New(s)).Error()
		if strings.Contains(got, "hunter2") || strings.Contains(got, "IOSFODNN") {
			t.Errorf("%q becomes %q", s, got)
		}
	}
}
