package console

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Role is a set of rights. Each role includes the rights of the one before it.
type Role uint8

// The roles. The zero Role has no rights.
const (
	// RoleViewer sees counts, causes and tasks, and of each message its id, position, times, reason and the error without
	// details. It sees no body, key or header.
	RoleViewer Role = iota + 1
	// RoleReader sees whole messages, as far as Config.Redact shows them, and may search by their content.
	RoleReader
	// RoleOperator may replay, edit and purge messages, release and cancel waiting messages, and pause the group.
	RoleOperator
)

func (r Role) String() string {
	switch r {
	case RoleViewer:
		return "viewer"
	case RoleReader:
		return "reader"
	case RoleOperator:
		return "operator"
	default:
		return "nobody"
	}
}

// ParseRole parses the name of a role.
func ParseRole(name string) (Role, error) {
	for r := RoleViewer; r <= RoleOperator; r++ {
		if name == r.String() {
			return r, nil
		}
	}
	return 0, fmt.Errorf("there is no role %q: it is viewer, reader or operator", name)
}

// Actor is a user.
type Actor struct {
	// Name appears in the audit record and in the history of tasks. At most 200 bytes, without control characters.
	Name string
	// Role is the role for all DLQs.
	Role Role
	// Rights are roles for some DLQs. If several cover a DLQ, the highest role counts. A DLQ for which a user has no
	// role is hidden from them. Default: none.
	Rights []Right

	remoteAddr   string // the remote address, for the record
	forwardedFor string // the addresses that the proxy names
}

// Right is a role for some DLQs.
type Right struct {
	Role Role
	// DLQs is a [path.Match] pattern for names of DLQs, such as "orders.*". A pattern with a slash matches the broker's
	// name and the DLQ's name, such as "kafka-eu/*". Default: all.
	DLQs string
}

func (r *Right) covers(q *openQueue) bool {
	if r.DLQs == "" {
		return true
	}
	name := q.info.DLQ
	if strings.Contains(r.DLQs, "/") {
		name = q.cluster + "/" + name
	}
	ok, err := path.Match(r.DLQs, name)
	return ok && err == nil
}

// isValid reports whether the right has a known role and a valid pattern.
func (r *Right) isValid() bool {
	_, err := path.Match(r.DLQs, "")
	return err == nil && r.Role >= RoleViewer && r.Role <= RoleOperator
}

// forQueue returns the actor with their role for a DLQ. The zero Role means none.
func (a Actor) forQueue(q *openQueue) Actor {
	for i := range a.Rights {
		if r := &a.Rights[i]; r.Role > a.Role && r.covers(q) {
			a.Role = r.Role
		}
	}
	a.Rights = nil
	return a
}

// seesAll reports whether the actor has a role for every DLQ.
func (a Actor) seesAll() bool {
	return a.Role != 0 || slices.ContainsFunc(a.Rights, func(r Right) bool { return r.DLQs == "" || r.DLQs == "*" })
}

// withHighestRole returns the actor with their highest role for any DLQ.
func (a Actor) withHighestRole() Actor {
	for _, r := range a.Rights {
		a.Role = max(a.Role, r.Role)
	}
	a.Rights = nil
	return a
}

// withLowestRole returns the actor with Role, or Viewer if it is 0.
func (a Actor) withLowestRole() Actor {
	if a.Role == 0 && len(a.Rights) > 0 {
		a.Role = RoleViewer
	}
	a.Rights = nil
	return a
}

// describeRights describes the rights of an actor in a few words.
func describeRights(a Actor) string {
	if slices.ContainsFunc(a.Rights, func(r Right) bool { return r.DLQs != "" }) {
		return a.withHighestRole().Role.String() + " of some"
	}
	return a.withHighestRole().Role.String()
}

// maxActor is the maximum length of a name in bytes. A name may come from a proxy's header.
const maxActor = 200

// isValid reports whether an actor has valid rights and a name that can be recorded.
func (a *Actor) isValid() bool {
	if a.Role == 0 && len(a.Rights) == 0 || a.Role > RoleOperator || slices.ContainsFunc(a.Rights, func(r Right) bool { return !r.isValid() }) {
		return false
	}
	return strings.TrimSpace(a.Name) != "" && len(a.Name) <= maxActor &&
		utf8.ValidString(a.Name) && !strings.ContainsFunc(a.Name, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) })
}

// Action is a request of a user.
type Action string

// The actions, as the audit record names them.
const (
	ActionLogin  Action = "login"  // a refused login; only in the record
	ActionLook   Action = "look"   // counts, causes, tasks
	ActionList   Action = "list"   // messages without their content
	ActionSearch Action = "search" // search by the content of messages
	ActionReveal Action = "reveal" // one whole message
	ActionReplay Action = "replay"
	ActionPause  Action = "pause"
	ActionCancel Action = "cancel"
	ActionResume Action = "resume"
	ActionEdit   Action = "edit"
	ActionPurge  Action = "purge"
	// ActionRelease and ActionCancelWaiting send a command about waiting messages to the group's consumers.
	ActionRelease       Action = "release"
	ActionCancelWaiting Action = "cancel waiting"
	// ActionPauseGroup and ActionResumeGroup pause and resume the group whose messages the DLQ has.
	ActionPauseGroup  Action = "pause group"
	ActionResumeGroup Action = "resume group"
)

// minRole returns the lowest role that may perform an action.
func (a Action) minRole() Role {
	switch a {
	case ActionLook, ActionList:
		return RoleViewer
	case ActionSearch, ActionReveal:
		return RoleReader
	default:
		return RoleOperator
	}
}

// isChange reports whether an action changes anything. A read-only console refuses such actions.
func (a Action) isChange() bool { return a.minRole() >= RoleOperator }

// DeniedError reports that a user may not perform an action.
type DeniedError struct {
	Action   Action
	Actor    Actor
	ReadOnly bool // the console is read-only
}

func (e *DeniedError) Error() string {
	if e.ReadOnly {
		return fmt.Sprintf("%s is refused: this console is read-only", e.Action)
	}
	return fmt.Sprintf("%s needs the role %s; the role of %s is %s", e.Action, e.Action.minRole(), e.Actor.Name, describeRights(e.Actor))
}
