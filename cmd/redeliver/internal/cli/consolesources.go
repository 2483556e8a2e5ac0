package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/console"
)

// sourceFlags say which DLQs the console shows: those of which brokers.
type sourceFlags struct {
	brokers  []string
	profiles []string
	dlqs     []string
}

func (f *sourceFlags) flags(flags *pflag.FlagSet) {
	// These two stand for the flags of all verbs, of which there is one broker.
	flags.StringArrayVar(&f.brokers, "broker", nil, "`[NAME=]URL` of a broker, once for each (default $REDELIVER_BROKER, or the profile's)")
	flags.StringArrayVar(&f.profiles, "profile", nil, "`name` of a profile, once for each broker (default $REDELIVER_PROFILE)")
	flags.StringArrayVar(&f.dlqs, "dlq", nil, "`[NAME/]DLQ[,topic=T[,group=G]]` to show, once for each; NAME is the broker's where there are several (default all that the broker lists)")
}

// sources are the brokers of a console, with the DLQs that it shows.
type sources struct {
	brokers []*source
	queues  []console.Queue
	strange []string // DLQs whose names do not say whose they are
	shut    []string // those that were listed and could not be opened, and why
	silent  []string // those of which it is not known what waits, and why
}

// source is one broker. Its name tells it from the others.
type source struct {
	name string
	b    *broker
	dlqs []subject // that were named
}

// openSources connects to all brokers and opens the DLQs. What it returns is to be
// closed beside an error, too.
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
			// The password that stands beside the URLs is of those that lack one.
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

// notes are what is not shown, and why.
func (s *sources) notes() (notes []string) {
	for _, name := range s.strange {
		notes = append(notes, name+" is not shown: its name does not say whose it is; --dlq NAME,topic=T,group=G does")
	}
	for _, why := range s.shut {
		notes = append(notes, why+". It is not shown; when that is mended, start the console anew")
	}
	if len(s.queues)+len(s.shut) == 0 {
		notes = append(notes, "there are no DLQs yet that redeliver knows by their names: when there are, start the console anew; one that somebody else fills is named with --dlq NAME,topic=T,group=G")
	}
	return notes
}

// needsPassword tells whether a URL names a user and no password.
func needsPassword(url string) bool {
	_, rest, _ := strings.Cut(url, "://")
	rest, _, _ = strings.Cut(rest, "/")
	user, _, ok := strings.Cut(rest, "@")
	return ok && !strings.Contains(user, ":")
}

// without is an environment that lacks one variable.
func without(env func(string) string, name string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return ""
		}
		return env(asked)
	}
}

// add takes a broker along, under a name of its own.
func (s *sources) add(name string, b *broker) error {
	one := &source{name: name, b: b}
	s.brokers = append(s.brokers, one) // closed with the others, whatever its name
	taken := func(name string) bool {
		return slices.ContainsFunc(s.brokers, func(o *source) bool { return o != one && o.name == name })
	}
	if name != "" {
		if strings.Contains(name, "/") || taken(name) {
			return usagef("the broker's name %q has a / in it, or is there twice", name)
		}
		return nil
	}
	one.name = string(b.kind)
	for n := 2; taken(one.name); n++ {
		one.name = fmt.Sprintf("%s-%d", b.kind, n)
	}
	return nil
}

// name reads one --dlq.
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

// open opens the DLQs of a broker: those that were named, or else all that it lists.
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
	listed := len(subjects) == 0
	if listed {
		if one.b.queues == nil {
			return usagef("the DLQs there cannot be listed without --management-url: give that, or name each with --dlq")
		}
		all, err := one.b.queues(ctx)
		if err != nil {
			return err
		}
		for _, info := range all {
			if info.Origin == "" {
				s.strange = append(s.strange, one.name+"/"+info.DLQ)
				continue
			}
			subjects = append(subjects, subject{dlq: info.DLQ, topic: info.Origin, group: info.Group})
		}
	}
	for _, sub := range subjects {
		name := sub.dlq
		if listed {
			sub.dlq = "" // it is its origin's own
		}
		q, err := one.b.dlq(ctx, sub)
		if err != nil && listed && ctx.Err() == nil { // one that is half made, or may not be read, is not the others'
			s.shut = append(s.shut, fmt.Sprintf("%s/%s: %v", one.name, name, redeliver.Redact(inFlags(err))))
			continue
		}
		if err != nil {
			return err
		}
		s.queues = append(s.queues, console.Queue{Queue: q, Cluster: one.name})
		last := &s.queues[len(s.queues)-1] // closed with the others, whatever comes of the levels
		if last.Queue, err = one.b.withLevels(ctx, q); err != nil {
			s.silent = append(s.silent, fmt.Sprintf("%s/%s: %v", one.name, q.Info().DLQ, err))
		}
	}
	return nil
}

// close lets go of the DLQs, and of the brokers behind them.
func (s *sources) close(ctx context.Context) error {
	var errs []error
	for _, q := range s.queues {
		errs = append(errs, q.Close())
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	for _, one := range s.brokers {
		errs = append(errs, one.b.close(closing))
	}
	return errors.Join(errs...)
}
