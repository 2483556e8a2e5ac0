package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// yesFlag adds the flag --yes of commands that change something.
func yesFlag(flags *pflag.FlagSet, yes *bool) {
	flags.BoolVarP(yes, "yes", "y", false, "Do not ask for confirmation. Required when stdin or stderr is not a terminal")
}

// checkConfirmable returns an error if a command needs a confirmation, but has neither a terminal nor --yes. It is
// called before anything is read.
func (a *app) checkConfirmable(cmd *cobra.Command, yes bool) error {
	if yes || a.InTerminal && a.ErrTerminal {
		return nil
	}
	preview := ""
	if cmd.Flags().Lookup("dry-run") != nil {
		preview = ", or preview the change with --dry-run"
	}
	return usagef("this command asks for confirmation, and there is no terminal: give --yes%s", preview)
}

// confirm asks a question and requires exactly the answer want. No answer means no.
func (a *app) confirm(ctx context.Context, want, question string) error {
	fmt.Fprintf(a.Err, "%s [%s] ", visibleLines(question), visible(want))
	answers := make(chan string, 1)
	go func() { // a read from a terminal cannot be interrupted
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
