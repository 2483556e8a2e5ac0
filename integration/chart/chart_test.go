//go:build chart

package chart

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	helmVersion = "v3.22.0"
	chartDir    = "../../deploy/helm/redeliver"
)

// built is the directory of a Helm that was built here, 60 MB that remain after the tests.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		_ = os.RemoveAll(built)
	}
	os.Exit(code)
}

// helm returns Helm's program: the one that HELM names, or one that is built here.
var helm = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("HELM"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "redeliver-helm-")
	if err != nil {
		return "", err
	}
	built = dir
	cmd := exec.Command("go", "install", "helm.sh/helm/v3/cmd/helm@"+helmVersion)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	return filepath.Join(dir, "helm"), nil
})

// sample are values that install all programs; a case changes some of them.
var sample = []string{
	"image.tag=v1.2.3", "broker.url=kafka://kafka:9092", "secret=redeliver", "run.topics={orders,refunds}", "run.group=billing",
	"run.http=http://charge:8080/orders", "console.enabled=true", "console.basicAuth.secret=users", "console.basicAuth.tlsSecret=tls",
	"exporter.enabled=true",
}

func run(t *testing.T, verb []string, values ...string) (string, error) {
	t.Helper()
	program, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(verb), "--kube-version", "1.30.0")
	for _, v := range slices.Concat(sample, values) {
		args = append(args, "--set", v)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// object has the fields of a Kubernetes object that the tests check.
type object struct {
	Kind string `yaml:"kind"`
	Meta struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Template struct {
			Spec pod `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type pod struct {
	Token    *bool `yaml:"automountServiceAccountToken"`
	Grace    int   `yaml:"terminationGracePeriodSeconds"`
	Security struct {
		NonRoot bool `yaml:"runAsNonRoot"`
		User    int  `yaml:"runAsUser"`
		Seccomp struct {
			Type string `yaml:"type"`
		} `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []container `yaml:"containers"`
}

type container struct {
	Name     string   `yaml:"name"`
	Image    string   `yaml:"image"`
	Args     []string `yaml:"args"`
	Security struct {
		ReadOnly   bool  `yaml:"readOnlyRootFilesystem"`
		NonRoot    bool  `yaml:"runAsNonRoot"`
		Escalation *bool `yaml:"allowPrivilegeEscalation"`
		Caps       struct {
			Drop []string `yaml:"drop"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Startup   map[string]any `yaml:"startupProbe"`
	Liveness  map[string]any `yaml:"livenessProbe"`
	Readiness map[string]any `yaml:"readinessProbe"`
	EnvFrom   []struct {
		Secret struct {
			Name string `yaml:"name"`
		} `yaml:"secretRef"`
	} `yaml:"envFrom"`
	Env []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
		From  struct {
			Secret struct {
				Name string `yaml:"name"`
				Key  string `yaml:"key"`
			} `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	} `yaml:"env"`
}

// render returns the objects that the chart makes of values, by kind and name.
func render(t *testing.T, values ...string) map[string]object {
	t.Helper()
	out, err := run(t, []string{"template", "shop", chartDir}, values...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	all := map[string]object{}
	for d := yaml.NewDecoder(strings.NewReader(out)); ; {
		var o object
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("%v: %s", err, out)
		case o.Kind != "":
			all[o.Kind+"/"+o.Meta.Name] = o
		}
	}
}

func TestChartLints(t *testing.T) {
	if out, err := run(t, []string{"lint", "--strict", chartDir}); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPodsHaveNoRights(t *testing.T) {
	all := render(t, "run.podMonitor=true", "exporter.podMonitor=true")
	for _, want := range []string{"Deployment/shop-redeliver-run", "Deployment/shop-redeliver-console", "PodDisruptionBudget/shop-redeliver-run",
		"PodMonitor/shop-redeliver-run", "Deployment/shop-redeliver-exporter", "PodMonitor/shop-redeliver-exporter", "Service/shop-redeliver-console", "ServiceAccount/shop-redeliver"} {
		if _, ok := all[want]; !ok {
			t.Errorf("there is no %s", want)
		}
	}
	seen := 0
	for name, o := range all {
		if o.Kind != "Deployment" {
			continue
		}
		p := o.Spec.Template.Spec
		if !p.Security.NonRoot || p.Security.User != 65532 || p.Security.Seccomp.Type != "RuntimeDefault" || p.Token == nil || *p.Token {
			t.Errorf("%s: the pod is %+v", name, p)
		}
		for _, c := range p.Containers {
			seen++
			if c.Image != "redeliver:v1.2.3" {
				t.Errorf("%s runs %s", name, c.Image)
			}
			if s := c.Security; !s.ReadOnly || !s.NonRoot || s.Escalation == nil || *s.Escalation || len(s.Caps.Drop) != 1 || s.Caps.Drop[0] != "ALL" {
				t.Errorf("%s: the container may %+v", name, s)
			}
			if c.Startup == nil || c.Liveness == nil || c.Readiness == nil {
				t.Errorf("%s has no probe", name)
			}
			if len(c.EnvFrom) != 1 || c.EnvFrom[0].Secret.Name != "redeliver" {
				t.Errorf("%s takes its secrets from %+v", name, c.EnvFrom)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d containers", seen)
	}
	if grace := all["Deployment/shop-redeliver-run"].Spec.Template.Spec.Grace; grace <= 30 {
		t.Errorf("it is killed after %d s, but may take 30 s to end", grace)
	}
}

// Only the proxy reaches the console, if the values say so.
func TestNetworkPolicies(t *testing.T) {
	all := render(t, "console.networkPolicy.from[0].podSelector.matchLabels.app=oauth2-proxy", "run.networkPolicy.from[0].podSelector.matchLabels.app=prometheus",
		"exporter.networkPolicy.from[0].podSelector.matchLabels.app=prometheus")
	for _, want := range []string{"NetworkPolicy/shop-redeliver-console", "NetworkPolicy/shop-redeliver-run", "NetworkPolicy/shop-redeliver-exporter"} {
		if _, ok := all[want]; !ok {
			t.Errorf("there is no %s", want)
		}
	}
	for name := range render(t) {
		if strings.HasPrefix(name, "NetworkPolicy") {
			t.Errorf("no caller of %s is allowed", name)
		}
	}
}

func TestUsersComeFromASecret(t *testing.T) {
	for _, e := range render(t)["Deployment/shop-redeliver-console"].Spec.Template.Spec.Containers[0].Env {
		if e.Name == "REDELIVER_CONSOLE_USERS" && e.Value == "" && e.From.Secret.Name == "users" && e.From.Secret.Key == "users" {
			return
		}
	}
	t.Error("no secret has the users")
}

// A probe uses an address at which the program answers.
func TestProbesAskTheSidecar(t *testing.T) {
	c := render(t)["Deployment/shop-redeliver-run"].Spec.Template.Spec.Containers[0]
	for want, probe := range map[string]map[string]any{"/healthz": c.Liveness, "/readyz": c.Readiness} {
		get, _ := probe["httpGet"].(map[string]any)
		if get["path"] != want || get["port"] != "health" {
			t.Errorf("the probe asks %v, want %s", get, want)
		}
	}
	if args := strings.Join(c.Args, " "); !strings.Contains(args, "--health=:8081") || !strings.Contains(args, "--drain=30s") {
		t.Errorf("it is called with %s", args)
	}
}

// The real command accepts the arguments of the chart: it then looks for its broker, which does not exist.
func TestTheCommandAcceptsTheArguments(t *testing.T) {
	program := filepath.Join(t.TempDir(), "redeliver")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/redeliver")
	cmd.Dir = "../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for name, values := range map[string][]string{
		"defaults": nil,
		"all": {"run.retries=5", `run.backoff=steps:10s\,1m\,1h`, "run.timeout=90s", "run.extraArgs={--batch=100,--outage}",
			"console.readOnly=true", "console.title=Dead", "exporter.extraArgs={--max-dlqs=500}", `exporter.dlqs={orders.billing.dlq}`, `console.dlqs={orders.billing.dlq\,topic=orders\,group=billing}`},
		"behind a proxy": {"console.basicAuth.secret=", "console.basicAuth.tlsSecret=", "console.behindProxy.cidrs={10.0.0.0/8,fd00::/8}",
			"console.behindProxy.proxySecret=proxy", "console.hosts={console.example.com,console}",
			`console.behindProxy.grants={operator=@ops\,ann,viewer=*,operator@orders.*=bob}`, "console.behindProxy.userHeader=X-User", "console.behindProxy.groupsHeader=X-Groups"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range render(t, values...) {
				if o.Kind != "Deployment" {
					continue
				}
				c := o.Spec.Template.Spec.Containers[0]
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				args := append([]string{}, c.Args...)
				secret := filepath.Join(t.TempDir(), "secret")
				if err := os.WriteFile(secret, []byte("a-secret-of-the-proxy"), 0o600); err != nil {
					t.Fatal(err)
				}
				for i := range args {
					args[i] = strings.ReplaceAll(args[i], "/proxy/secret", secret)
					args[i] = strings.ReplaceAll(args[i], "--health=:8081", "--health=127.0.0.1:0")
					args[i] = strings.ReplaceAll(args[i], "--listen=:8082", "--listen=127.0.0.1:0")
				}
				cmd := exec.CommandContext(ctx, program, args...)
				for _, e := range c.Env {
					value := strings.ReplaceAll(e.Value, "kafka:9092", "127.0.0.1:1")
					if e.From.Secret.Name != "" {
						value = "ann:operator:long enough"
					}
					cmd.Env = append(cmd.Env, e.Name+"="+value)
				}
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				_ = cmd.Run() // the test checks its exit code
				if code := cmd.ProcessState.ExitCode(); code != 1 {
					t.Errorf("%s ends with %d, want 1, because there is no broker:\n%s", c.Name, code, out.String())
				}
			}
		})
	}
}

// Mistyped and unsafe values are refused at the installation, and the message names them.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ value, says string }{
		{"run.topic=orders", "topic"},
		{"run.retrys=3", "retrys"},
		{"conzole.enabled=true", "conzole"},
		{"run.retries=many", "retries"},
		{"run.timeout=soon", "timeout"},
		{"image.tag=", "image.tag"},
		{"image.digest=abc", "digest"},
		{"run.topics=null", "run.topics"},
		{"run.http=", "run.http"},
		{"run.http=http://ann:secret@charge/", "http"},
		{"broker.url=kafka://ann:secret@kafka:9092", "url"},
		{"env.REDELIVER_PASSWORD=secret", "REDELIVER_PASSWORD"},
		{"console.basicAuth.secret=", "who may use the console"},
		{"console.networkPolicy.form={}", "form"},
		{"console.basicAuth.tlsSecret=", "TLS"},
	} {
		if out, err := run(t, []string{"template", "shop", chartDir}, c.value); err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, %q, want it to contain %q", c.value, err, out, c.says)
		}
	}
	proxy := []string{"console.basicAuth.secret=", "console.basicAuth.tlsSecret=", "console.behindProxy.cidrs={10.0.0.0/8}", "console.behindProxy.grants={viewer=*}"}
	for says, value := range map[string]string{"believes every pod": "console.title=x", "must be ClusterIP": "console.behindProxy.proxySecret=proxy,console.service.type=LoadBalancer"} {
		if out, err := run(t, []string{"template", "shop", chartDir}, append(slices.Clone(proxy), value)...); err == nil || !strings.Contains(out, says) {
			t.Errorf("behind a proxy with %s: %v, %q, want it to contain %q", value, err, out, says)
		}
	}
	if out, err := run(t, []string{"template", "shop", chartDir}, "broker.url=", "secret="); err == nil || !strings.Contains(out, "which broker") {
		t.Errorf("without a broker: %v, %q", err, out)
	}
}
