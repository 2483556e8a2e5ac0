package console

import (
	"net/http"
	"strings"
)

// searchPage is the page with the results of a search in all DLQs.
type searchPage struct {
	Text     string
	Searched bool
	searchResult
}

func (c *Console) search(w http.ResponseWriter, r *http.Request) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > maxParam {
		return invalidInput("the search text is longer than %d bytes", maxParam)
	}
	p := searchPage{Text: text, Searched: text != ""}
	if p.Searched {
		var err error
		if p.searchResult, err = c.svc.searchQueues(r.Context(), actorOf(r), text); err != nil {
			return err
		}
	}
	c.show(w, r, http.StatusOK, "search", layout{Title: "Search", Nav: "search", Query: text, Page: p})
	return nil
}
