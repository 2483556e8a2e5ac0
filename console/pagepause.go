package console

import (
	"context"
	"errors"
	"net/http"

	"github.com/redeliver/redeliver/internal/actor"
)

var errNotPausable = invalidInput("this group cannot be paused here: that works only with a queue that is a console.Pauser")

// pauseForm shows the form that pauses the group of a DLQ.
func (c *Console) pauseForm(w http.ResponseWriter, r *http.Request) error {
	key, who := r.URL.Query().Get("dlq"), actorOf(r)
	if err := c.svc.requireRight(who, key, ActionPauseGroup); err != nil {
		return err
	}
	o, err := c.svc.openOverview(who, key)
	if err != nil {
		return err
	}
	if !o.Pausable {
		return errNotPausable
	}
	c.show(w, r, http.StatusOK, "pause", layout{Title: "Pause " + o.Info.Group, Nav: "dlq", Page: o})
	return nil
}

// pauseGroup handles the form of pauseForm.
func (c *Console) pauseGroup(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	why, err := readWhy(r.PostForm)
	if err != nil {
		return err
	}
	key := r.PostForm.Get("dlq")
	if err := c.checkConfirmation(r, key, "the group was not paused"); err != nil {
		return err
	}
	if err := c.svc.setPaused(r.Context(), actorOf(r), key, &Record{Action: ActionPauseGroup, Why: why}); err != nil {
		return err
	}
	redirect(w, address("dlq", key, nil, "note", "group-paused"))
	return nil
}

func (c *Console) resumeGroup(w http.ResponseWriter, r *http.Request) error {
	if err := parseForm(r); err != nil {
		return err
	}
	key := r.PostForm.Get("dlq")
	if err := c.svc.setPaused(r.Context(), actorOf(r), key, &Record{Action: ActionResumeGroup}); err != nil {
		return err
	}
	redirect(w, address("dlq", key, nil, "note", "group-resumed"))
	return nil
}

// setPaused pauses or resumes the group of a DLQ, as rec.Action says, and records it.
func (svc *service) setPaused(ctx context.Context, who Actor, key string, rec *Record) error {
	q, err := svc.openFor(&who, key, *rec)
	if err != nil {
		return err
	}
	err = errNotPausable
	if p, ok := q.q.(Pauser); ok {
		ctx, cancel := context.WithTimeout(ctx, maxReadTime)
		defer cancel()
		if rec.Action == ActionPauseGroup {
			err = p.Pause(actor.With(ctx, who.Name), historyName(who)+": "+rec.Why)
		} else {
			err = p.Resume(ctx)
		}
		mark, errRead := p.Paused(ctx)
		q.mu.Lock()
		if errRead == nil { // for the page that follows; the next refresh reads it again
			q.last.Paused = mark
		}
		q.pauseChanged.Store(true)
		q.mu.Unlock()
		q.wake()
	}
	return errors.Join(err, svc.recordResult(who, q, *rec, nil, err))
}
