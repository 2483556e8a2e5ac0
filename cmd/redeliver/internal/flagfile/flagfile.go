// Package flagfile reads a YAML file whose keys are the names of flags. The file has one definition with the flags: a
// value is set as on the command line, so a flag that is added is a key as well.
//
//	health: :8081              # a flag of the whole process
//	defaults:                  # of every section
//	  broker: kafka://localhost:9092
//	subscriptions:             # the sections
//	  - topic: orders
//	    retries: 5
package flagfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// The keys at the top that are no flags.
const (
	keyDefaults = "defaults"
	keySections = "subscriptions"
)

// Spec describes a file.
type Spec struct {
	// Process are the flags of the whole process.
	Process *pflag.FlagSet
	// Section returns new flags of a section.
	Section func() *pflag.FlagSet
	// Command is the flag of which a section has a command with its arguments as a list.
	Command string
	// Either are pairs of flags that exclude each other. A section that has one does not inherit the other.
	Either [][2]string
	// Given are values that sections inherit, behind those of the file.
	Given map[string]string
	// Hint returns the end of an error that asks for a name that is similar to an unknown key.
	Hint func(key string, names []string) string
}

// File is what a file says.
type File struct {
	Process  *Section
	Sections []*Section
}

// Section has the flags that the file sets.
type Section struct {
	Flags   *pflag.FlagSet
	Command []string // the command and its arguments; nil for none
	Line    int      // of its beginning
	lines   map[string]int
}

// LineOf returns the line that sets a flag, or the section's if none does.
func (s *Section) LineOf(flag string) int { return cmp.Or(s.lines[flag], s.Line) }

// Problem is what is wrong at a line.
type Problem struct {
	Line int
	Text string
}

// Read reads the text of a file in the directory dir. It returns all problems that it finds, in the order of their lines.
func Read(text []byte, dir string, spec Spec) (*File, []Problem) {
	r := &reader{Spec: spec, dir: dir}
	f := r.file(text)
	slices.SortStableFunc(r.problems, func(x, y Problem) int { return x.Line - y.Line })
	return f, slices.Compact(r.problems) // each section reports what it inherits
}

type reader struct {
	Spec

	dir      string
	problems []Problem
}

func (r *reader) badf(line int, format string, args ...any) {
	r.problems = append(r.problems, Problem{line, fmt.Sprintf(format, args...)})
}

// entry is a key with its value.
type entry struct {
	key   string
	line  int
	value *yaml.Node
}

func (r *reader) file(text []byte) *File {
	var root yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(text))
	err := dec.Decode(&root)
	if err == nil && !errors.Is(dec.Decode(new(yaml.Node)), io.EOF) {
		r.badf(1, "the file has more than one document: write one")
		return nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.syntax(err)
		return nil
	}
	top := &yaml.Node{Kind: yaml.MappingNode, Line: 1} // of an empty file
	if len(root.Content) > 0 {
		top = root.Content[0]
	}
	f := &File{Process: &Section{Flags: r.Process, Line: 1, lines: make(map[string]int)}}
	var defaults []entry
	var sections *yaml.Node
	for _, e := range r.entries(top, "the file") {
		switch e.key {
		case keyDefaults:
			defaults = r.entries(e.value, keyDefaults)
		case keySections:
			sections = e.value
		default:
			r.set(f.Process, e, keyDefaults, keySections)
		}
	}
	switch {
	case top.Kind != yaml.MappingNode: // already reported
	case sections == nil:
		r.badf(1, "%s is missing: the list of what to consume", keySections)
	case sections.Kind != yaml.SequenceNode || len(sections.Content) == 0:
		r.badf(sections.Line, "%s must be a list with at least one entry, each beginning with \"- topic:\"", keySections)
	default:
		for _, node := range sections.Content {
			f.Sections = append(f.Sections, r.section(node, defaults))
		}
	}
	return f
}

// quoted matches text of the file that the YAML parser's errors quote. It may be a password.
var quoted = regexp.MustCompile("`[^`]*`")

// lineOf matches the line in an error of the YAML parser.
var lineOf = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *reader) syntax(err error) {
	text := quoted.ReplaceAllString(err.Error(), "the value")
	line := 1
	if m := lineOf.FindStringSubmatch(text); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
		}
		text = text[len(m[0]):]
	}
	r.badf(line, "this is not YAML: %s", text)
}

// entries returns the entries of a mapping.
func (r *reader) entries(node *yaml.Node, what string) (all []entry) {
	node = resolved(node)
	if node.Kind != yaml.MappingNode {
		r.badf(node.Line, "%s must have keys with values, as in \"topic: orders\"", what)
		return nil
	}
	first := make(map[string]int)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		switch line := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.badf(key.Line, "a key must be the name of a flag")
		case key.Tag == "!!merge":
			r.badf(key.Line, "merge keys are not supported: write what subscriptions have in common under %s", keyDefaults)
		case line != 0:
			r.badf(key.Line, "%s is given twice: line %d has it, too", key.Value, line)
		default:
			first[key.Value] = key.Line
			all = append(all, entry{key.Value, key.Line, resolved(node.Content[i+1])})
		}
	}
	return all
}

func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

// section reads a section with what it inherits.
func (r *reader) section(node *yaml.Node, defaults []entry) *Section {
	s := &Section{Flags: r.Section(), Line: node.Line, lines: make(map[string]int)}
	own := r.entries(node, "a subscription")
	has := func(all []entry, key string) bool {
		return slices.ContainsFunc(all, func(e entry) bool { return e.key == key })
	}
	inherits := func(all []entry, key string) bool {
		other := ""
		for _, pair := range r.Either {
			if i := slices.Index(pair[:], key); i >= 0 {
				other = pair[1-i]
			}
		}
		return !has(all, key) && (other == "" || !has(all, other))
	}
	all := own
	for _, e := range defaults {
		if inherits(own, e.key) {
			all = append(all, e)
		}
	}
	for name, value := range r.Given {
		if inherits(all, name) {
			_ = s.Flags.Set(name, value) // it was set before, on the command line
		}
	}
	for _, e := range all {
		r.set(s, e)
	}
	return s
}

// set sets a flag. others are keys that are no flags, for a hint.
func (r *reader) set(s *Section, e entry, others ...string) {
	if r.Command != "" && e.key == r.Command && s.Flags.Lookup(e.key) != nil {
		if s.Command = texts(e.value); len(s.Command) == 0 {
			r.badf(e.line, "%s must be a list with the command and its arguments, as in [./charge, --fast]", e.key)
			return
		}
		_ = s.Flags.Set(e.key, "true") // it is a bool
		s.lines[e.key] = e.line
		return
	}
	flag := s.Flags.Lookup(e.key)
	if flag == nil {
		r.badf(e.line, "unknown key %q%s", e.key, r.hint(s, e.key, others))
		return
	}
	k := kinds[flag.Value.Type()]
	values := k.read(e.value)
	if len(values) == 0 {
		r.badf(e.line, "%s must be %s", e.key, k.words)
		return
	}
	for _, v := range values {
		if name, _ := pflag.UnquoteUsage(flag); name == "file" && v != "" && !filepath.IsAbs(v) {
			v = filepath.Join(r.dir, v) // as in a file of profiles
		}
		if err := s.Flags.Set(e.key, v); err != nil {
			r.badf(e.line, "%s must be %s", e.key, k.words)
			return
		}
	}
	s.lines[e.key] = e.line
}

// hint says where an unknown key belongs.
func (r *reader) hint(s *Section, key string, others []string) string {
	if s.Flags == r.Process && r.Section().Lookup(key) != nil {
		return ": it belongs to a subscription, or under " + keyDefaults
	}
	if s.Flags != r.Process && r.Process.Lookup(key) != nil {
		return ": it belongs to the top of the file"
	}
	s.Flags.VisitAll(func(f *pflag.Flag) { others = append(others, f.Name) })
	return r.Hint(key, others)
}
