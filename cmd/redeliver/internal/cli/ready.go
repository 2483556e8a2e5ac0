package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
)

// defaultReady is the URL of redeliver run --health :8081.
const defaultReady = "http://127.0.0.1:8081/readyz"

// readyRow is what ready prints.
type readyRow struct {
	URL   string `json:"url"`
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"` // why it is not ready
}

func readyCommand(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "ready [URL]", Short: "Report whether redeliver run is ready (exit code 3 if not)",
		Long: `Send a request to a URL, by default ` + defaultReady + `, and end with exit code 3
if the answer is not 200. For tcp://host:port it only opens a connection.

Use it as the health check of a container: the image of redeliver has no other program.`,
		Example: `  redeliver ready
  redeliver ready tcp://127.0.0.1:8377`,
		Args: atMostOne("one URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := defaultReady
			if len(args) > 0 {
				address = args[0]
			}
			u, err := url.Parse(address)
			if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "tcp" {
				return usagef("the URL is %s: must be http://host:port/path, https://host:port/path or tcp://host:port", redeliver.RedactAddress(address))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			row := readyRow{URL: redeliver.Redact(address), Ready: true}
			if err := askReady(ctx, u); err != nil {
				row.Ready, row.Why = false, redeliver.Redact(err.Error())
			}
			if err := a.printOne(row, func(t *details) {
				t.line("url", row.URL)
				t.line("ready", state(map[bool]string{true: "yes", false: "no"}[row.Ready]))
				t.line("why", row.Why)
			}); err != nil || row.Ready {
				return err
			}
			return failed(codeFound, "%s is not ready", row.URL)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "Wait at most this `duration` for the answer")
	return cmd
}

// askReady returns why a server is not ready.
func askReady(ctx context.Context, u *url.URL) error {
	if u.Scheme == "tcp" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return err
	}
	// The request bypasses proxies and accepts any certificate, because neither affects readiness.
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, //nolint:gosec // the request and the answer have no secrets
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // if it fails, the status suffices
	return errors.New(strings.TrimSpace(resp.Status + "\n" + string(why)))
}
