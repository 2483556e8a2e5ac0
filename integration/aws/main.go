// Command aws runs the conformance kit and a loss suite on the SQS of AWS, which costs money, and deletes its queues:
//
//	make aws ARGS='--region eu-central-1'
//	make aws ARGS='--region eu-central-1 --run ^TestConformance$'
//	make aws ARGS='clean --region eu-central-1'
//
// The credentials are those of the SDK's default chain: the environment, ~/.aws, or the machine's role. They need
// sqs:* on arn:aws:sqs:REGION:ACCOUNT:redeliver-test-*, and sqs:ListQueues. The tests run against a gateway in this
// process, see gateway.go, which gives all queues of a run a random prefix and bounds the number of requests. With
// --endpoint the server is another one that speaks SQS, and takes any credentials.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/gotest"
)

// prefix is that of the queues of all runs.
const prefix = gotest.Prefix

// The prices of a million requests in US East, in USD, of https://aws.amazon.com/sqs/pricing/ in 2026. They differ by
// region. The first million of a month is free.
const (
	priceStandard = 0.40
	priceFIFO     = 0.50
	priceSource   = "https://aws.amazon.com/sqs/pricing/, US East, 2026; other regions may cost more"
)

// The requests of a run of all tests on ElasticMQ, on 2026-11-27.
const (
	usualStandard = 7_400
	usualFIFO     = 5_800
)

const defaultTests = "^(TestConformance|TestConformanceFIFO|TestLossSQS)$"

var arn = regexp.MustCompile(`(arn:[^:"\\]*:sqs:[^:"\\]*:[0-9]*:)`)

type options struct {
	clean    bool
	region   string
	endpoint string
	run      string
	prefix   string
	bound    int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "aws:", err)
		os.Exit(2) //nolint:gocritic // The deferred stop only unregisters signals.
	default:
		fmt.Fprintln(os.Stderr, "aws:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

func parse(args []string, out io.Writer) (options, error) {
	var o options
	if len(args) > 0 && args[0] == "clean" {
		o.clean, args = true, args[1:]
	}
	flags := flag.NewFlagSet("aws", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&o.region, "region", "", "the `REGION` of AWS; required, because the requests cost money")
	flags.StringVar(&o.endpoint, "endpoint", "", "the `URL` of another server that speaks SQS and takes any credentials")
	if o.clean {
		flags.StringVar(&o.prefix, "prefix", prefix, "delete the queues whose names begin with this `PREFIX`, also those of a run that is under way")
	} else {
		flags.StringVar(&o.run, "run", defaultTests, "run the tests that match this `REGEXP`, as go test -run")
		flags.IntVar(&o.bound, "max-requests", 100_000, "refuse all requests after `N`, and fail")
	}
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%w: unexpected %q", errUsage, flags.Arg(0))
	case o.region == "":
		return o, fmt.Errorf("%w: --region is required", errUsage)
	case o.clean && !strings.HasPrefix(o.prefix, prefix):
		return o, fmt.Errorf("%w: --prefix must begin with %s", errUsage, prefix)
	case !o.clean && o.bound < 1:
		return o, fmt.Errorf("%w: --max-requests must be at least 1", errUsage)
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	cfg := brokerstate.AWS()
	if o.endpoint == "" {
		if cfg, err = config.LoadDefaultConfig(ctx, config.WithRegion(o.region)); err != nil {
			return fmt.Errorf("reading the credentials of AWS: %w", err)
		}
		if _, err := cfg.Credentials.Retrieve(ctx); err != nil {
			return fmt.Errorf("there are no credentials for AWS: %w", err)
		}
	}
	cfg.Region = o.region
	if o.clean {
		return o.removeQueues(ctx, cfg, out)
	}
	return o.test(ctx, cfg, out)
}

// target returns the endpoint.
func (o options) target() string {
	switch {
	case o.endpoint != "":
		return strings.TrimRight(o.endpoint, "/")
	case strings.HasPrefix(o.region, "cn-"):
		return "https://sqs." + o.region + ".amazonaws.com.cn"
	default:
		return "https://sqs." + o.region + ".amazonaws.com"
	}
}

// cost is a price in USD.
func cost(b billed) float64 {
	return (float64(b.standard)*priceStandard + float64(b.fifo)*priceFIFO) / 1e6
}

// test runs the tests, and deletes their queues whatever happens.
func (o options) test(ctx context.Context, cfg aws.Config, out io.Writer) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	g := &gateway{
		target: o.target(), region: o.region, prefix: gotest.NewPrefix(), credentials: cfg.Credentials, bound: o.bound,
		exhausted: func() { cancel(fmt.Errorf("the bound of %d requests is reached; see --max-requests", o.bound)) },
	}
	usual := billed{usualStandard, usualFIFO}
	fmt.Fprintf(out, "The tests use %s. The names of their queues begin with %s.\n", g.target, g.prefix)
	fmt.Fprintf(out, "All tests take about %d requests to standard queues and %d to FIFO queues, which cost about $%.2f.\n", usual.standard, usual.fifo, cost(usual))
	fmt.Fprintf(out, "At most %d requests are made, which cost at most $%.2f, and a few hundred to clean up.\n", o.bound, cost(billed{fifo: o.bound}))
	fmt.Fprintf(out, "A million requests cost $%.2f on standard and $%.2f on FIFO queues (%s). A free tier may apply.\n", priceStandard, priceFIFO, priceSource)
	if err := g.start(ctx); err != nil {
		return err
	}
	defer g.close()
	defer func() {
		// A new context, because the tests may have been interrupted.
		clean, done := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		defer done()
		err = errors.Join(err, g.removeQueues(clean, out))
		requests, made := g.made()
		fmt.Fprintf(out, "%d requests were made, of which AWS bills %d to standard and %d to FIFO queues, $%.4f:", sum(requests), made.standard, made.fifo, cost(made))
		for _, action := range slices.Sorted(maps.Keys(requests)) {
			fmt.Fprintf(out, " %s %d", action, requests[action])
		}
		fmt.Fprintln(out)
	}()
	tests := gotest.Tests{
		Packages: []string{"./integration/sqs", "./integration/loss"}, Run: o.run, Env: []string{brokers.EnvSQS + "=" + g.url},
	}
	return tests.Execute(ctx, out)
}

func sum(requests map[string]int) (n int) {
	for _, count := range requests {
		n += count
	}
	return n
}

// removeQueues deletes the queues that the tests have left.
func (g *gateway) removeQueues(ctx context.Context, out io.Writer) error {
	names := g.left()
	api := awssqs.NewFromConfig(brokerstate.AWS(), func(o *awssqs.Options) { o.BaseEndpoint = &g.url })
	var errs []error
	for _, name := range names {
		if err := removeQueue(ctx, api, name); err != nil {
			errs = append(errs, fmt.Errorf("queue %s%s is left, remove it with clean: %w", g.prefix, name, err))
		}
	}
	fmt.Fprintf(out, "%d queues were left by the tests; %d of them are deleted now.\n", len(names), len(names)-len(errs))
	return errors.Join(errs...)
}

func removeQueue(ctx context.Context, api *awssqs.Client, name string) error {
	found, err := api.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: &name})
	if err == nil {
		_, err = api.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: found.QueueUrl})
	}
	if _, gone := errors.AsType[*types.QueueDoesNotExist](err); gone {
		return nil
	}
	return err
}

// removeQueues deletes the queues of earlier runs.
func (o options) removeQueues(ctx context.Context, cfg aws.Config, out io.Writer) error {
	api := awssqs.NewFromConfig(cfg, func(so *awssqs.Options) {
		if o.endpoint != "" {
			so.BaseEndpoint = &o.endpoint
		}
	})
	n := 0
	pages := awssqs.NewListQueuesPaginator(api, &awssqs.ListQueuesInput{QueueNamePrefix: &o.prefix, MaxResults: aws.Int32(1000)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("listing the queues: %w", err)
		}
		for _, url := range page.QueueUrls {
			if _, err := api.DeleteQueue(ctx, &awssqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
				return fmt.Errorf("deleting %s: %w", url, err)
			}
			fmt.Fprintln(out, url)
			n++
		}
	}
	fmt.Fprintf(out, "%d queues are deleted.\n", n)
	return nil
}
