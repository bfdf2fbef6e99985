package nbsync

import (
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/nb"
)

// A Change is the creation, change or deletion of one row by a plan.
type Change struct {
	Unit   nb.Unit
	Action Action
	Table  string
	ID     string
	row    *nb.Row  // created
	detail []string // changed: each column with its old and new value
	moved  bool     // changed: only its parents or its references
}

// An Action is the kind of a Change.
type Action string

// The kinds of changes.
const (
	Create Action = "created"
	Update Action = "changed"
	Delete Action = "deleted"
)

// String formats the change for a person: one line for each detail, starting with +, ~ or -.
func (c Change) String() string {
	switch c.Action {
	case Create:
		return "+ " + c.row.String()
	case Delete:
		return fmt.Sprintf("- %s %s", c.Table, c.ID)
	}
	lines := make([]string, len(c.detail))
	for i, d := range c.detail {
		lines[i] = fmt.Sprintf("~ %s %s %s", c.Table, c.ID, d)
	}
	return strings.Join(lines, "\n")
}

// tell logs the changes of a plan in order: a line for each row, but one line for all rows moved to the same
// parent, such as ports put into the group of a policy.
func tell(log *logrus.Entry, changes []Change, kind func(table string) string) {
	type move struct{ table, detail string }
	moves := map[move]int{}
	for _, c := range changes {
		if c.moved {
			for _, d := range c.detail {
				moves[move{c.Table, d}]++
			}
		}
	}
	for _, c := range changes {
		log := log.WithField("unit", c.Unit)
		if !c.moved {
			log.Infof("%s %s %s", c.Action, kind(c.Table), c.ID)
			continue
		}
		for _, d := range c.detail {
			switch m := (move{c.Table, d}); {
			case moves[m] == 1:
				log.Infof("%s %s %s: %s", c.Action, kind(c.Table), c.ID, d)
			case moves[m] > 1:
				log.Infof("%s %d %ss, %s first: %s", c.Action, moves[m], kind(c.Table), c.ID, d)
				delete(moves, m)
			}
		}
	}
}
