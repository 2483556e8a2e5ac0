package cli

import (
	"errors"
	"fmt"
)

// The exit codes, documented in docs/reference/command.md.
const (
	codeDone        = 0
	codeFailed      = 1   // nothing done, or outcome unknown
	codeUsage       = 2   // wrong usage, or no terminal for the confirmation
	codeFound       = 3   // check, doctor or ready found a problem
	codePartly      = 5   // a part was done and is not undone
	codeInterrupted = 130 // by Ctrl-C
)

// failure is an error with an exit code.
type failure struct {
	code int
	err  error
	// final means that code holds even if a signal ended the command.
	final bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// failedAtEnd returns the error of a verb that runs until a signal ends it. The signal itself is not an error.
func failedAtEnd(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: codeFailed, err: err, final: true}
}

func usagef(format string, args ...any) error { return failed(codeUsage, format, args...) }

// asFailure returns the failure in an error.
func asFailure(err error) (*failure, bool) { return errors.AsType[*failure](err) }
