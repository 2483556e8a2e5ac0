package console

import (
	"net/http"
	"slices"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// waitingPage is the page of the waiting messages, with the form for a command and the earlier commands.
type waitingPage struct {
	overview
	Form     filterForm
	Kind     string // kind and level of the command that the form selects
	Level    string
	Commands []commandView
}

// commandView is a command with its state.
type commandView struct {
	deadletter.Command
	Words  []string
	Active bool // has not expired
}

// isLevel reports whether name is a level. The retry topic is none.
func isLevel(name string) bool {
	f := deadletter.WaitingFilter{Levels: []string{name}}
	return f.Check() == nil
}

func (c *Console) waitingForm(w http.ResponseWriter, r *http.Request) error {
	q, who := r.URL.Query(), actorOf(r)
	o, err := c.svc.openOverview(who, q.Get("dlq"))
	if err != nil {
		return err
	}
	all, err := c.svc.listCommands(r.Context(), who, o.Key)
	if err != nil {
		return err
	}
	p := waitingPage{overview: o, Kind: q.Get("kind"), Level: q.Get("level"), Form: newForm(o.Key, true, listQuery{})}
	if p.Kind != string(deadletter.CommandRelease) && p.Kind != string(deadletter.CommandCancel) {
		p.Kind = ""
	}
	p.Form.Reasons = nil // waiting messages have no reason yet
	for _, one := range slices.Backward(all) {
		v := commandView{Command: one, Active: time.Now().Before(one.Expires)}
		for _, level := range one.Filter.Levels {
			v.Words = append(v.Words, "level "+level)
		}
		if v.Words = append(v.Words, describeFilter(&one.Filter.Filter)...); len(v.Words) == 0 {
			v.Words = []string{"all that waits"}
		}
		p.Commands = append(p.Commands, v)
	}
	c.show(w, r, http.StatusOK, "waiting", layout{Title: "Waiting for " + o.Info.Group, Nav: "dlq", Page: p})
	return nil
}

// command handles the form of the waiting page.
func (c *Console) command(w http.ResponseWriter, r *http.Request) error {
	v, f, err := readFilterForm(r)
	if err != nil {
		return err
	}
	command := deadletter.Command{Kind: deadletter.CommandKind(v.Get("kind")), Filter: deadletter.WaitingFilter{Levels: nonEmpty(v["level"]), Filter: f}}
	command.Everything = command.Filter.All()
	if err := command.Check(); err != nil {
		return invalidInput("%v", err)
	}
	if command.Everything && v.Get("all") == "" {
		return invalidInput("that would be all waiting messages: narrow the filter, or tick the box")
	}
	if command.Why, err = readWhy(v); err != nil {
		return err
	}
	key := v.Get("dlq")
	if err := c.checkConfirmation(r, key, "no command was sent"); err != nil {
		return err
	}
	if err := c.svc.sendCommand(r.Context(), actorOf(r), key, command); err != nil {
		return err
	}
	redirect(w, address("waiting", key, nil, "note", "command-sent"))
	return nil
}
