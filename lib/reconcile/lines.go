package reconcile

// lines are queues by name that take turns. The zero value is empty.
type lines[E any] struct {
	waiting map[string][]E
	turns   []string // names of the lines with events
	count   int      // of events
}

// add appends events to a line.
func (l *lines[E]) add(name string, events []E) {
	if len(events) == 0 {
		return
	}
	if l.waiting == nil {
		l.waiting = map[string][]E{}
	}
	if len(l.waiting[name]) == 0 {
		l.turns = append(l.turns, name)
	}
	l.waiting[name] = append(l.waiting[name], events...)
	l.count += len(events)
}

// take removes the first event of the line whose turn it is. It reports false if there is none.
func (l *lines[E]) take() (first E, ok bool) {
	if l.count == 0 {
		return first, false
	}
	name, none := l.turns[0], first
	line := l.waiting[name]
	first, line[0] = line[0], none // free its memory
	l.turns, l.count = l.turns[1:], l.count-1
	if line = line[1:]; len(line) > 0 {
		l.waiting[name] = line
		l.turns = append(l.turns, name)
	} else {
		delete(l.waiting, name)
	}
	return first, true
}
