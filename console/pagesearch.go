package console

import (
	"net/http"
	"strings"
)

// searchPage is the page with the results of a search in all DLQs.
type searchPage struct {
	Text  string
	Asked bool
	searchResult
}

func (c *Console) search(w http.ResponseWriter, r *http.Request) error {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if len(text) > maxParam {
		return wrong("the search text is longer than %d bytes", maxParam)
	}
	p := searchPage{Text: text, Asked: text != ""}
	if p.Asked {
		var err error
		if p.searchResult, err = c.desk.search(r.Context(), actorOf(r), text); err != nil {
			return err
		}
	}
	c.show(w, r, http.StatusOK, "search", layout{Title: "Search", Nav: "search", Query: text, Page: p})
	return nil
}
