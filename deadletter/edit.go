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
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/wait"
)

// EditOptions configures an edit. Who, Why and Position are required, and at least one of Body, Set
// and Remove.
type EditOptions struct {
	Who, Why string
	// Position is the message's place in the DLQ. ID, if it is given, must be its id, so that no other message
	// is edited.
	Position Position
	ID       string
	// Body, if it is not nil, is the new body. Key and id do not change.
	Body []byte
	// Set has new headers. Each replaces all of its name; new names come last. A [LockedHeader] is refused.
	Set []Header
	// Remove has the names of headers to remove. A [LockedHeader] is refused.
	Remove []string
}

// Diff is the record of what an edit changed. It has the SHA-256 of the bodies and not the bodies,
// because it is kept for longer and more people may read it.
type Diff struct {
	Position Position `json:"position"`
	ID       string   `json:"id"`
	// BodyBefore and BodyAfter are "sha256:..." and the length in bytes.
	BodyBefore string         `json:"body_before"`
	BodyAfter  string         `json:"body_after"`
	Headers    []HeaderChange `json:"headers,omitempty"`
	// Before and After are the bodies, in the result of [DryEdit] and [Changed.Diff] only. They are not recorded.
	Before []byte `json:"-"`
	After  []byte `json:"-"`
}

// HeaderChange has the values of a header before and after an edit. Nil means that there was or is none.
type HeaderChange struct {
	Name   string   `json:"name"`
	Before [][]byte `json:"before"`
	After  [][]byte `json:"after"`
}

// Edit replays one message with a changed body or headers. The original stays in the DLQ until the edited copy is
// confirmed. A message that was replayed too often can be edited: the edited message may succeed. The returned task has the Diff.
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
	scan, err := claim.Scan(ctx, FromStart)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, scan.Close()) }()
	var m *Message
	want := func(read *Message) bool {
		t.Counts.Scanned++
		return read.Position == c.Position
	}
	err = scanAll(ctx, scan, want, func(found *Message) bool {
		m = found
		return false
	})
	if err == nil && m == nil {
		err = fmt.Errorf("%w at %s in %s", ErrNotFound, c.Position, t.DLQ)
	}
	if err != nil {
		return err
	}
	copied, diff, err := c.editCopy(m, t.DLQ)
	if err != nil {
		return err
	}
	t.Counts.Matched, t.Diff = 1, diff
	if err := claim.Save(ctx, *t); err != nil { // before the message is sent
		return err
	}
	long, end := wait.Longer(ctx, maxFinish)
	defer end()
	if err := errors.Join(claim.Send(long, []*Message{copied})...); err != nil {
		return err
	}
	ctx, cancel := recordContext(ctx)
	defer cancel()
	done := *t
	done.Counts.Edited = 1
	if err := claim.Settle(ctx, done, []Settlement{{Message: m, Outcome: OutcomeEdited}}); err != nil {
		return err
	}
	*t = done
	return nil
}

func (c *EditOptions) validate() error {
	var ps check.Problems
	checkWhoWhy(&ps, c.Who, c.Why)
	if c.Position == "" {
		ps.Add("Position", `""`, "it is required")
	}
	if c.Body == nil && len(c.Set)+len(c.Remove) == 0 {
		ps.Add("Body, Set, Remove", "empty", "at least one is required")
	}
	for _, h := range c.Set {
		c.checkHeader(&ps, "Set", h.Name)
	}
	for _, name := range c.Remove {
		c.checkHeader(&ps, "Remove", name)
	}
	return ps.Err()
}

// checkHeader adds a problem to ps if name is empty or a [LockedHeader].
func (c *EditOptions) checkHeader(ps *check.Problems, field, name string) {
	switch {
	case name == "":
		ps.Add(field, `""`, "must be the name of a header")
	case LockedHeader(name):
		ps.Add(field, name, "is locked: an edit must not change redeliver's headers and the id")
	}
}

// LockedHeader reports whether a header identifies the message, so that an edit must not change it:
// redeliver's own, in upper or lower case, and those that carry the id.
func LockedHeader(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, redeliver.HeaderPrefix) || strings.HasPrefix(lower, "_watermill_")
}

// editCopy returns the edited copy of m, or an error if m must not be edited.
func (c *EditOptions) editCopy(m *Message, dlq string) (*Message, *Diff, error) {
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
	edited, diff, err := c.editCopy(m, q.Info().DLQ)
	if err == nil {
		diff.Before, diff.After = m.Body, edited.Body
	}
	return diff, err
}

// apply makes the edited copy. It does not change the original.
func (c *EditOptions) apply(m *Message) (*Message, *Diff) {
	edited := *m
	edited.Headers = nil
	if c.Body != nil {
		edited.Body = c.Body
	}
	set := slices.Clone(c.Set)
	for _, h := range m.Headers {
		same := func(s Header) bool { return s.Name == h.Name }
		switch i := slices.IndexFunc(set, same); {
		case slices.Contains(c.Remove, h.Name):
		case i >= 0:
			edited.Headers = append(edited.Headers, set[i]) // at the position of the first one
			set = slices.Delete(set, i, i+1)
		case !slices.ContainsFunc(c.Set, same):
			edited.Headers = append(edited.Headers, h)
		}
	}
	edited.Headers = append(edited.Headers, set...)
	return &edited, diffOf(m, &edited)
}

// diffOf returns the record of what differs.
func diffOf(m, edited *Message) *Diff {
	diff := &Diff{Position: m.Position, ID: m.ID, BodyBefore: describeBody(m.Body), BodyAfter: describeBody(edited.Body)}
	for _, h := range slices.Concat(m.Headers, edited.Headers) {
		before, after := values(m.Headers, h.Name), values(edited.Headers, h.Name)
		known := slices.ContainsFunc(diff.Headers, func(c HeaderChange) bool { return c.Name == h.Name })
		if !known && !slices.EqualFunc(before, after, slices.Equal[[]byte]) {
			diff.Headers = append(diff.Headers, HeaderChange{Name: h.Name, Before: before, After: after})
		}
	}
	return diff
}

func values(headers []Header, name string) (all [][]byte) {
	for _, h := range headers {
		if h.Name == name {
			all = append(all, h.Value)
		}
	}
	return all
}

// describeBody returns the SHA-256 and the length of a body.
func describeBody(body []byte) string {
	if body == nil {
		return "null"
	}
	sum := sha256.Sum256(body)
	return fmt.Sprintf("sha256:%s, %d bytes", hex.EncodeToString(sum[:]), len(body))
}
