package api

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// ErrClosed means that the client was closed before the call.
var ErrClosed = errors.New("sqs: the client is closed")

// apiError hides the secrets in an error of SQS or of the connection. SQS's error about a signature contains the
// canonical request, with the session token.
type apiError struct {
	text string
	err  error
}

func (e *apiError) Error() string { return e.text }
func (e *apiError) Unwrap() error { return e.err }

var (
	secretLine = regexp.MustCompile(`(?i)(x-amz-security-token|x-amz-credential|authorization|credential|signature|token|secret)(["']?\s*[:=]\s*["']?)[^\s"'&;,]+( Credential=\S+)?`)
	keyID      = regexp.MustCompile(`\b(AKIA|ASIA|AROA|AIDA)[A-Z0-9]{8,}\b`)
	canonical  = regexp.MustCompile(`(?is)the canonical string for this request should have been.*`)
)

// RedactError removes secrets from an error's text. errors.Is and errors.As work as before.
func RedactError(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*apiError](err); ok {
		return err
	}
	return &apiError{text: redactText(err.Error()), err: err}
}

func redactText(s string) string {
	s = canonical.ReplaceAllString(s, "(the rest is left out)")
	s = secretLine.ReplaceAllString(redeliver.Redact(s), "$1$2***")
	return limits.Cut(keyID.ReplaceAllString(s, "***"), limits.MaxErrorText)
}

// entryError is the failure of one entry of a batch.
type entryError struct {
	code, message string
	sender        bool // the entry itself is invalid
}

func (e *entryError) Error() string { return strings.TrimSpace(e.code + " " + redactText(e.message)) }

// ErrorCode returns the code, as other errors of the API do.
func (e *entryError) ErrorCode() string { return e.code }

func failedEntry(f types.BatchResultErrorEntry) error {
	return &entryError{code: aws.ToString(f.Code), message: aws.ToString(f.Message), sender: f.SenderFault}
}

// ErrorCode returns the API's code of an error without its prefix, such as "QueueDoesNotExist". It returns "" for
// other errors.
func ErrorCode(err error) string {
	coded, ok := errors.AsType[interface {
		error
		ErrorCode() string
	}](err)
	if !ok {
		return ""
	}
	name := coded.ErrorCode()
	return name[strings.LastIndexAny(name, ".#")+1:]
}

// IsMissingQueue reports whether err means a missing queue. AWS has two codes.
func IsMissingQueue(err error) bool {
	return slices.Contains([]string{"QueueDoesNotExist", "NonExistentQueue"}, ErrorCode(err))
}

// IsAccessDenied reports whether the credentials lack a right. AWS has two codes.
func IsAccessDenied(err error) bool {
	return slices.Contains([]string{"AccessDenied", "AccessDeniedException"}, ErrorCode(err))
}

// IsRefusal reports whether SQS answered that it does not carry out a request: a right is missing, a login has expired,
// or a setting is wrong. A refused receive does not count as a receive.
func IsRefusal(err error) bool {
	code := ErrorCode(err)
	if code == "" || code == "QueueDeletedRecently" || IsMissingQueue(err) || throttledCode.MatchString(code) {
		return false
	}
	answer, ok := errors.AsType[interface {
		error
		HTTPStatusCode() int
	}](err)
	return IsAccessDenied(err) || ok && answer.HTTPStatusCode()/100 == 4
}

// IsLoginRefused reports whether the credentials are expired or unknown.
func IsLoginRefused(err error) bool {
	return slices.Contains([]string{"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException", "InvalidSecurity"}, ErrorCode(err))
}

var throttledCode = regexp.MustCompile(`Throttl|OverLimit|SlowDown|LimitExceeded|TooManyRequests`)

// IsStaleReceipt reports whether a receipt is no longer valid: the message was deleted, or became visible and may be
// with another process.
func IsStaleReceipt(err error) bool {
	switch ErrorCode(err) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight":
		return true
	case "InvalidParameterValue":
		text := strings.ToLower(err.Error())
		return strings.Contains(text, "receipt") || strings.Contains(text, "visibilitytimeout")
	default:
		return false
	}
}

// isRefused reports whether SQS will never accept this message.
func isRefused(err error) bool {
	switch ErrorCode(err) {
	case "InvalidMessageContents", "InvalidAttributeValue", "InvalidParameterValue", "InvalidParameterCombination", "MissingParameter",
		"UnsupportedOperation", "MessageTooLong":
		return true
	}
	entry, ok := errors.AsType[*entryError](err)
	return ok && entry.sender && !temporaryCode.MatchString(entry.code)
}

// temporaryCode matches codes that AWS counts as the sender's fault although the message is valid.
var temporaryCode = regexp.MustCompile(`Throttl|OverLimit|SlowDown|LimitExceeded|Kms|KMS|Denied|Token|Signature|Security|Authoriz`)

// isAnswer reports whether SQS carried out a request as far as that is possible: it neither denied nor postponed it.
func isAnswer(err error) bool {
	entry, ok := errors.AsType[*entryError](err)
	return (ok && entry.sender || IsRefusal(err)) && !temporaryCode.MatchString(ErrorCode(err))
}

// mayConcernOneEntry reports whether one entry, or the total size, may have caused the refusal of a whole batch. Then
// each entry is sent alone.
func mayConcernOneEntry(err error) bool {
	return isRefused(err) || slices.Contains([]string{"BatchRequestTooLong", "BatchEntryIdsNotDistinct", "InvalidBatchEntryId"}, ErrorCode(err))
}

// ErrorOf returns the error of a request, without secrets and with advice. what says what was done to the queue.
func ErrorOf(what, queue string, err error) error {
	return fmt.Errorf("sqs: %s %s: %w%s", what, queue, RedactError(err), advice(err))
}

// advice returns advice about an error that a wrong configuration of the client causes, or "".
func advice(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return "; is Config.Endpoint right, or else the region, and does the server run?"
	}
	if err != nil && strings.Contains(err.Error(), "get credentials") {
		return "; give the process AWS credentials: in the environment, a profile, a role or Config.AWS"
	}
	return ""
}
