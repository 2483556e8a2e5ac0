package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Console is the web console, an [http.Handler]. It is safe for concurrent use.
type Console struct {
	cfg      Config
	svc      *service
	handler  http.Handler
	failures loginFailures
	cancel   context.CancelFunc
}

// New creates a console and starts to read its DLQs in the background. The error has all problems of cfg. Close the
// console before its queues.
func New(cfg Config) (*Console, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Console{cfg: cfg, svc: newService(ctx, cfg), cancel: cancel}
	c.handler = c.guard(c.routes())
	for _, q := range c.svc.queues {
		if err := c.svc.runInBackground(func() { c.svc.pollQueue(q, c.svc.pollSlot) }); err != nil {
			return nil, err // never: the console is open
		}
	}
	return c, nil
}

// Add shows one more DLQ after the others. Close the Console before q.
func (c *Console) Add(q Queue) error {
	if q.Queue == nil {
		return errors.New("console: adding a DLQ: there is no Queue")
	}
	if err := c.svc.addQueue(&q); err != nil {
		return fmt.Errorf("console: adding a DLQ: %w", err)
	}
	return nil
}

// SetNotes replaces [Config.Notes].
func (c *Console) SetNotes(notes ...string) { c.svc.setNotes(slices.Clone(notes)) }

// Close ends the background work and waits for it. It pauses the tasks of this process; any process can resume them. An
// edit has up to 5 s to finish. Later requests are refused.
func (c *Console) Close() {
	c.cancel()
	c.svc.close()
}

// ServeHTTP implements http.Handler. All addresses in pages are relative, so it works under any prefix that
// http.StripPrefix or a proxy removes.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" { // addresses relative to the prefix without its slash would be wrong
		if asked, _, _ := strings.Cut(r.RequestURI, "?"); !strings.HasSuffix(asked, "/") {
			redirect(w, "./"+path.Base(asked)+"/")
			return
		}
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		slashed := *r.URL
		slashed.Path, slashed.RawPath = "/"+r.URL.Path, ""
		r = r.Clone(r.Context())
		r.URL = &slashed
	}
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path { // ServeMux would redirect without the prefix
		r = r.Clone(r.Context())
		r.URL.Path, r.URL.RawPath = strings.Repeat("/-", strings.Count(r.URL.Path, "/")), ""
	}
	c.handler.ServeHTTP(w, r)
}

// routes maps addresses to pages. All pages are at the same level, so that every address in them is relative. Names of
// queues and positions of messages are parameters, because they may contain characters that are invalid in a path.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	pages := map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /{$}":      c.home,
		"GET /dlq":      c.dlq,
		"POST /causes":  c.causes,
		"GET /messages": c.messages,
		"GET /message":  c.message,
		"GET /payload":  c.payload,
		"GET /search":   c.search,
		"GET /tasks":    c.tasks,
		"GET /task":     c.task,
		"POST /task":    c.controlTask,
		"GET /replay":   c.taskFormHandler(ActionReplay, "Replay from"),
		"POST /replay":  c.replay,
		"GET /purge":    c.taskFormHandler(ActionPurge, "Purge"),
		"POST /purge":   c.purge,
		"GET /waiting":  c.waitingForm,
		"POST /waiting": c.command,
		"GET /pause":    c.pauseForm,
		"POST /pause":   c.pauseGroup,
		"POST /resume":  c.resumeGroup,
		"GET /edit":     c.editForm,
		"POST /edit":    c.edit,
	}
	for pattern, page := range pages {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := page(w, r); err != nil {
				c.showError(w, r, err)
			}
		})
	}
	mux.HandleFunc("GET /events", c.events)
	mux.HandleFunc("GET /assets/{file}", c.asset)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c.showProblem(w, r, http.StatusNotFound, "There is no such page", "The console has no page at this address, or the page does not accept this kind of request.")
	})
	return mux
}

// redirect answers a form with a redirect. The address is relative, because the console does not know its prefix.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}
