package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/flagfile"
)

// maxFile is the maximum size in bytes of a file of subscriptions.
const maxFile = 1 << 20

// fileReader reads a file of subscriptions.
type fileReader struct {
	*app

	path     string
	sections map[*pflag.FlagSet]*consumed
	problems []flagfile.Problem
}

// newFileReader returns a reader and the specification of its file. The flags of p are at the top of the file.
func (a *app) newFileReader(p *processFlags) (*fileReader, flagfile.Spec) {
	r := &fileReader{app: a, path: p.file, sections: make(map[*pflag.FlagSet]*consumed)}
	top := newFlagSet()
	p.define(top)
	return r, flagfile.Spec{
		Process: top, Section: r.section, Command: "exec", Either: [][2]string{{"http", "exec"}, {"broker", "profile"}},
		Hint: func(key string, names []string) string {
			if hint := didYouMean(strings.ReplaceAll(key, "_", "-"), "", names); hint != "" {
				return hint
			}
			return ": a key is the name of a flag of redeliver run, without the dashes"
		},
	}
}

func newFlagSet() *pflag.FlagSet {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	return flags
}

// section returns the flags of a new subscription.
func (r *fileReader) section() *pflag.FlagSet {
	s := &consumed{app: &app{printer: r.printer}, flags: &runFlags{}, given: newFlagSet()}
	s.conn.config = r.conn.config // one for all
	connection := newFlagSet()
	s.conn.flags(connection)
	connection.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" {
			s.given.AddFlag(f)
		}
	})
	s.flags.define(s.given)
	r.sections[s.given] = s
	return s.given
}

// readFile returns the subscriptions of a file. Its error has all problems with their lines. Flags of the connection are for the
// subscriptions that have no broker of their own, and flags of the process replace what the file says.
func (a *app) readFile(cmd *cobra.Command, p *processFlags) (all []*consumed, err error) {
	if args := cmd.Flags().Args(); len(args) > 0 {
		return nil, usagef("unexpected argument %q: the commands are in the file", redeliver.Redact(args[0]))
	}
	text, err := os.ReadFile(p.file)
	switch {
	case err != nil:
		return nil, usagef("--file: %w", err)
	case len(text) > maxFile:
		return nil, usagef("--file %s has %d bytes: must be at most %d", p.file, len(text), maxFile)
	}
	r, spec := a.newFileReader(p)
	spec.Given = make(map[string]string)
	process := make(map[string]string)
	known := r.section()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch group := strings.Join(f.Annotations[groupKey], ""); {
		case spec.Process.Lookup(f.Name) != nil:
			process[f.Name] = f.Value.String()
		case group == groupConnection && known.Lookup(f.Name) != nil:
			spec.Given[f.Name] = f.Value.String()
		case known.Lookup(f.Name) != nil && err == nil:
			err = usagef("--%s and --file exclude each other: write %s into the file, for all subscriptions under defaults", f.Name, f.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	f, problems := flagfile.Read(text, filepath.Dir(p.file), spec)
	r.problems = problems
	if len(problems) == 0 { // others would follow from these
		for name, value := range process {
			_ = spec.Process.Set(name, value) // it was set before, on the command line
		}
		all = r.check(f, p)
	}
	if len(r.problems) == 0 {
		return all, nil
	}
	slices.SortStableFunc(r.problems, func(x, y flagfile.Problem) int { return x.Line - y.Line })
	var lines []string
	for _, problem := range slices.Compact(r.problems) {
		lines = append(lines, fmt.Sprintf("%s:%d: %s", p.file, problem.Line, problem.Text))
	}
	return nil, usagef("%s", strings.Join(lines, "\n"))
}

// check checks each subscription, and then what they have in common.
func (r *fileReader) check(f *flagfile.File, p *processFlags) (all []*consumed) {
	p.verify(r.Env, func(format string, args ...any) { r.add(f.Process, fmt.Errorf(format, args...)) })
	readers := make(map[string]int) // lines of topics, by what must be different
	for _, section := range f.Sections {
		s := r.sections[section.Flags]
		s.flags.argv = section.Command
		var errs []error
		s.c, errs = s.readRun(s.flags, s.given, 0)
		if err := checkDependentFlags(s.given); err != nil {
			errs = append(errs, err)
		}
		if s.flags.maxTimeout != 0 && p.health == "" {
			errs = append(errs, usagef("--max-timeout means nothing without health, which serves the URLs that extend an attempt"))
		}
		for _, err := range errs {
			r.add(section, err)
		}
		once := func(flag, what string, identity ...string) {
			key := fmt.Sprintf("%q", identity)
			if line := readers[key]; line != 0 {
				r.add(section, usagef("--%s: line %d already has %s", flag, line, what))
				return
			}
			readers[key] = section.LineOf(flag)
		}
		kind, at, group := string(s.c.Broker.Broker), s.c.Broker.String(), s.c.Group
		for _, topic := range s.c.Topics {
			if p.metrics { // they do not have the address of the broker
				once("topic", "this topic and group on a broker of this kind, and metrics cannot tell them apart", "topic", kind, group, topic)
			} else {
				once("topic", "this topic and group", "topic", at, group, topic)
			}
		}
		if s.c.Instance != "" {
			once("instance-id", "this instance-id in the same group", "instance", at, group, s.c.Instance)
		}
		all = append(all, s)
	}
	return all
}

// flagName matches a flag in an error.
var flagName = regexp.MustCompile(`--([a-z][a-z-]*[a-z])\b`)

// inKeys replaces forms of the command line with those of the file.
var inKeys = strings.NewReplacer("missing required flag --", "missing ", "give --http URL, or --exec -- COMMAND", "give http: URL, or exec: [COMMAND]")

// add adds the problems of an error at the lines of the flags that they name.
func (r *fileReader) add(section *flagfile.Section, err error) {
	if many, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(many.Unwrap()...).Error() == err.Error() {
		for _, err := range many.Unwrap() {
			r.add(section, err)
		}
		return
	}
	if many, ok := errors.AsType[*redeliver.ConfigError](err); ok && len(many.Problems) > 1 {
		for _, p := range many.Problems {
			r.add(section, &redeliver.ConfigError{Problems: []redeliver.Problem{p}})
		}
		return
	}
	text := strings.TrimPrefix(inKeys.Replace(inFlags(err)), "configuration refused: ")
	line := section.Line
	for _, m := range flagName.FindAllStringSubmatch(text, -1) {
		if line = section.LineOf(m[1]); line != section.Line {
			break
		}
	}
	text = flagName.ReplaceAllString(text, "$1")
	r.problems = append(r.problems, flagfile.Problem{Line: line, Text: redeliver.Redact(text)})
}

// FileSchema returns the JSON Schema of a file of subscriptions.
func FileSchema() map[string]any {
	_, spec := new(app).newFileReader(&processFlags{})
	return flagfile.Schema("redeliver run --file", spec)
}
