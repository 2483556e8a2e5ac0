package cli

import (
	"errors"
	"fmt"
)

// The exit codes. docs/reference/command.md promises them.
const (
	codeDone        = 0
	codeFailed      = 1   // nothing was done, or it is not known
	codeUsage       = 2   // wrong usage, or no confirmation without a terminal
	codeFound       = 3   // check, doctor or ready found a problem
	codePartly      = 5   // a part was done, and stays done
	codeInterrupted = 130 // by Ctrl-C
)

// failure is an error with an exit code.
type failure struct {
	code int
	err  error
	// final keeps the code when a signal ended the command.
	final bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// atTheEnd is an error after a verb that runs until it is told to end. The end itself is
// no error.
func atTheEnd(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: codeFailed, err: err, final: true}
}

func usagef(format string, args ...any) error { return failed(codeUsage, format, args...) }

// asFailure returns the failure in an error.
func asFailure(err error) (*failure, bool) { return errors.AsType[*failure](err) }
