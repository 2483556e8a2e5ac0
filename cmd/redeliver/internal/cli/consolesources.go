package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
)

// sourceFlags select the brokers and DLQs that the console shows.
type sourceFlags struct {
	brokers  []string
	profiles []string
	dlqs     []string
}

func (f *sourceFlags) flags(flags *pflag.FlagSet) { grouped(flags, groupConnection, f.define) }

func (f *sourceFlags) define(flags *pflag.FlagSet) {
	// These two replace the flags of other verbs, which name only one broker.
	flags.StringArrayVar(&f.brokers, "broker", nil, "Show the DLQs of this broker, `[NAME=]URL` (default $REDELIVER_BROKER, or the profile's). Repeatable")
	flags.StringArrayVar(&f.profiles, "profile", nil, "Show the DLQs of the broker in the profile with this `name` (default $REDELIVER_PROFILE). Repeatable")
	flags.StringArrayVar(&f.dlqs, "dlq", nil, "Show this DLQ, `[NAME/]DLQ[,topic=T[,group=G]]`, and of its broker only the named ones. NAME is the broker's if there are several (default all DLQs that the broker lists). Repeatable")
}

// sources are the brokers of a console and the DLQs that it shows.
type sources struct {
	brokers []*source
	queues  []console.Queue
	silent  []string // the DLQs without counts of waiting messages, and why
}

// source is one broker with a unique name.
type source struct {
	name string
	b    *broker
	dlqs []subject // given with --dlq

	opened  map[string]bool // names of open DLQs
	strange []string        // DLQs whose names contain no topic and group
	shut    []string        // DLQs that were listed but could not be opened, and why
	mute    string          // why the DLQs were not listed the last time
}

// openSources connects to all brokers and opens the DLQs. The caller must close the result even if there is an error.
func (a *app) openSources(ctx context.Context, f *sourceFlags) (*sources, error) {
	s := &sources{}
	type named struct {
		name string
		conn connection
	}
	var all []named
	for _, text := range f.brokers {
		name, url := "", text
		if before, behind, ok := strings.Cut(text, "="); ok && !strings.Contains(before, "://") {
			name, url = before, behind
		}
		all = append(all, named{name, connection{broker: url, config: a.conn.config, passwordFile: a.conn.passwordFile, stateKeyFile: a.conn.stateKeyFile}})
	}
	for _, name := range f.profiles {
		all = append(all, named{name, connection{profile: name, config: a.conn.config, passwordFile: a.conn.passwordFile, stateKeyFile: a.conn.stateKeyFile}})
	}
	if len(all) == 0 {
		all = append(all, named{"", connection{config: a.conn.config, passwordFile: a.conn.passwordFile, stateKeyFile: a.conn.stateKeyFile}})
	}
	for _, n := range all {
		one := *a
		one.conn = n.conn
		switch {
		case len(all) == 1:
			one.conn.management = a.conn.management
		case a.conn.management != "":
			return s, usagef("--management-url is of one broker, and there are several: give profiles that have it")
		default:
			one.Env = without(one.Env, envManagement)
		}
		if len(all) > 1 && !needsPassword(n.conn.broker) {
			// A separate password is for the URLs that have none.
			one.conn.passwordFile, one.Env = "", without(one.Env, envPassword)
		}
		b, err := one.open(ctx, setup{})
		if err != nil {
			return s, err
		}
		if err := s.add(n.name, b); err != nil {
			return s, err
		}
	}
	for _, text := range f.dlqs {
		if err := s.name(text); err != nil {
			return s, err
		}
	}
	for _, one := range s.brokers {
		if err := s.open(ctx, one); err != nil {
			return s, one.b.from.at(fmt.Errorf("%s: %w", one.name, err))
		}
	}
	return s, nil
}

// notes names the DLQs that are not shown, and why.
func (s *sources) notes() (notes []string) {
	for _, one := range s.brokers {
		for _, name := range one.strange {
			notes = append(notes, name+" is not shown: its name does not say whose it is; --dlq NAME,topic=T,group=G does")
		}
		for _, why := range one.shut {
			notes = append(notes, why+". It is not shown; the console tries again")
		}
		if one.mute != "" {
			notes = append(notes, one.name+": new DLQs are not found: "+one.mute)
		}
	}
	if len(s.queues)+len(notes) == 0 {
		notes = append(notes, "there are no DLQs yet that redeliver knows by their names: they appear here; one that somebody else fills is named with --dlq NAME,topic=T,group=G")
	}
	return notes
}

// needsPassword reports whether a URL has a user but no password.
func needsPassword(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	user, _, ok := strings.Cut(rest, "@")
	return ok && !strings.Contains(user, ":")
}

// without returns an environment without one variable.
func without(env func(string) string, name string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return ""
		}
		return env(asked)
	}
}

// add adds a broker under a unique name.
func (s *sources) add(name string, b *broker) error {
	one := &source{name: name, b: b}
	s.brokers = append(s.brokers, one) // first, so that it is closed even if the name is refused
	taken := func(name string) bool {
		return slices.ContainsFunc(s.brokers, func(o *source) bool { return o != one && o.name == name })
	}
	if name != "" {
		if strings.Contains(name, "/") || taken(name) {
			return usagef("the broker's name %q contains a /, or was given twice", name)
		}
		return nil
	}
	one.name = string(b.kind)
	for n := 2; taken(one.name); n++ {
		one.name = fmt.Sprintf("%s-%d", b.kind, n)
	}
	return nil
}

// name parses one --dlq.
func (s *sources) name(text string) error {
	dlq, group, _ := strings.Cut(text, ",group=")
	dlq, topic, _ := strings.Cut(dlq, ",topic=")
	if topic == "" && group != "" {
		return usagef("--dlq %s: group without topic: give both, or neither", text)
	}
	of := s.brokers[0]
	name, rest, ok := strings.Cut(dlq, "/")
	i := slices.IndexFunc(s.brokers, func(o *source) bool { return o.name == name })
	switch {
	case ok && i >= 0:
		of, dlq = s.brokers[i], rest
	case len(s.brokers) > 1:
		return usagef("--dlq %s: on which broker? write %s/%s, or the name of another", text, of.name, dlq)
	}
	if dlq == "" {
		return usagef("--dlq %s names no DLQ", text)
	}
	of.dlqs = append(of.dlqs, subject{dlq: dlq, topic: topic, group: group})
	return nil
}

// open opens the DLQs of a broker: the named ones, or otherwise all that it lists.
func (s *sources) open(ctx context.Context, one *source) error {
	if one.b.dlq == nil {
		return one.b.notThere("the console")
	}
	subjects := one.dlqs
	for i := range subjects {
		if subjects[i].topic == "" {
			var err error
			if subjects[i].topic, subjects[i].group, err = one.b.whose(ctx, subjects[i].dlq); err != nil {
				return err
			}
		}
	}
	if len(subjects) == 0 {
		return s.find(ctx, one)
	}
	for _, sub := range subjects {
		q, err := one.b.dlq(ctx, sub)
		if err != nil {
			return err
		}
		s.show(ctx, one, q)
	}
	return nil
}

// find opens the DLQs that a broker lists and that are not open yet.
func (s *sources) find(ctx context.Context, one *source) error {
	if one.b.queues == nil {
		return usagef("the DLQs there cannot be listed without --management-url: give that, or name each with --dlq")
	}
	all, err := one.b.queues(ctx)
	if err != nil {
		return err
	}
	if one.opened == nil {
		one.opened = make(map[string]bool)
	}
	one.strange, one.shut = nil, nil
	for _, info := range all {
		switch {
		case one.opened[info.DLQ]:
			continue
		case info.Origin == "":
			one.strange = append(one.strange, one.name+"/"+info.DLQ)
			continue
		}
		q, err := one.b.dlq(ctx, subject{topic: info.Origin, group: info.Group}) // topic and group determine the DLQ
		if ctx.Err() != nil && err != nil {
			return err
		}
		if err != nil { // a missing right or a half-created DLQ must not affect the others
			one.shut = append(one.shut, fmt.Sprintf("%s/%s: %v", one.name, info.DLQ, redeliver.Redact(inFlags(err))))
			continue
		}
		one.opened[info.DLQ] = true
		s.show(ctx, one, q)
	}
	return nil
}

// show adds a DLQ that was opened. sources.close closes it.
func (s *sources) show(ctx context.Context, one *source, q deadletter.Queue) {
	with, err := one.b.withGroup(ctx, q)
	if err != nil {
		s.silent = append(s.silent, fmt.Sprintf("%s/%s: %v", one.name, q.Info().DLQ, err))
	}
	s.queues = append(s.queues, console.Queue{Queue: with, Cluster: one.name})
}

// watch finds DLQs that are created while the console runs, and shows them, until ctx ends.
func (s *sources) watch(ctx context.Context, c *console.Console, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		had := len(s.queues)
		for _, one := range s.brokers {
			if len(one.dlqs) > 0 {
				continue
			}
			looking, cancel := context.WithTimeout(ctx, every)
			one.mute = ""
			if err := s.find(looking, one); err != nil && ctx.Err() == nil {
				one.mute = redeliver.Redact(inFlags(err))
			}
			cancel()
		}
		for _, q := range s.queues[had:] {
			_ = c.Add(q) // fails only if the console is closing
		}
		c.SetNotes(s.notes()...)
	}
}

// close closes the DLQs and their brokers.
func (s *sources) close(ctx context.Context, timeout time.Duration) error {
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.Close())
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for _, one := range s.brokers {
		errs = append(errs, one.b.close(closing))
	}
	return errors.Join(errs...)
}
