package settings

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Serving is the state of a part that waits for nothing.
const Serving = "serving"

// States are the states of the parts of a process, shown in one line.
type States struct {
	show func(line string)

	mu    sync.Mutex // guards the fields below
	texts map[string]string
	shown string
}

// NewStates returns States that call show with each new line; nil: with none.
func NewStates(show func(line string)) *States {
	return &States{show: show, texts: map[string]string{}}
}

// Set replaces the state of a part. The line has the parts that do not serve, such as "gateway: waiting: …; node: waiting: …",
// or is Serving. A state of the part "" is shown alone, and forgotten. nil shows nothing.
func (s *States) Set(part, state string) {
	if s == nil || s.show == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state, _, _ = strings.Cut(state, "\n")
	if part != "" {
		s.texts[part] = state
		state = s.line()
	}
	if state != s.shown {
		s.shown = state
		s.show(state)
	}
}

func (s *States) line() string {
	var all []string
	for _, part := range slices.Sorted(maps.Keys(s.texts)) {
		if s.texts[part] != Serving {
			all = append(all, part+": "+s.texts[part])
		}
	}
	if len(all) == 0 {
		return Serving
	}
	return strings.Join(all, "; ")
}
