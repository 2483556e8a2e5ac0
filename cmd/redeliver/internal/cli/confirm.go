package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// yesFlag is the --yes of the verbs that begin work.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask; without it, and without a terminal, nothing is done")
}

// unasked refuses, before anything is looked at, what can neither be asked nor has
// been answered.
func (a *app) unasked(cmd *cobra.Command, yes bool) error {
	if yes || a.InTerminal && a.ErrTerminal {
		return nil
	}
	return usagef("%s changes something, and there is no terminal to ask on: give --yes, or look first with --dry-run", cmd.CommandPath())
}

// confirm asks, and wants exactly this answer. No answer is a no.
func (a *app) confirm(ctx context.Context, want, format string, args ...any) error {
	fmt.Fprintf(a.Err, "%s [%s] ", visibleLines(fmt.Sprintf(format, args...)), visible(want))
	answers := make(chan string, 1)
	go func() { // a read from a terminal cannot be ended
		line, err := bufio.NewReader(a.In).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			line = ""
		}
		answers <- strings.TrimSpace(line)
	}()
	select {
	case got := <-answers:
		if got == want {
			return nil
		}
		return failed(codeFailed, "not confirmed: nothing was done")
	case <-ctx.Done():
		return failed(codeInterrupted, "not confirmed: nothing was done")
	}
}
