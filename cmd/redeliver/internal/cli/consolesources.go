package cli

import (
	"cmp"
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
	"github.com/redeliver/redeliver/internal/brokerurl"
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
	brokers    []*source
	queues     []console.Queue
	notCounted []string // the DLQs without counts of waiting messages, and why
}

// source is one broker with a unique name.
type source struct {
	name string
	b    *broker
	dlqs []subject // given with --dlq

	opened    map[string]bool // names of open DLQs
	unowned   []string        // DLQs whose names contain no topic and group
	notOpened []string        // DLQs that were listed but could not be opened, and why
	notListed string          // why the DLQs were not listed the last time
}

// openSources connects to all brokers and opens the DLQs. The caller must close the result even if there is an error.
func (a *app) openSources(ctx context.Context, f *sourceFlags) (*sources, error) {
	s := &sources{}
	type given struct{ name, url, profile string }
	var all []given
	for _, text := range f.brokers {
		name, url, ok := strings.Cut(text, "=")
		if !ok || strings.Contains(name, "://") {
			name, url = "", text
		}
		all = append(all, given{name: name, url: url})
	}
	for _, name := range f.profiles {
		all = append(all, given{name: name, profile: name})
	}
	if len(all) == 0 {
		all = append(all, given{}) // that of the environment, or of the default profile
	}
	var apps []*app
	missing := 0 // RabbitMQ brokers whose profile has no management API
	for _, n := range all {
		one := *a
		one.conn.broker, one.conn.profile = n.url, n.profile
		if len(all) > 1 && !needsPassword(n.url) { // a separate password is for the URLs that have none
			one.conn.passwordFile, one.Env = "", without(one.Env, envPassword)
		}
		if needsManagement, err := one.needsManagement(); err != nil {
			return s, err
		} else if needsManagement {
			missing++
		} else if len(all) > 1 { // the one address is for another
			one.conn.management, one.Env = "", without(one.Env, envManagement)
		}
		apps = append(apps, &one)
	}
	switch {
	case len(all) == 1:
	case a.conn.management != "" && missing == 0:
		return s, usagef("--management-url is for RabbitMQ, and none of the brokers needs it; omit it")
	case cmp.Or(a.conn.management, a.Env(envManagement)) != "" && missing > 1, missing > 0 && a.conn.management+a.Env(envManagement) == "" && len(f.dlqs) == 0:
		return s, usagef("AMQP cannot list queues, and %d of the RabbitMQ brokers have no management API: write a profile with management-url for each (\"redeliver init\") and give --profile instead of --broker, or name their DLQs with --dlq", missing)
	}
	for i, n := range all {
		b, err := apps[i].open(ctx, setup{})
		if err != nil {
			return s, err
		}
		if err := s.add(n.name, b); err != nil {
			return s, err
		}
	}
	for _, text := range f.dlqs {
		if err := s.addDLQ(text); err != nil {
			return s, err
		}
	}
	for _, one := range s.brokers {
		if err := s.open(ctx, one); err != nil {
			return s, one.b.conn.withAddress(fmt.Errorf("%s: %w", one.name, err))
		}
	}
	return s, nil
}

// needsManagement reports whether the broker is RabbitMQ and its profile has no management API.
func (a *app) needsManagement() (bool, error) {
	conn := a.conn // url changes it
	u, err := conn.url(a.Env)
	return err == nil && u.Broker == brokerurl.RabbitMQ && conn.loadedAPI == "", err
}

// notes names the DLQs that are not shown, and why.
func (s *sources) notes() (notes []string) {
	for _, one := range s.brokers {
		for _, name := range one.unowned {
			notes = append(notes, name+" is not shown: its name contains no topic and group. Start the console with --dlq NAME,topic=T,group=G")
		}
		for _, why := range one.notOpened {
			notes = append(notes, why+". It is not shown; the console tries again")
		}
		if one.notListed != "" {
			notes = append(notes, one.name+": new DLQs are not found: "+one.notListed)
		}
	}
	if len(s.queues)+len(notes) == 0 {
		notes = append(notes, "there are no DLQs yet. New ones of redeliver appear here; for one that another program fills, start the console with --dlq NAME,topic=T,group=G")
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
			return usagef("the broker's name is %q: must be unique, and not contain a /", name)
		}
		return nil
	}
	one.name = string(b.kind)
	for n := 2; taken(one.name); n++ {
		one.name = fmt.Sprintf("%s-%d", b.kind, n)
	}
	return nil
}

// addDLQ parses one --dlq.
func (s *sources) addDLQ(text string) error {
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
		return usagef("--dlq %s does not name one of the brokers: write %s/%s, or the name of another broker", text, of.name, dlq)
	}
	if dlq == "" {
		return usagef("--dlq %s names no DLQ", text)
	}
	of.dlqs = append(of.dlqs, subject{dlq: dlq, topic: topic, group: group})
	return nil
}

// open opens the DLQs of a broker: the named ones, or otherwise all that it lists.
func (s *sources) open(ctx context.Context, one *source) error {
	if len(one.dlqs) == 0 {
		return s.openListed(ctx, one)
	}
	if err := one.b.addOwners(ctx, one.dlqs); err != nil {
		return err
	}
	for _, sub := range one.dlqs {
		q, err := one.b.dlq(ctx, sub)
		if err != nil {
			return err
		}
		s.show(ctx, one, q)
	}
	return nil
}

// addOwners fills in the topics and groups that were not given with --dlq.
func (b *broker) addOwners(ctx context.Context, dlqs []subject) (err error) {
	for i := range dlqs {
		if of := &dlqs[i]; of.topic == "" {
			if of.topic, of.group, err = b.ownerOf(ctx, of.dlq); err != nil {
				return err
			}
		}
	}
	return nil
}

// openListed opens the DLQs that a broker lists and that are not open yet.
func (s *sources) openListed(ctx context.Context, one *source) error {
	if one.b.queues == nil {
		return errUnlisted
	}
	all, err := one.b.queues(ctx)
	if err != nil {
		return err
	}
	if one.opened == nil {
		one.opened = make(map[string]bool)
	}
	one.unowned, one.notOpened = nil, nil
	for _, info := range all {
		switch {
		case one.opened[info.DLQ]:
			continue
		case info.Origin == "":
			one.unowned = append(one.unowned, one.name+"/"+info.DLQ)
			continue
		}
		q, err := one.b.dlq(ctx, subject{topic: info.Origin, group: info.Group}) // topic and group determine the DLQ
		if ctx.Err() != nil && err != nil {
			return err
		}
		if err != nil { // a missing right or a half-created DLQ must not affect the others
			one.notOpened = append(one.notOpened, fmt.Sprintf("%s/%s: %v", one.name, info.DLQ, redeliver.Redact(inFlags(err))))
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
		s.notCounted = append(s.notCounted, fmt.Sprintf("%s/%s: %v", one.name, q.Info().DLQ, err))
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
			limited, cancel := context.WithTimeout(ctx, every)
			one.notListed = ""
			if err := s.openListed(limited, one); err != nil && ctx.Err() == nil {
				one.notListed = redeliver.Redact(inFlags(err))
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
