package console

import (
	"net/http"
	"strings"
)

// SearchPage is the page with the results of a search in all DLQs.
type SearchPage struct {
	Text  string
	Asked bool
	Found
}

func (c *Console) search(w http.ResponseWriter, r *http.Request) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > maxParam {
		return wrong("the search text is longer than %d bytes", maxParam)
	}
	p := SearchPage{Text: text, Asked: text != ""}
	if p.Asked {
		var err error
		if p.Found, err = c.desk.search(r.Context(), actorOf(r), text); err != nil {
			return err
		}
	}
	c.show(w, r, http.StatusOK, "search", Frame{Title: "Search", Nav: "search", Query: text, Page: p})
	return nil
}
