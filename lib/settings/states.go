package settings

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

const (
	// Serving is the state of a part without anything to wait for.
	Serving = "serving"
	// starting is that of a part before its first report.
	starting = "starting"
)

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

// Start adds parts without a report. A line with such parts only replaces another one, but is not the first.
func (s *States) Start(parts ...string) {
	if s == nil || s.show == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range parts {
		s.texts[part] = starting
	}
	if s.shown != "" {
		s.update(s.line())
	}
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
	s.update(state)
}

func (s *States) update(line string) {
	if line != s.shown {
		s.shown = line
		s.show(line)
	}
}

func (s *States) line() string {
	var all []string
	waits := false
	for _, part := range slices.Sorted(maps.Keys(s.texts)) {
		if text := s.texts[part]; text != Serving {
			all = append(all, part+": "+text)
			waits = waits || text != starting
		}
	}
	switch {
	case len(all) == 0:
		return Serving
	case !waits && s.shown == "":
		return ""
	}
	return strings.Join(all, "; ")
}
