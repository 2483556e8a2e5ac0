package console

import (
	"net/http"
	"testing"
)

// CrossOriginProtection allows every GET, with which a page of another site could make an operator's browser read and
// search messages. The record would name the operator.
func TestCrossSiteRequestsAreForbidden(t *testing.T) {
	rec, costly := &auditLog{}, newStub("costly", 3)
	costly.info.ReadEffect = "a delivery of each message"
	free := newStub("free", 3)
	c, err := New(Config{Queues: []Queue{{Queue: free}, {Queue: costly}}, Audit: rec})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	targets := []string{
		"/", page("messages", free, "text", "card"), page("message", free, "at", "0"), page("payload", free, "at", "0"),
		page("edit", free, "at", "0"), page("messages", costly, "look", "yes"), "/assets/console.js",
	}
	for _, site := range []string{"cross-site", "same-site"} {
		for _, how := range [][]string{{"no-cors", "image"}, {"cors", "empty"}, {"navigate", "iframe"}, {"navigate", "embed"}} {
			for _, target := range targets {
				a := ask(t, c, http.MethodGet, target, nil, "Sec-Fetch-Site", site, "Sec-Fetch-Mode", how[0], "Sec-Fetch-Dest", how[1])
				if a.StatusCode != http.StatusForbidden {
					t.Errorf("%s from a page of another site (%s, %s) is %d", target, site, how[1], a.StatusCode)
				}
			}
		}
	}
	if n := len(rec.said()); n != 0 {
		t.Errorf("the record names somebody who did not ask: %q", rec.said())
	}
	// A link from another site opens a page, but downloads nothing and does not agree to a costly read.
	link := []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}
	get(t, c, page("message", free, "at", "0"), link...)
	get(t, c, page("messages", costly, "look", "yes"), link...).has(t, "Read anyway")
	get(t, c, page("message", costly, "at", "0", "look", "yes"), link...).has(t, "Read anyway")
	if n := costly.scanned(); n != 0 {
		t.Errorf("a link has looked %d times", n)
	}
	if a := ask(t, c, http.MethodGet, page("payload", free, "at", "0"), nil, link...); a.StatusCode != http.StatusForbidden {
		t.Errorf("a download by a link of another site is %d", a.StatusCode)
	}
	for _, own := range []string{"same-origin", "none", ""} {
		get(t, c, page("messages", costly, "look", "yes"), "Sec-Fetch-Site", own)
		get(t, c, page("payload", free, "at", "0"), "Sec-Fetch-Site", own)
	}
}
