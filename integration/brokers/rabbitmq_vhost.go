package brokers

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// VHost returns the name of the URL's virtual host.
func (r *Rabbit) VHost() string { return r.vhost }

// VirtualHost creates a virtual host that only this test uses, and returns the node with the URL of that virtual host.
// CloseAllConnections then closes only the connections to it. Policies and rights in it do not affect other tests, so
// the test needs no node of its own. The virtual host is deleted with all its queues at the end of the test.
func (r *Rabbit) VirtualHost(tb testing.TB) *Rabbit {
	tb.Helper()
	u, err := url.Parse(r.url)
	if err != nil {
		tb.Fatal(err)
	}
	if r.management == "" {
		tb.Fatalf("%s has no management API, which makes virtual hosts: set %s", r, r.env.management)
	}
	v := *r
	v.vhost = "v-" + strings.ToLower(rand.Text()[:12])
	u.Path = "/" + v.vhost
	v.url = u.String()
	v.manage(tb, http.MethodPut, "vhosts/"+v.vhost, "")
	tb.Cleanup(func() { v.manage(tb, http.MethodDelete, "vhosts/"+v.vhost, "") })
	v.manage(tb, http.MethodPut, "permissions/"+v.vhost+"/"+url.PathEscape(u.User.Username()), `{"configure":".*","write":".*","read":".*"}`)
	return &v
}

// manage requests a change through the management API.
func (r *Rabbit) manage(tb testing.TB, method, path, body string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, strings.TrimSuffix(r.management, "/")+"/api/"+path, bytes.NewBufferString(body))
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= http.StatusMultipleChoices {
		tb.Fatal(fmt.Sprintf("%s %s at %s: ", method, path, r), res.Status)
	}
}
