package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A user of one adapter compiles one client, and no user of the library compiles the command line's modules. go list
// reports what go build would compile, indirect imports included.
func TestAUserBuildsOneClientAndNoCommandLine(t *testing.T) {
	t.Parallel()
	line := commandLine(t)
	if !slices.Contains(line, "github.com/spf13/cobra") || len(line) < 5 {
		t.Fatalf("the command line's own modules are %q: this test does not find them", line)
	}
	const sarama, amqp, aws, redis, prom, otel = "github.com/IBM/sarama", "github.com/rabbitmq", "github.com/aws", "github.com/redis", "github.com/prometheus", "go.opentelemetry.io"
	clients := []string{sarama, amqp, aws, redis, prom, otel, "github.com/twmb/franz-go"}
	for part, client := range map[string]string{
		".": "", "delayqueue": "", "middleware": "", "deadletter": "", "redelivertest": "", "adapters/pubsub": "", "internal/adaptertest": "",
		"adapters/kafka": sarama, "adapters/amqp": amqp, "adapters/sqs": aws, "middleware/redisdedup": redis, "observe/prom": prom, "observe/otel": otel,
		"simulate": "", "observe/hook": "",
	} {
		t.Run(part, func(t *testing.T) {
			t.Parallel()
			packages := built(t, part)
			for _, never := range slices.Concat(line, clients, []string{module + "/cmd", module + "/console", module + "/examples", module + "/integration"}) {
				for _, pkg := range packages {
					if (pkg == never || strings.HasPrefix(pkg, never+"/")) && !(client != "" && strings.HasPrefix(pkg, client)) {
						t.Errorf("a program that imports %s compiles %s", part, pkg)
					}
				}
			}
			if client != "" && !slices.ContainsFunc(packages, func(pkg string) bool { return strings.HasPrefix(pkg, client) }) {
				t.Errorf("%s does not compile its own client: this test checks nothing", part)
			}
		})
	}
}

// commandLine returns the modules that cmd/redeliver requires and the library does not.
func commandLine(t *testing.T) (modules []string) {
	t.Helper()
	library := requires(t, "go.mod")
	for _, m := range requires(t, filepath.Join("cmd", "redeliver", "go.mod")) {
		if m != module && !slices.Contains(library, m) && !strings.HasPrefix(m, "golang.org/x/") {
			modules = append(modules, m)
		}
	}
	return modules
}

// requires returns what a go.mod requires, directly or indirectly.
func requires(t *testing.T, file string) (modules []string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mod)) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && strings.HasPrefix(fields[1], "v") {
			modules = append(modules, fields[0])
		}
	}
	return modules
}

// built returns every package that go build compiles for one of ours.
func built(t *testing.T, part string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	cmd.Dir = filepath.Join(root(t), part)
	cmd.Env = append(os.Environ(), "GOWORK=off") // as for a user
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return strings.Fields(string(out))
}
