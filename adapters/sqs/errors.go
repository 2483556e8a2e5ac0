package sqs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
)

var errClosed = errors.New("sqs: the client is closed")

// apiError is what SQS, or the way to it, says, fit for logs: a refused signature
// comes with the canonical request, and that with the session token.
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

// redactError makes an error of the client fit to be seen. It keeps what errors.Is and
// errors.As find.
func redactError(err error) error {
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
	return redeliver.Cut(keyID.ReplaceAllString(s, "***"), redeliver.MaxErrorText)
}

// entryError is a failure of one entry of a batch that SQS took otherwise.
type entryError struct {
	code, message string
	sender        bool // it is the entry's own fault
}

func (e *entryError) Error() string { return strings.TrimSpace(e.code + " " + redactText(e.message)) }

// ErrorCode makes it look like other errors of the API.
func (e *entryError) ErrorCode() string { return e.code }

func failedEntry(f types.BatchResultErrorEntry) error {
	e := &entryError{sender: f.SenderFault}
	if f.Code != nil {
		e.code = *f.Code
	}
	if f.Message != nil {
		e.message = *f.Message
	}
	return e
}

// errorCode is the API's name of an error, without what stands before it:
// "QueueDoesNotExist", and "" for errors that are none of the API's.
func errorCode(err error) string {
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

// isMissingQueue tells that a queue does not exist. AWS has two names for it.
func isMissingQueue(err error) bool {
	return slices.Contains([]string{"QueueDoesNotExist", "NonExistentQueue"}, errorCode(err))
}

// isStaleReceipt tells that a receipt is of no use any more: the message was deleted, or
// was hidden no longer and may have gone to another.
func isStaleReceipt(err error) bool {
	switch errorCode(err) {
	case "ReceiptHandleIsInvalid", "MessageNotInflight":
		return true
	case "InvalidParameterValue":
		text := strings.ToLower(err.Error())
		return strings.Contains(text, "receipt") || strings.Contains(text, "visibilitytimeout")
	default:
		return false
	}
}

// isRefused tells that SQS will never take this one message.
func isRefused(err error) bool {
	switch errorCode(err) {
	case "InvalidMessageContents", "InvalidAttributeValue", "InvalidParameterValue", "InvalidParameterCombination", "MissingParameter",
		"UnsupportedOperation", "MessageTooLong":
		return true
	}
	entry, ok := errors.AsType[*entryError](err)
	return ok && entry.sender && !temporaryCode.MatchString(entry.code)
}

// temporaryCode are codes of what is called the sender's fault and yet is none of the
// message's: it passes, or somebody mends it.
var temporaryCode = regexp.MustCompile(`Throttl|OverLimit|SlowDown|LimitExceeded|Kms|KMS|Denied|Token|Signature|Security|Authoriz`)

// mayConcernOneEntry tells that a whole batch may have been refused for one of its entries,
// or for their size, so that each has to be tried by itself.
func mayConcernOneEntry(err error) bool {
	return isRefused(err) || slices.Contains([]string{"BatchRequestTooLong", "BatchEntryIdsNotDistinct", "InvalidBatchEntryId"}, errorCode(err))
}

// isContextEnd tells that an error is only the end of ctx.
func isContextEnd(ctx context.Context, err error) bool { return err != nil && ctx.Err() != nil }

func errorOf(what, queue string, err error) error {
	return fmt.Errorf("sqs: %s %s: %w", what, queue, redactError(err))
}
