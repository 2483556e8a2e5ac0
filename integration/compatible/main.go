// Command compatible runs the conformance kit of adapters/kafka and a loss suite on a Kafka-compatible broker, and
// removes the topics and groups that they made:
//
//	make compatible BROKER=host:9092
//	make compatible BROKER=host:9092 ARGS='--run ^TestLoss'
//
// The broker is used without TLS and passwords. All names contain a random prefix. The tests may create and delete
// topics, alter the settings of their own, and delete groups.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/gotest"
)

const defaultTests = "^(TestConformanceCompatible|TestLossKafkaCompatible)$"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compatible:", err)
		os.Exit(1) //nolint:gocritic // The deferred stop only unregisters signals.
	}
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	flags := flag.NewFlagSet("compatible", flag.ContinueOnError)
	flags.SetOutput(out)
	broker := flags.String("broker", "", "the `HOST:PORT,...` of the broker; required")
	tests := flags.String("run", defaultTests, "run the tests that match this `REGEXP`, as go test -run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *broker == "" || flags.NArg() > 0 {
		return errors.New("say --broker HOST:PORT, and nothing but flags")
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(*broker, ",")...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	c := cleaner{admin: kadm.NewClient(client), prefix: gotest.NewPrefix()}
	fmt.Fprintf(out, "%s at %s. The names of topics and groups contain %s.\n", c.version(ctx), *broker, c.prefix)
	defer func() {
		// A new context, because the tests may have been interrupted.
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
		defer done()
		err = errors.Join(err, c.clean(ctx, out))
	}()
	return gotest.Tests{
		Packages: []string{"./integration/compatible/kit", "./integration/loss"}, Run: *tests, Tags: "compatible",
		Env: []string{brokers.EnvKafka + "=" + *broker, gotest.EnvPrefix + "=" + c.prefix},
	}.Execute(ctx, out)
}

// cleaner removes what the tests made.
type cleaner struct {
	admin  *kadm.Client
	prefix string
}

// version describes the broker by the requests that it supports.
func (c cleaner) version(ctx context.Context) string {
	all, err := c.admin.ApiVersions(ctx)
	if err != nil {
		return "A broker of an unknown version (" + err.Error() + ")"
	}
	for _, v := range all {
		return "A broker that speaks like Kafka " + strings.TrimPrefix(kversion.FromApiVersionsResponse(v.Raw()).VersionGuess(), "v")
	}
	return "A broker of an unknown version"
}

// clean deletes topics and groups until none is left. A group can be deleted when the broker has noticed that its
// members have gone.
func (c cleaner) clean(ctx context.Context, out io.Writer) error {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	topics, groups := make(map[string]bool), make(map[string]bool)
	for {
		left, err := c.remove(ctx, topics, groups)
		if err == nil && left == 0 {
			fmt.Fprintf(out, "%d topics and %d groups are deleted.\n", len(topics), len(groups))
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%d topics and groups whose names contain %s are left: %w", left, c.prefix, errors.Join(ctx.Err(), err))
		}
	}
}

// remove deletes what there is, adds its names to the sets, and returns how much it found.
func (c cleaner) remove(ctx context.Context, topics, groups map[string]bool) (found int, err error) {
	others := func(name string) bool { return !strings.Contains(name, c.prefix) }
	listed, err := c.admin.ListTopics(ctx)
	if err != nil {
		return 0, err
	}
	names := slices.DeleteFunc(listed.Names(), others)
	for _, name := range names {
		topics[name] = true
	}
	if len(names) > 0 {
		deleted, bad := c.admin.DeleteTopics(ctx, names...)
		err = errors.Join(bad, deleted.Error())
	}
	all, bad := c.admin.ListGroups(ctx)
	if bad != nil {
		return len(names), errors.Join(err, bad)
	}
	members := slices.DeleteFunc(all.Groups(), others)
	for _, name := range members {
		groups[name] = true
	}
	if len(members) > 0 {
		deleted, bad := c.admin.DeleteGroups(ctx, members...)
		err = errors.Join(err, bad, deleted.Error())
	}
	return len(names) + len(members), err
}
