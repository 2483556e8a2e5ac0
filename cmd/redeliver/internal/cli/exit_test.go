package cli

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// A console that is stopped and cannot close its record fails. It does not exit like an interrupted one.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	bad := errors.New("no space left")
	ended, end := context.WithCancel(t.Context())
	end()
	for name, row := range map[string]struct {
		err             error
		runs, wasEnding int
	}{
		"none":       {nil, codeDone, codeDone},
		"an error":   {bad, codeFailed, codeInterrupted},
		"a failure":  {failed(codeFailed, "%w", bad), codeFailed, codeInterrupted},
		"in part":    {failed(codePartly, "%w", bad), codePartly, codePartly},
		"at the end": {failedAtEnd(bad), codeFailed, codeFailed},
		"and fine":   {failedAtEnd(nil), codeDone, codeDone},
	} {
		a := &app{printer: printer{Streams: Streams{Err: &bytes.Buffer{}}}, began: true}
		if got := a.exit(t.Context(), "redeliver", row.err); got != row.runs {
			t.Errorf("%s is %d, want %d", name, got, row.runs)
		}
		if got := a.exit(ended, "redeliver", row.err); got != row.wasEnding {
			t.Errorf("%s, asked to end, is %d, want %d", name, got, row.wasEnding)
		}
	}
}
