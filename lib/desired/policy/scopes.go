package policy

// A scope is the search space of a pod selector: one namespace, or all namespaces
// with matching labels.
type scope struct {
	ns         *namespace // nil: the matching namespaces
	matches    labelSelector
	namespaces map[*namespace]bool // matching
	groups     index[*group]
	size       int // groups
}

// text names the scope: unambiguous, since no namespace has a space in its name.
func (s *scope) text() string {
	switch {
	case s.ns != nil:
		return "in namespace " + s.ns.name
	case len(s.matches.needs) == 0:
		return "in all namespaces"
	}
	return "in namespaces with " + s.matches.String()
}

func (x *Index) scopeOf(from peer, n *namespace) *scope {
	if !from.everywhere {
		if n.own == nil {
			n.own = &scope{ns: n}
		}
		return n.own
	}
	text := from.namespaces.String()
	s := x.scopes[text]
	if s == nil {
		s = &scope{matches: from.namespaces, namespaces: map[*namespace]bool{}}
		x.scopes[text] = s
		x.selecting.add(s.matches, s)
		x.eachMatching(s.matches, func(n *namespace) {
			s.namespaces[n] = true
			n.matching = append(n.matching, s)
		})
	}
	return s
}

func (x *Index) forgetScope(s *scope) {
	if s.ns != nil {
		s.ns.own = nil
		return // the caller removes the namespace if it is empty
	}
	delete(x.scopes, s.matches.String())
	x.selecting.remove(s.matches, s)
	for n := range s.namespaces {
		n.matching = without(n.matching, s)
	}
}

// eachMatching calls f with each namespace whose labels s matches.
func (x *Index) eachMatching(s labelSelector, f func(*namespace)) {
	try := func(n *namespace) {
		if n.known && s.matches(n.labels) {
			f(n)
		}
	}
	if byLabel, _ := s.places(); byLabel != nil {
		for _, l := range byLabel {
			for _, n := range x.labelled[l] {
				try(n)
			}
		}
		return
	}
	for _, n := range x.namespaces {
		try(n)
	}
}

// eachClass calls f with each class of the namespaces of a scope.
func (x *Index) eachClass(s *scope, f func(*class)) {
	if s.ns != nil {
		for _, c := range s.ns.classes {
			f(c)
		}
		return
	}
	for n := range s.namespaces {
		for _, c := range n.classes {
			f(c)
		}
	}
}
