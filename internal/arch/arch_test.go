// Package arch tests the architecture: imports point only downwards, and a user of one adapter compiles one client.
package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/redeliver/redeliver"

// allowed maps each part of the module to what it may import besides the standard library and itself. A prefix that
// ends in / allows everything below it.
var allowed = map[string][]string{
	".":                     {"github.com/cenkalti/backoff/v4"},
	"internal/limits":       {},
	"internal/shell":        {},
	"internal/check":        {module}, // the problems of a configuration
	"internal/errortext":    {},
	"internal/bytetext":     {},
	"internal/actor":        {},
	"internal/linediff":     {},
	"internal/contextkey":   {},
	"internal/wirename":     {},
	"internal/wait":         {},
	"observe":               {module}, // what an exporter implements
	"delayqueue":            {module, module + "/driver", "github.com/cenkalti/backoff/v4"},
	"driver":                {module},
	"internal/engine/guard": {module},
	"internal/engine": {module, module + "/internal/engine/guard", module + "/observe", module + "/delayqueue", module + "/driver",
		"github.com/cenkalti/backoff/v4", "golang.org/x/time/rate"},
	// Watermill is a binding of the engine, which does not know it.
	"internal/binding":   {module, module + "/driver", module + "/internal/engine", "github.com/ThreeDotsLabs/watermill/message", "github.com/ThreeDotsLabs/watermill/components/delay"},
	"internal/statekeys": {module},
	"internal/rules":     {module, module + "/deadletter", module + "/internal/engine", module + "/internal/statekeys", module + "/observe"}, // what holds on every broker
	"internal/kafkaname": {module, module + "/internal/rules", module + "/delayqueue", module + "/internal/shell"},
	"internal/awshttp":   {"github.com/aws/aws-sdk-go-v2/aws/transport/http"}, // for the adapter, and for clients of the tests
	"doctor":             {module},                                            // what the Doctor of a client finds
	"deadletter":         {module, module + "/delayqueue", module + "/driver"},
	"deadletter/driver":  {module, module + "/driver", module + "/deadletter", module + "/internal/foreign"}, // what a broker implements for deadletter
	"internal/foreign":   {module, module + "/deadletter"},
	"simulate":           {module, module + "/delayqueue"},
	// Users hold its types, whatever their broker is.
	"mq":                    {module, module + "/deadletter", module + "/delayqueue", module + "/doctor", module + "/internal/engine", "github.com/ThreeDotsLabs/watermill/message"},
	"middleware":            {module, module + "/mq", module + "/internal/binding", module + "/internal/engine", module + "/observe", "github.com/ThreeDotsLabs/watermill/message", "github.com/cenkalti/backoff/v4"},
	"middleware/redisdedup": {module, module + "/middleware", "github.com/redis/go-redis/v9"},
	"middleware/sqlinbox":   {module}, // database/sql; the driver is the user's
	"adapters/kafka/internal/record": {module, module + "/deadletter", module + "/driver", module + "/internal/engine",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/IBM/sarama"},
	"adapters/kafka/internal/produce":    {module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/record", module + "/driver", "github.com/IBM/sarama", module + "/deadletter/driver"},
	"adapters/kafka/internal/cluster":    {"github.com/IBM/sarama", module + "/internal/engine", module + "/internal/kafkaname"},
	"adapters/kafka/internal/commitmeta": {module},
	"adapters/kafka/internal/crash":      {module, module + "/adapters/kafka/internal/commitmeta", module + "/driver", module + "/internal/engine", "github.com/IBM/sarama"},
	"adapters/kafka/internal/commands": {module, module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/produce", module + "/adapters/kafka/internal/topiclog",
		module + "/deadletter", module + "/driver", module + "/internal/engine", "github.com/IBM/sarama", module + "/internal/kafkaname"},
	"adapters/kafka/internal/settle": {module, module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/commitmeta", module + "/adapters/kafka/internal/crash",
		module + "/driver", module + "/internal/engine", "github.com/IBM/sarama"},
	"adapters/kafka/internal/sweep":    {module + "/adapters/kafka/internal/cluster"},
	"adapters/kafka/internal/topiclog": {module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/commitmeta", "github.com/IBM/sarama"},
	"adapters/kafka/internal/dlq": {module, module + "/driver", module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/produce", module + "/adapters/kafka/internal/record",
		module + "/adapters/kafka/internal/topiclog", module + "/deadletter", module + "/deadletter/driver", module + "/internal/engine", module + "/internal/foreign", "github.com/IBM/sarama", module + "/internal/kafkaname"},
	"adapters/kafka/internal/diagnose": {module, module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/commands", module + "/adapters/kafka/internal/record",
		module + "/adapters/kafka/internal/topiclog", module + "/adapters/kafka/internal/topology", module + "/delayqueue", module + "/doctor", module + "/internal/kafkaname", "github.com/IBM/sarama"},
	"adapters/kafka/internal/perkey": {module, module + "/adapters/kafka/internal/commitmeta", module + "/adapters/kafka/internal/topiclog", module + "/delayqueue", module + "/driver",
		module + "/internal/engine", module + "/internal/kafkaname", "github.com/IBM/sarama"},
	"adapters/kafka/internal/topology": {module, module + "/internal/rules", module + "/adapters/kafka/internal/cluster", module + "/deadletter", module + "/delayqueue", module + "/internal/engine", module + "/internal/kafkaname",
		"github.com/IBM/sarama"},
	"adapters/kafka/internal/reader": {module, module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/commands", module + "/adapters/kafka/internal/commitmeta", module + "/adapters/kafka/internal/crash", module + "/adapters/kafka/internal/diagnose", module + "/adapters/kafka/internal/perkey", module + "/adapters/kafka/internal/produce", module + "/adapters/kafka/internal/record", module + "/adapters/kafka/internal/settle", module + "/adapters/kafka/internal/sweep", module + "/adapters/kafka/internal/topiclog", module + "/adapters/kafka/internal/topology",
		module + "/deadletter", module + "/delayqueue", module + "/driver", module + "/internal/engine", module + "/internal/foreign", "github.com/cenkalti/backoff/v4", "github.com/IBM/sarama"},
	"adapters/kafka": {module, module + "/internal/rules", module + "/driver", module + "/mq", module + "/deadletter/driver", module + "/adapters/kafka/internal/cluster", module + "/adapters/kafka/internal/commands", module + "/adapters/kafka/internal/commitmeta", module + "/adapters/kafka/internal/diagnose", module + "/adapters/kafka/internal/dlq", module + "/adapters/kafka/internal/perkey", module + "/adapters/kafka/internal/produce", module + "/adapters/kafka/internal/reader", module + "/adapters/kafka/internal/record", module + "/adapters/kafka/internal/settle", module + "/adapters/kafka/internal/topiclog", module + "/adapters/kafka/internal/topology", module + "/internal/kafkaname", module + "/delayqueue", module + "/doctor", module + "/internal/binding", module + "/internal/engine", module + "/observe", module + "/deadletter",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/IBM/sarama"},
	"adapters/amqp": {module, module + "/internal/rules", module + "/mq", module + "/adapters/amqp/internal/dlq", module + "/adapters/amqp/internal/layout", module + "/adapters/amqp/internal/link", module + "/adapters/amqp/internal/management", module + "/adapters/amqp/internal/notes", module + "/adapters/amqp/internal/pausemark", module + "/adapters/amqp/internal/scan", module + "/adapters/amqp/internal/topology", module + "/adapters/amqp/internal/wire", module + "/delayqueue", module + "/doctor", module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe", module + "/internal/statekeys", module + "/middleware", module + "/deadletter", module + "/deadletter/driver",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/cenkalti/backoff/v4", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/amqptest":   {"github.com/rabbitmq/amqp091-go"}, // a broker and a management API, for tests of several packages
	"adapters/amqp/internal/dlq":        {module, module + "/driver", module + "/adapters/amqp/internal/layout", module + "/adapters/amqp/internal/link", module + "/adapters/amqp/internal/management", module + "/adapters/amqp/internal/scan", module + "/adapters/amqp/internal/wire", module + "/deadletter", module + "/deadletter/driver", module + "/internal/statekeys", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/notes":      {module, module + "/driver", module + "/adapters/amqp/internal/link", module + "/adapters/amqp/internal/wire", module + "/internal/statekeys", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/pausemark":  {module, module + "/adapters/amqp/internal/link", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/scan":       {module + "/adapters/amqp/internal/link", module + "/adapters/amqp/internal/wire", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/layout":     {module, module + "/internal/rules", module + "/deadletter", module + "/delayqueue", module + "/internal/engine", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/link":       {module, module + "/adapters/amqp/internal/wire", module + "/driver", module + "/internal/engine", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/management": {module, module + "/adapters/amqp/internal/wire", module + "/internal/shell", "github.com/cenkalti/backoff/v4", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/topology":   {module, module + "/internal/rules", module + "/adapters/amqp/internal/layout", module + "/adapters/amqp/internal/link", module + "/adapters/amqp/internal/management", module + "/adapters/amqp/internal/wire", module + "/delayqueue", module + "/doctor", "github.com/cenkalti/backoff/v4", "github.com/rabbitmq/amqp091-go"},
	"adapters/amqp/internal/wire":       {module, module + "/driver", module + "/internal/engine", module + "/internal/statekeys", "github.com/rabbitmq/amqp091-go"},
	"adapters/sqs/internal/wire":        {module, module + "/driver", module + "/internal/engine", module + "/internal/statekeys", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	"adapters/sqs/internal/api": {module, module + "/adapters/sqs/internal/wire", module + "/deadletter", module + "/driver",
		"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	"adapters/sqs/internal/dlq": {module, module + "/internal/rules", module + "/internal/statekeys", module + "/driver", module + "/adapters/sqs/internal/api", module + "/adapters/sqs/internal/wire", module + "/deadletter", module + "/deadletter/driver",
		"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	"adapters/sqs/internal/notes": {module, module + "/adapters/sqs/internal/api", module + "/adapters/sqs/internal/wire", module + "/driver", module + "/internal/statekeys", module + "/internal/wait",
		"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	"adapters/sqs": {module, module + "/internal/rules", module + "/mq", module + "/adapters/sqs/internal/api", module + "/adapters/sqs/internal/dlq", module + "/adapters/sqs/internal/notes", module + "/adapters/sqs/internal/wire", module + "/delayqueue", module + "/doctor", module + "/internal/awshttp", module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe", module + "/internal/statekeys", module + "/middleware", module + "/deadletter", module + "/deadletter/driver",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/cenkalti/backoff/v4", "github.com/aws/aws-sdk-go-v2/aws",
		"github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	"adapters/kafkashare": {module, module + "/internal/rules", module + "/mq", module + "/internal/kafkaname", module + "/delayqueue", module + "/doctor", module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/cenkalti/backoff/v4", "github.com/twmb/franz-go/pkg/kadm", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kmsg"},
	// Any Watermill Pub/Sub: it imports no broker client.
	"adapters/pubsub": {module, module + "/internal/rules", module + "/mq", module + "/internal/kafkaname", module + "/delayqueue", module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe", "github.com/ThreeDotsLabs/watermill/message",
		"github.com/ThreeDotsLabs/watermill/components/delay", "github.com/cenkalti/backoff/v4"},
	// An adapter of the user's own: it imports no broker client.
	"adapters": {module, module + "/internal/rules", module + "/delayqueue", module + "/driver", module + "/mq", module + "/observe", module + "/internal/binding", module + "/internal/engine", "github.com/ThreeDotsLabs/watermill/message"},
	"internal/adaptertest": {module, module + "/driver", module + "/mq", module + "/observe", module + "/delayqueue", module + "/middleware", module + "/deadletter", module + "/deadletter/driver",
		"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill/message", "github.com/ThreeDotsLabs/watermill/components/delay"},
	"redelivertest": {module, module + "/internal/rules", module + "/mq", module + "/delayqueue", module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe", module + "/middleware", module + "/deadletter", module + "/deadletter/driver", "github.com/ThreeDotsLabs/watermill",
		"github.com/ThreeDotsLabs/watermill/message", "github.com/ThreeDotsLabs/watermill/components/delay"},
	"observe/hook": {module}, // a function for a sink, and the goroutine that calls it
	"observe/prom": {module, module + "/observe", module + "/delayqueue", module + "/doctor", module + "/deadletter", module + "/internal/observed", "github.com/prometheus/client_golang/prometheus"},
	"observe/otel": {module, module + "/deadletter", module + "/observe", module + "/internal/observed", "go.opentelemetry.io/otel", "go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/baggage",
		"go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/metric", "go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace"},
	"console": {module, module + "/mq", module + "/deadletter"},
	// The code that the exporters of metrics share.
	"internal/observed":              {module, module + "/observe", module + "/delayqueue", module + "/deadletter"},
	"internal/observed/observedtest": {module, module + "/deadletter"},
	// Imported by programs of two modules: the command and the examples.
	"internal/backofftext": {module},
	"internal/brokerurl": {"github.com/IBM/sarama", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/sasl", "github.com/twmb/franz-go/pkg/sasl/plain", "github.com/twmb/franz-go/pkg/sasl/scram",
		"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/config", "github.com/aws/aws-sdk-go-v2/credentials"},
	// A harness, for tests of two modules: it may have the adapter's client and an independent one.
	"internal/kafkatest": {module, module + "/driver", module + "/mq", "github.com/twmb/franz-go/pkg/kfake", module + "/internal/observed", module + "/internal/adaptertest", module + "/deadletter", module + "/adapters/kafka", module + "/adapters/kafkashare", "github.com/twmb/franz-go/pkg/kversion", "github.com/ThreeDotsLabs/watermill/message",
		"github.com/IBM/sarama", "github.com/twmb/franz-go/pkg/kadm", "github.com/twmb/franz-go/pkg/kerr", "github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kmsg"},
	// An SQS in memory, for tests of several packages.
	"internal/sqsfake":     {"github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/credentials"},
	"internal/sqscontract": {module + "/internal/sqsfake", "github.com/aws/aws-sdk-go-v2/aws", "github.com/aws/aws-sdk-go-v2/service/sqs", "github.com/aws/aws-sdk-go-v2/service/sqs/types"},
	// A queue in memory, for tests of several packages.
	"internal/engine/enginetest": {module, module + "/driver", module + "/internal/binding", module + "/internal/engine", module + "/observe", "github.com/ThreeDotsLabs/watermill/message"},
}

// lowest are packages that every part may import: all but internal/check are below the root package, and import only the standard
// library.
var lowest = []string{module + "/internal/check", module + "/internal/actor", module + "/internal/linediff", module + "/internal/limits", module + "/internal/bytetext", module + "/internal/errortext", module + "/internal/contextkey", module + "/internal/wirename", module + "/internal/wait"}

func TestImportsPointDownwards(t *testing.T) {
	seen := make(map[string]bool)
	for file, imports := range goFiles(t) {
		part := filepath.ToSlash(filepath.Dir(file))
		if part == "examples" || strings.HasPrefix(part, "examples/") || part == "internal/arch" {
			continue // programs may import everything
		}
		rules, ok := allowed[part]
		if !ok {
			t.Errorf("%s: package %s is not in allowed; add it there", file, part)
			continue
		}
		seen[part] = true
		for _, path := range imports {
			if strings.Contains(strings.SplitN(path, "/", 2)[0], ".") && !slices.Contains(rules, path) && !slices.Contains(lowest, path) {
				t.Errorf("%s imports %s, which is not allowed for %s", file, path, part)
			}
		}
	}
	for part := range allowed {
		if !seen[part] {
			t.Errorf("no file of %s was read; its rule checks nothing", part)
		}
	}
}

// The engine and what it is built on do not import Watermill, which is a binding of it.
func TestTheEngineDoesNotKnowWatermill(t *testing.T) {
	files := goFiles(t)
	seen := make(map[string]bool)
	var visit func(part, by string)
	visit = func(part, by string) {
		if seen[part] {
			return
		}
		seen[part] = true
		for file, imports := range files {
			if filepath.ToSlash(filepath.Dir(file)) != part {
				continue
			}
			for _, path := range imports {
				if below, ours := strings.CutPrefix(path, module+"/"); ours {
					visit(below, by+" -> "+below)
				} else if path == module {
					visit(".", by+" -> .")
				} else if strings.HasPrefix(path, "github.com/ThreeDotsLabs/") {
					t.Errorf("%s imports %s (%s)", file, path, by)
				}
			}
		}
	}
	visit("internal/engine", "internal/engine")
	visit("driver", "driver")
	if !seen["driver"] || !seen["delayqueue"] || !seen["."] {
		t.Errorf("only %v were read", seen)
	}
}

// TestRequirements makes a new direct dependency of the library a visible diff.
func TestRequirements(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	var direct []string
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) == 2 && strings.HasPrefix(fields[1], "v") {
			direct = append(direct, fields[0])
		}
	}
	slices.Sort(direct)
	want := strings.Fields(string(golden))
	if len(want) == 0 || !slices.Equal(direct, want) {
		t.Errorf("go.mod requires directly\n  %s\nand internal/arch/requirements.txt has\n  %s\nif the change is intended, make it there too",
			strings.Join(direct, "\n  "), strings.Join(want, "\n  "))
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// goFiles returns the imports of the root module's files, tests excluded.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	base := root(t)
	files := make(map[string][]string)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || rel == "integration" || rel == "cmd" || rel == "bin" || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[rel] = nil
		for _, spec := range parsed.Imports {
			name, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			files[rel] = append(files[rel], name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
