package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe"
)

// consumed is a subscription of run: topics with their broker, policy and handler.
type consumed struct {
	*app // its connection is that of the subscription

	flags *runFlags
	given *pflag.FlagSet // the definition of flags
	c     sidecar.Config
}

// name names the subscription among others.
func (s *consumed) name() string {
	name := strings.Join(s.c.Topics, ", ")
	if s.c.Group != "" {
		name += " of group " + s.c.Group
	}
	return name + " on " + s.c.Broker.String()
}

// addresses are the URLs that a process serves.
type addresses struct{ health, publish string }

// row returns what run prints about the subscription.
func (s *consumed) row(at addresses) handlingRow {
	return handlingRow{
		Broker: string(s.c.Broker.Broker), Topics: s.c.Topics, Group: s.c.Group, Handler: s.flags.handlerName(),
		Health: at.health, Publish: at.publish, Skips: s.c.Filter.Describe(), OnDeadLetter: s.flags.webhook.name(),
	}
}

// readConsumed returns the subscriptions of the flags or the file. Its error has all problems.
func (a *app) readConsumed(cmd *cobra.Command, f *runFlags, p *processFlags) ([]*consumed, error) {
	if p.file != "" {
		return a.readFile(cmd, p)
	}
	s := &consumed{app: a, flags: f, given: cmd.Flags()}
	var errs []error
	s.c, errs = a.readRun(f, s.given, cmd.ArgsLenAtDash())
	p.verify(a.Env, func(format string, args ...any) { errs = append(errs, usagef(format, args...)) })
	if len(errs) > 0 {
		return nil, usagef("%w", errors.Join(errs...))
	}
	return []*consumed{s}, nil
}

// serveMessages handles messages until the context of cmd ends.
func (a *app) serveMessages(cmd *cobra.Command, f *runFlags, p *processFlags) error {
	ctx := cmd.Context()
	all, err := a.readConsumed(cmd, f, p)
	if err != nil {
		return err
	}
	if p.check {
		return a.printConsumed(all, p, addresses{})
	}
	var extensions *sidecar.Extensions
	if p.health != "" {
		extensions = sidecar.NewExtensions()
	}
	log := a.logger(p.log)
	states := make([]*sidecar.Health, len(all))
	for i, s := range all {
		s.c.Log, s.c.Extensions = log, extensions
		if len(all) > 1 {
			s.c.Log = log.With("subscription", s.name())
		}
		end, err := s.prepare(p)
		if err != nil {
			return err
		}
		defer end() // after all have ended, so that the webhook reports the last dead letters
		states[i] = s.c.Health
	}
	var urls addresses
	if p.publish != "" {
		at, end, err := a.servePublish(ctx, all, p)
		if err != nil {
			return err
		}
		defer end() // programs publish until they have ended
		for _, warning := range p.plainToken() {
			log.Warn(warning)
		}
		urls.publish = "http://" + at + "/v1/topics/"
	}
	if p.health != "" {
		pages := http.NewServeMux()
		pages.Handle("/", sidecar.HealthPages(states...))
		pages.Handle(sidecar.ExtendPath, extensions)
		if p.metrics {
			end, err := addMetrics(ctx, all, log, pages)
			if err != nil {
				return err
			}
			defer end()
		}
		at, end, err := listen(ctx, "--health", p.health, pages)
		if err != nil {
			return err
		}
		defer end()
		extensions.Listening(at)
		urls.health = "http://" + at
	}
	if err := a.printConsumed(all, p, urls); err != nil {
		return err
	}
	return runAll(ctx, all, log)
}

// prepare opens what the subscription needs besides its broker. Call end after it has ended.
func (s *consumed) prepare(p *processFlags) (end func(), err error) {
	c := &s.c
	isKafka := c.Broker.Broker == brokerurl.Kafka || c.Broker.Broker == brokerurl.KafkaShare
	if isKafka && !s.given.Changed("max-batch-bytes") {
		c.Broker.MaxBatch = maxBatchFor(c.Broker, c.Topics)
	}
	if skips := c.Filter.Describe(); len(skips) > 0 {
		c.Log.Info("the handler does not get all messages; these are acked", "skips", strings.Join(skips, "; "))
	}
	for _, warning := range append(plainPasswords(c.Broker, ""), s.flags.plainSecrets()...) {
		c.Log.Warn(warning)
	}
	if c.Handler, err = s.newHandler(s.flags, p, c); err != nil {
		return nil, usagef("--exec cannot start its command: %w", err)
	}
	if c.Dedup, err = s.flags.dedup.open(c.Log); err != nil {
		return nil, err
	}
	c.Health = sidecar.NewHealth(s.name(), c.Broker.Broker, c.Topics)
	c.Sink = redeliver.NewSlogSink(c.Log)
	if s.flags.webhook.to == nil {
		return func() {}, nil
	}
	w := s.flags.webhook.open(c)
	c.Sink = observe.Sinks(c.Sink, w)
	return w.End, nil
}

// printConsumed prints what is consumed: an object for the flags, and a list for a file.
func (a *app) printConsumed(all []*consumed, p *processFlags, at addresses) error {
	if p.file == "" {
		row := all[0].row(at)
		return a.printOne(row, func(t *details) {
			t.line("topics", strings.Join(row.Topics, ", "))
			t.line("group", row.Group)
			t.line("handler", row.Handler)
			t.line("skips", strings.Join(row.Skips, "; "))
			t.line("health", row.Health)
			t.line("publish", row.Publish)
			t.line("on dead letter", row.OnDeadLetter)
		})
	}
	rows := a.list("BROKER", "TOPICS", "GROUP", "HANDLER", "HEALTH", "PUBLISH")
	for _, s := range all {
		row := s.row(at)
		if err := rows.add(row, s.c.Broker.String(), strings.Join(row.Topics, ", "), row.Group, row.Handler, row.Health, row.Publish); err != nil {
			return err
		}
	}
	return rows.end()
}

// runAll consumes until ctx ends. When one subscription cannot start, the others finish what they have begun and end, too: a process
// that runs in part would hide it.
func runAll(ctx context.Context, all []*consumed, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var first error
	var running sync.WaitGroup
	for _, s := range all {
		running.Go(func() {
			err := sidecar.Run(ctx, s.c)
			if err == nil {
				return
			}
			err = brokerError(s.conn.withAddress(err))
			mu.Lock()
			defer mu.Unlock()
			if first != nil { // it was ended
				return
			}
			if first = err; len(all) > 1 {
				log.Error("a subscription has ended; all end", "subscription", s.name(), "error", redeliver.Redact(inFlags(err)))
				first = fmt.Errorf("%s: %w", s.name(), err)
			}
			cancel()
		})
	}
	running.Wait()
	return first
}
