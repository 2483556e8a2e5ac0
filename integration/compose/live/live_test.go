//go:build compose

package live

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maxWait is how long images may take to start, on a machine that does other things, too.
const maxWait = 5 * time.Minute

// suites are what COMPOSE, the command for the suite that runs, has in it.
func suites(t *testing.T) []string {
	t.Helper()
	switch suite := os.Getenv("SUITE"); suite {
	case "all":
		return []string{"kafka", "rabbitmq", "sqs"}
	case "":
		t.Fatal("SUITE names no suite: make compose-test")
		return nil
	default:
		return []string{suite}
	}
}

// eventually asks until the answer is no error.
func eventually(t *testing.T, what string, ask func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}

// counted is the sum of a metric of the sidecar of a broker. It is asked for from the handler's container: they
// have one network.
func counted(ctx context.Context, broker, metric string) (sum float64, err error) {
	argv := strings.Fields(os.Getenv("COMPOSE"))
	argv = append(argv, "exec", "-T", broker+"-handler", "python3", "-c",
		"import urllib.request;print(urllib.request.urlopen('http://127.0.0.1:8081/metrics',timeout=10).read().decode())")
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = "../../.."
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	for _, line := range regexp.MustCompile(`(?m)^`+metric+`\{.*\} (\S+)$`).FindAllStringSubmatch(string(out), -1) {
		n, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// Orders are charged, fail and are tried again, and those without a card are in the DLQ.
func TestOrdersAreHandled(t *testing.T) {
	for _, broker := range suites(t) {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			for _, metric := range []string{"redeliver_committed_total", "redeliver_retries_scheduled_total", "redeliver_dead_lettered_total"} {
				eventually(t, metric, func(ctx context.Context) error {
					n, err := counted(ctx, broker, metric)
					if err == nil && n == 0 {
						err = fmt.Errorf("%s is 0", metric)
					}
					return err
				})
			}
		})
	}
}

// The console asks who is there, and shows the DLQ of each broker.
func TestTheConsoleShowsTheDLQs(t *testing.T) {
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // it has made its certificate itself
	}}
	port := os.Getenv("REDELIVER_CONSOLE_PORT")
	if port == "" {
		port = "8377"
	}
	get := func(ctx context.Context, user string) (int, string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:"+port+"/", http.NoBody)
		if err != nil {
			return 0, "", err
		}
		if user != "" {
			req.SetBasicAuth(user, "demodemo")
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	names := map[string]string{"kafka": "orders.billing.dlq", "rabbitmq": "orders.dlq", "sqs": "orders-dlq"}
	for _, broker := range suites(t) {
		eventually(t, "the console and "+names[broker], func(ctx context.Context) error {
			status, page, err := get(ctx, "demo")
			if err == nil && (status != http.StatusOK || !strings.Contains(page, names[broker])) {
				err = fmt.Errorf("it answers %d without %s", status, names[broker])
			}
			return err
		})
	}
	if status, _, err := get(t.Context(), ""); err != nil || status != http.StatusUnauthorized {
		t.Errorf("without a password: %d, %v", status, err)
	}
}
