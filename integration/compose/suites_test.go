//go:build prove

package compose_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/redeliver/redeliver/integration/programs"
)

// each has the names of the suites with one broker; all is the suite with all brokers.
var each = []string{"kafka", "rabbitmq", "sqs"}

// load reads a suite as docker compose does, with its schema and the files that it extends.
func load(t *testing.T, suite string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{filepath.Join("suites", suite+".yml")})
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(context.Background())
	if err != nil {
		t.Fatalf("suite %s: %v", suite, err)
	}
	return p
}

// The services without a health check: they are started again until they work, run once, or only build an image.
func noHealth(service string) bool {
	return service == "certificate" || service == "examples" || strings.HasSuffix(service, "-orders") || strings.HasSuffix(service, "-refunds") || strings.HasSuffix(service, "-worker")
}

func TestSuitesAreConsistent(t *testing.T) {
	t.Parallel()
	for _, suite := range append([]string{"all"}, each...) {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			ports := map[string]string{}
			for name, s := range load(t, suite).Services {
				if s.HealthCheck == nil && !noHealth(name) {
					t.Errorf("%s has no health check", name)
				}
				if image, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "" || tag == "latest" || image == "" {
					t.Errorf("%s is of image %q, which names no version", name, s.Image)
				}
				for _, p := range s.Ports {
					if p.HostIP != "127.0.0.1" {
						t.Errorf("%s is open to others than this machine: %+v", name, p)
					}
					if other := ports[p.Published]; other != "" {
						t.Errorf("%s and %s both want port %s", name, other, p.Published)
					}
					ports[p.Published] = name
				}
				for _, v := range s.Volumes {
					if v.Type != types.VolumeTypeBind {
						continue
					}
					if _, err := os.Stat(v.Source); err != nil {
						t.Errorf("%s mounts a missing file: %v", name, err)
					}
				}
				if s.Build != nil {
					if _, err := os.Stat(filepath.Join(s.Build.Context, cmp.Or(s.Build.Dockerfile, "Dockerfile"))); err != nil {
						t.Errorf("%s is built from missing files: %v", name, err)
					}
				}
			}
		})
	}
}

// Compose builds for all services at once. If two build one image, the second fails with "already exists" in the
// containerd image store.
func TestAnImageIsBuiltOnce(t *testing.T) {
	t.Parallel()
	for _, suite := range append([]string{"all"}, each...) {
		builders, users := map[string][]string{}, map[string]int{}
		for name, s := range load(t, suite).Services {
			if !strings.HasPrefix(s.Image, "redeliver") {
				continue
			}
			users[s.Image]++
			if s.Build != nil {
				builders[s.Image] = append(builders[s.Image], name)
			} else if s.PullPolicy != types.PullPolicyNever {
				t.Errorf("suite %s: %s looks for %s in a registry, which has none", suite, name, s.Image)
			}
		}
		for image := range users {
			if len(builders[image]) != 1 {
				t.Errorf("suite %s: %s is built by %v, want one service", suite, image, builders[image])
			}
		}
		if len(users) != 2 {
			t.Errorf("suite %s: images %v: this test does not see both", suite, users)
		}
	}
}

func TestEveryDependencyOfAServiceCanBeMet(t *testing.T) {
	t.Parallel()
	for _, suite := range append([]string{"all"}, each...) {
		p := load(t, suite)
		waits := 0
		for name, s := range p.Services {
			for on, how := range s.DependsOn {
				waits++
				other, ok := p.Services[on]
				switch {
				case !ok:
					t.Errorf("suite %s: %s waits for %s, which is not there", suite, name, on)
				case how.Condition == types.ServiceConditionHealthy && other.HealthCheck == nil:
					t.Errorf("suite %s: %s waits for the health of %s, which has no health check", suite, name, on)
				case how.Condition == types.ServiceConditionCompletedSuccessfully && other.Restart != "":
					t.Errorf("suite %s: %s waits for the end of %s, which restarts", suite, name, on)
				}
			}
		}
		if waits < 8 {
			t.Errorf("suite %s: %d waits: this test does not see them", suite, waits)
		}
	}
}

// The suite with all brokers contains that of each broker unchanged.
func TestTheSuiteOfAllBrokersContainsEachSuite(t *testing.T) {
	t.Parallel()
	all := load(t, "all")
	for _, suite := range each {
		for name, s := range load(t, suite).Services {
			if name == "console" || name == "certificate" {
				continue // there is one for all
			}
			if other, ok := all.Services[name]; !ok || !reflect.DeepEqual(s, other) {
				t.Errorf("%s of suite %s is not that of the one with all:\n%+v\n%+v", name, suite, s, other)
			}
		}
	}
}

// Each program accepts the arguments of its suite: it then looks for its broker, which does not exist. It would exit
// with 2 for an unknown flag, or for a variable that names another kind of broker than its flags.
func TestProgramsAcceptTheirArguments(t *testing.T) {
	t.Parallel()
	dir, err := programs.Build("", "./cmd/redeliver", "./examples/worker", "./examples/orders")
	if err != nil {
		t.Fatal(err)
	}
	called := 0
	for _, suite := range append([]string{"all"}, each...) {
		for name, s := range load(t, suite).Services {
			if !strings.Contains(s.Image, "redeliver") || suite != "all" && name != "console" || s.GetScale() == 0 {
				continue // the others are those of the one with all, or do not run
			}
			called++
			t.Run(suite+"/"+name, func(t *testing.T) {
				t.Parallel()
				program := "redeliver" // as the image has it
				if len(s.Entrypoint) > 0 {
					program = strings.TrimPrefix(s.Entrypoint[0], "/")
				}
				if code, out := exitCode(t, filepath.Join(dir, program), s, s.Command); code != 1 {
					t.Errorf("it ends with %d, want 1, because there is no broker:\n%s", code, out)
				}
				if s.HealthCheck == nil {
					return
				}
				test := s.HealthCheck.Test
				if code, out := exitCode(t, filepath.Join(dir, strings.TrimPrefix(test[1], "/")), s, test[2:]); code != 3 {
					t.Errorf("its health check ends with %d, want 3, because it does not run:\n%s", code, out)
				}
			})
		}
	}
	if called < 15 {
		t.Errorf("%d calls: this test does not see them", called)
	}
}

// exitCode runs a program with the arguments of its service, on this machine and without a broker.
func exitCode(t *testing.T, program string, s types.ServiceConfig, args []string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args = slices.Clone(args)
	for i := range args {
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				args[i] = strings.ReplaceAll(args[i], v.Target, elsewhere(t, v.Source))
			}
		}
		args[i] = strings.NewReplacer(":8081", "127.0.0.1:0", "127.0.0.1:8377", "127.0.0.1:1").Replace(args[i])
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "AWS_MAX_ATTEMPTS=1"}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		cmd.Env = append(cmd.Env, name+"="+nowhere(*s.Environment[name]))
	}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// nowhere replaces the addresses in a text with one on which nobody listens.
func nowhere(text string) string {
	return strings.NewReplacer("kafka:9092", "127.0.0.1:1", "rabbitmq:5672", "127.0.0.1:1", "rabbitmq:15672", "127.0.0.1:1", "elasticmq:9324", "127.0.0.1:1").Replace(text)
}

// elsewhere returns a copy of a file of a suite with the same replacement.
func elsewhere(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(file, []byte(nowhere(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A variable that no program reads would have no effect.
func TestVariablesAreRead(t *testing.T) {
	t.Parallel()
	var sources []byte
	for _, pattern := range []string{"../../cmd/redeliver/internal/cli/*.go", "../../internal/brokerurl/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources = append(sources, text...)
		}
	}
	seen := 0
	for _, suite := range append([]string{"all"}, each...) {
		for name, s := range load(t, suite).Services {
			for variable := range s.Environment {
				if !strings.HasPrefix(variable, "REDELIVER_") {
					continue
				}
				seen++
				if !strings.Contains(string(sources), strconv.Quote(variable)) {
					t.Errorf("suite %s: %s gets %s, which nothing reads", suite, name, variable)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d variables: this test does not see them", seen)
	}
}
