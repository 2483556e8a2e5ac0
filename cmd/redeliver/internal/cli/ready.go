package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redeliver/redeliver"
)

// defaultReady is where run answers that was told --health :8081.
const defaultReady = "http://127.0.0.1:8081/readyz"

// readyRow is what ready prints.
type readyRow struct {
	URL   string `json:"url"`
	Ready bool   `json:"ready"`
	Why   string `json:"why,omitempty"` // what keeps it
}

func (a *app) ready() *cobra.Command {
	var patience time.Duration
	cmd := &cobra.Command{
		Use: "ready [URL]", Short: "Ask whether redeliver run, or another server, is ready: exit code 3 when not",
		Long: `ready asks a URL, ` + defaultReady + ` by default, and ends with exit code 3 when the
answer is not 200, or there is none. tcp://host:port is only connected to. It is for the
health check of a container, which in the image of redeliver has no other program to ask with.`,
		Example: `  redeliver ready
  redeliver ready tcp://127.0.0.1:8377`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q is too much: it takes one URL", redeliver.Redact(args[1]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			address := defaultReady
			if len(args) > 0 {
				address = args[0]
			}
			u, err := url.Parse(address)
			if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "tcp" {
				return usagef("%s must be http://host:port/path, https, or tcp://host:port", redeliver.RedactAddress(address))
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), patience)
			defer cancel()
			row := readyRow{URL: redeliver.Redact(address), Ready: true}
			if err := askReady(ctx, u); err != nil {
				row.Ready, row.Why = false, redeliver.Redact(err.Error())
			}
			if err := a.one(row, func(t *card) {
				t.line("url", row.URL)
				t.line("ready", row.Ready)
				t.line("why", row.Why)
			}); err != nil || row.Ready {
				return err
			}
			return failed(codeFound, "%s is not ready", row.URL)
		},
	}
	cmd.Flags().DurationVar(&patience, "timeout", 3*time.Second, "how long the answer may take")
	return cmd
}

// askReady returns what keeps a server.
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
	// It is this host that is asked, by no proxy, and whoever answers: a certificate says nothing of readiness.
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}, //nolint:gosec // nothing is told to it, and nothing secret is asked for
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
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // the status alone would do
	return errors.New(strings.TrimSpace(resp.Status + "\n" + string(why)))
}
