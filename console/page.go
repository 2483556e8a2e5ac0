package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/bytetext"
)

//go:embed templates/*.html assets/*
var files embed.FS

// version identifies the embedded files, so that browsers may cache them.
var version = sync.OnceValue(func() string {
	h := sha256.New()
	names, _ := fs.Glob(files, "assets/*")
	for _, name := range names {
		content, _ := files.ReadFile(name)
		_, _ = h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil)[:6])
})

// templates are the pages by name. Each has the layout and the shared parts, and defines "main".
var templates = sync.OnceValue(func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html"))
	pages, _ := fs.Glob(files, "templates/page-*.html")
	all := make(map[string]*template.Template)
	for _, name := range pages {
		one := template.Must(template.Must(shared.Clone()).ParseFS(files, name))
		all[strings.TrimSuffix(strings.TrimPrefix(path.Base(name), "page-"), ".html")] = one
	}
	return all
})

var functions = template.FuncMap{
	"line": tableText, "bytes": bytetext.Format, "visible": escapeInvisible, "num": formatNumber, "size": formatSize, "ago": formatAgo, "duration": formatDuration, "address": address,
	"str":     func(v []byte) string { return string(v) },
	"int64":   func(n int) int64 { return int64(n) },
	"stamp":   func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"machine": func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04") },
	"percent": formatShare,
	"overdue": func(l Level) bool { return l.Overdue >= minOverdue },
	"isLevel": isLevel,
	"scope":   describeRights,
	"cause": func(fingerprint string) *deadletter.Filter {
		return &deadletter.Filter{Fingerprints: []string{fingerprint}}
	},
	"lookAt": func(at deadletter.Position) *deadletter.Filter {
		return &deadletter.Filter{Positions: []deadletter.Position{at}}
	},
	"middle": middle, "emptyLevels": emptyLevels, "fullLevels": fullLevels, "waitingTotal": waitingTotal,
	"exactly": regexp.QuoteMeta,
	"shorten": func(s string) string { return truncate(s, 4<<10) },
}

// formatShare formats a share. A share above 0 is never shown as 0 %.
func formatShare(share float64) string {
	switch {
	case share <= 0:
		return "0 %"
	case share < 0.01:
		return "under 1 %"
	default:
		return formatNumber(int64(share*100+0.5)) + " %"
	}
}

// layout is the part that all pages share.
type layout struct {
	Title   string
	Console string // title of the console
	Root    string // path to the first page, "" or "../"
	Version string
	Actor   Actor
	// LoggedIn is false on a page for a user who is not logged in.
	LoggedIn, ReadOnly bool
	Nav                string // the current section of the console
	Query              string // the search text
	Now                time.Time
	Live               bool   // the page may be kept up to date
	Note               string // the effect of the last form
	Page               any
}

// notes are the messages that a page shows at its top when its address requests them.
var notes = map[string]string{
	"started":       "The task was started.",
	"pausing":       "The task pauses after the messages that it is sending.",
	"resumed":       "The task was resumed.",
	"edited":        "The edited message was replayed, and the original was removed from the DLQ.",
	"reading":       "The DLQ is being read. Its causes appear in a moment.",
	"starting":      "The task is starting. Reload in a moment.",
	"cancelled":     "The task is being cancelled.",
	"command-sent":  "The command was sent. The consumers read it within a second or two.",
	"group-paused":  "The group is paused. Its consumers follow within about 10 seconds.",
	"group-resumed": "The group is resumed. Its consumers follow within about 10 seconds.",
}

// show renders a page and sends it. It renders the whole page before the first byte is sent, so that an error leaves no
// partial page.
func (c *Console) show(w http.ResponseWriter, r *http.Request, status int, name string, f layout) {
	f.Console, f.Version, f.Now = c.cfg.Title, version(), time.Now()
	f.Actor, f.ReadOnly = actorOf(r), c.cfg.ReadOnly
	f.LoggedIn = f.Actor.isValid()
	f.Live = f.Live && f.LoggedIn
	f.Root = strings.Repeat("../", max(0, strings.Count(r.URL.Path, "/")-1))
	if f.Note == "" {
		f.Note = notes[r.URL.Query().Get("note")]
	}
	var page bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&page, "layout", f); err != nil {
		slog.Error("redeliver console: rendering a page", "page", name, "error", err)
		http.Error(w, "This page could not be rendered. That is a bug of the console: please report it.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the client may be gone
}

// errorPage is an error page.
type errorPage struct {
	Heading, Text string
	Back          string // an address, or empty
}

func (c *Console) showProblem(w http.ResponseWriter, r *http.Request, status int, heading, text string) {
	c.show(w, r, status, "problem", layout{Title: heading, Page: errorPage{Heading: heading, Text: text}})
}

// showError shows the page for an error.
func (c *Console) showError(w http.ResponseWriter, r *http.Request, err error) {
	key := r.FormValue("dlq")
	p := errorPage{Heading: "The request failed", Text: redeliver.Redact(err.Error())}
	if key != "" {
		if _, _, unknown := c.svc.findQueue(actorOf(r), key); unknown == nil {
			p.Back = address("dlq", key, nil)
		}
	}
	status := http.StatusBadGateway // most errors come from a broker
	_, deniedTo := errors.AsType[*DeniedError](err)
	_, input := errors.AsType[*inputError](err)
	_, large := errors.AsType[*http.MaxBytesError](err)
	_, config := errors.AsType[*redeliver.ConfigError](err)
	held, isHeld := errors.AsType[*deadletter.HeldError](err)
	switch {
	case deniedTo:
		status, p.Heading = http.StatusForbidden, "Not allowed"
	case input, config:
		status, p.Heading = http.StatusBadRequest, "Invalid input"
	case large:
		status, p.Heading, p.Text = http.StatusRequestEntityTooLarge, "The form is too large", "A form may have at most 8 MiB."
	case isHeld:
		status, p.Heading = http.StatusConflict, "Another task uses this DLQ"
		p.Back = address("task", r.FormValue("dlq"), nil, "id", held.Holder.Task)
	case errors.Is(err, errNoQueue), errors.Is(err, deadletter.ErrNotFound), errors.Is(err, deadletter.ErrNoTask):
		status, p.Heading = http.StatusNotFound, "Not found"
	case errors.Is(err, deadletter.ErrTooMany):
		status, p.Heading = http.StatusConflict, "More messages have arrived"
	case errors.Is(err, errBusy):
		status, p.Heading, p.Text = http.StatusServiceUnavailable, "Too many reads at once", p.Text+". Nothing was changed; ask again in a moment."
	case errors.Is(err, context.DeadlineExceeded):
		status, p.Heading = http.StatusGatewayTimeout, "The broker does not answer"
		p.Text = "It took longer than " + formatDuration(maxReadTime) + ". " + describeOutcome(r, err) + " " + c.svc.redactErrorFor(actorOf(r), key, err)
	default:
		p.Text = c.svc.redactErrorFor(actorOf(r), key, err) // the text of a broker may quote a message
	}
	c.show(w, r, status, "problem", layout{Title: p.Heading, Page: p})
}

// unchangedError is an error that occurred before anything was changed.
type unchangedError struct{ err error }

func (e *unchangedError) Error() string { return e.err.Error() }
func (e *unchangedError) Unwrap() error { return e.err }

// describeOutcome describes a request that a broker did not answer. The broker may have executed it nevertheless.
func describeOutcome(r *http.Request, err error) string {
	_, before := errors.AsType[*unchangedError](err)
	if before || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return "Nothing was changed."
	}
	return "Look at the task history to see whether it was done."
}

// asset sends one of the embedded files. A browser caches it until the version changes.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := files.ReadFile("assets/" + name)
	if err != nil {
		c.showProblem(w, r, http.StatusNotFound, "There is no such file", name)
		return
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	w.Header().Set("Content-Type", types[path.Ext(name)])
	if r.URL.Query().Get("v") == version() {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	_, _ = w.Write(content) //nolint:gosec // G705: the content is embedded; the request only selects the file
}
