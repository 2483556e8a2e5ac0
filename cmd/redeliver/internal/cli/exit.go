package cli

import (
	"errors"
	"fmt"
)

// How the command ends. They are documented in docs/reference/command.md and stay.
const (
	codeDone        = 0
	codeFailed      = 1   // nothing was done, or nobody knows
	codeUsage       = 2   // a wrong call, or a refusal to go on without --yes
	codeFound       = 3   // dlq check found something
	codePartly      = 5   // some of it was done, and stays done
	codeInterrupted = 130 // by Ctrl-C
)

// failure is an error that says how the command ends.
type failure struct {
	code int
	err  error
	// final: it is that code also where the command was told to end.
	final bool
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func failed(code int, format string, args ...any) error {
	return &failure{code: code, err: fmt.Errorf(format, args...)}
}

// atTheEnd is what goes wrong behind a verb that lasts until it is told to end: that it
// was told so is in order, and this is not.
func atTheEnd(err error) error {
	if err == nil {
		return nil
	}
	return &failure{code: codeFailed, err: err, final: true}
}

func usagef(format string, args ...any) error { return failed(codeUsage, format, args...) }

// asFailure finds out whether an error says how the command ends.
func asFailure(err error) (*failure, bool) { return errors.AsType[*failure](err) }
