package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
)

// EditOptions configures an edit. Who, Why and Position are required, and a change of the body or
// of a header.
type EditOptions struct {
	Who, Why string
	// Position is the message's place in the DLQ. ID, if it is given, must be its id, so that no other message
	// is edited.
	Position Position
	ID       string
	// Body, if it is not nil, is the new body. Key and id do not change.
	Body []byte
	// Set are headers with new values. A new value replaces all values of that name, and new names come last. Remove
	// are names of headers to remove. The headers of redeliver, and the one with the id, are locked.
	Set    []Header
	Remove []string
}

// Diff records what an edit changed. It has the SHA-256 of the bodies instead of the bodies,
// because the record outlives them and not everybody may read them.
type Diff struct {
	Position Position `json:"position"`
	ID       string   `json:"id"`
	// Before and After are "sha256:..." and the length in bytes.
	BodyBefore string         `json:"body_before"`
	BodyAfter  string         `json:"body_after"`
	Headers    []HeaderChange `json:"headers,omitempty"`
}

// HeaderChange is a header before and after; nil means that it did not or does not exist.
type HeaderChange struct {
	Name   string   `json:"name"`
	Before [][]byte `json:"before"`
	After  [][]byte `json:"after"`
}

// Edit replays one message with a changed body or headers. The original stays in the DLQ until the edited copy is
// confirmed. The message may be quarantined, because the edited message is another one. The returned task has the diff.
func Edit(ctx context.Context, q Queue, c EditOptions) (Task, error) {
	if err := c.validate(); err != nil {
		return Task{}, err
	}
	t := newTask(q, KindEdit, c.Who, c.Why)
	claim, err := q.Claim(ctx, Holder{Who: c.Who, Task: t.ID})
	if err != nil {
		return Task{}, err
	}
	t.Filter.Positions = []Position{c.Position}
	err = conclude(ctx, claim, &t, Report{}, sendEdited(ctx, claim, &t, &c))
	return t, err
}

func sendEdited(ctx context.Context, claim Claim, t *Task, c *EditOptions) (err error) {
	scan, err := claim.Scan(ctx, Start)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scan.Close()) }()
	m := (*Message)(nil)
	err = sifted(ctx, scan, func(looked *Message) bool {
		t.Counts.Scanned++
		return looked.Position == c.Position
	}, func(found *Message) bool {
		m = found
		return false
	})
	if err == nil && m == nil {
		err = fmt.Errorf("%w at %s in %s", ErrNotFound, c.Position, t.DLQ)
	}
	if err != nil {
		return err
	}
	copied, diff, err := c.on(m, t.DLQ)
	if err != nil {
		return err
	}
	t.Counts.Matched, t.Diff = 1, diff
	if err := claim.Save(ctx, *t); err != nil { // before the message is sent
		return err
	}
	long, over := finishContext(ctx)
	defer over()
	if err := errors.Join(claim.Send(long, []*Message{copied})...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxFinish)
	defer cancel()
	done := *t
	done.Counts.Edited = 1
	if err := claim.Settle(ctx, done, []Settlement{{Message: m, Outcome: Edited}}); err != nil {
		return err
	}
	*t = done
	return nil
}

func (c *EditOptions) validate() error {
	var ps redeliver.Problems
	signed(&ps, c.Who, c.Why)
	if c.Position == "" {
		ps.Add("Position", `""`, "it is required")
	}
	if c.Body == nil && len(c.Set)+len(c.Remove) == 0 {
		ps.Add("Body, Set, Remove", "empty", "one must say what is to change")
	}
	for _, h := range c.Set {
		c.lock(&ps, "Set", h.Name)
	}
	for _, name := range c.Remove {
		c.lock(&ps, "Remove", name)
	}
	return ps.Err()
}

// lock reports a problem if the header identifies the message.
func (c *EditOptions) lock(ps *redeliver.Problems, field, name string) {
	switch {
	case name == "":
		ps.Add(field, `""`, "must be the name of a header")
	case LockedHeader(name):
		ps.Add(field, name, "is locked: an edit must not change redeliver's headers and the id")
	}
}

// LockedHeader reports whether an edit must not change a header because it identifies the message:
// redeliver's own headers, in upper or lower case, and those that carry the id.
func LockedHeader(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, redeliver.HeaderPrefix) || strings.HasPrefix(lower, "_watermill_")
}

// on returns the edited copy, or an error if the message must not be edited.
func (c *EditOptions) on(m *Message, dlq string) (*Message, *Diff, error) {
	switch {
	case c.ID != "" && c.ID != m.ID:
		return nil, nil, fmt.Errorf("the message at %s in %s is %s, not %s: look again", c.Position, dlq, m.ID, c.ID)
	case m.Mismatch != "":
		return nil, nil, fmt.Errorf("refused: %s", m.Mismatch)
	}
	copied, diff := c.apply(m)
	if diff.BodyBefore == diff.BodyAfter && len(diff.Headers) == 0 {
		return nil, nil, errors.New("the edit changes nothing; replay the message instead")
	}
	return copied, diff, nil
}

// DryEdit returns what Edit would change, or why it would refuse. It changes nothing and needs no
// claim.
func DryEdit(ctx context.Context, q Queue, c EditOptions) (*Diff, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	m, err := Find(ctx, q, c.Position)
	if err != nil {
		return nil, err
	}
	_, diff, err := c.on(m, q.Info().DLQ)
	return diff, err
}

// apply makes the edited copy. It does not change the original.
func (c *EditOptions) apply(m *Message) (*Message, *Diff) {
	edited := *m
	edited.Headers = nil
	diff := &Diff{Position: m.Position, ID: m.ID, BodyBefore: named(m.Body)}
	if c.Body != nil {
		edited.Body = c.Body
	}
	diff.BodyAfter = named(edited.Body)
	set := slices.Clone(c.Set)
	for _, h := range m.Headers {
		if slices.Contains(c.Remove, h.Name) {
			continue
		}
		i := slices.IndexFunc(c.Set, func(s Header) bool { return s.Name == h.Name })
		if i < 0 {
			edited.Headers = append(edited.Headers, h)
			continue
		}
		if j := slices.IndexFunc(set, func(s Header) bool { return s.Name == h.Name }); j >= 0 {
			edited.Headers = append(edited.Headers, set[j]) // at the position of the first one
			set = slices.Delete(set, j, j+1)
		}
	}
	edited.Headers = append(edited.Headers, set...)
	seen := make(map[string]bool)
	for _, h := range slices.Concat(m.Headers, edited.Headers) {
		if seen[h.Name] {
			continue
		}
		seen[h.Name] = true
		before, after := values(m.Headers, h.Name), values(edited.Headers, h.Name)
		if !slices.EqualFunc(before, after, slices.Equal[[]byte]) {
			diff.Headers = append(diff.Headers, HeaderChange{Name: h.Name, Before: before, After: after})
		}
	}
	return &edited, diff
}

func values(headers []Header, name string) (all [][]byte) {
	for _, h := range headers {
		if h.Name == name {
			all = append(all, h.Value)
		}
	}
	return all
}

func named(body []byte) string {
	if body == nil {
		return "null"
	}
	sum := sha256.Sum256(body)
	return fmt.Sprintf("sha256:%s, %d bytes", hex.EncodeToString(sum[:]), len(body))
}
