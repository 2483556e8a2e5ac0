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

// VHost is the name of the virtual host to which the URL leads.
func (r *Rabbit) VHost() string { return r.vhost }

// VirtualHost makes a virtual host that only this test uses, and returns the node as it is seen from there: the URL leads
// there, and CloseAllConnections closes the connections to it alone. Policies and rights that a test gives there are
// nobody else's business, so it needs no node of its own. It is gone with all its queues at the test's end.
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

// manage asks the management API for a change.
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
