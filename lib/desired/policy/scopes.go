package policy

import (
	"maps"
	"slices"
)

// A scope is the search space of a pod selector: one namespace, or all namespaces
// with matching labels. A refused scope has the subjects of the policies beyond a limit: their groups have no port groups, but
// share one for each direction.
type scope struct {
	ns         *namespace // nil: the matching namespaces
	refused    bool
	matches    labelSelector
	namespaces map[*namespace]bool // matching
	groups     index[*group]
	size       int // groups
}

// text names the scope: unambiguous, since no namespace has a space in its name.
func (s *scope) text() string {
	switch {
	case s.refused:
		return "of policies beyond a limit in namespace " + s.ns.name
	case s.ns != nil:
		return "in namespace " + s.ns.name
	case len(s.matches.needs) == 0:
		return "in all namespaces"
	}
	return "in namespaces with " + s.matches.String()
}

// spaces are the namespaces, and the scopes of selectors.
type spaces struct {
	all       map[string]*namespace
	labelled  map[label][]*namespace
	scopes    map[string]*scope // of selectors of namespaces, by their text
	selecting index[*scope]     // the same, by their requirements
}

func newSpaces() *spaces {
	return &spaces{all: map[string]*namespace{}, labelled: map[label][]*namespace{}, scopes: map[string]*scope{}}
}

func (x *spaces) namespace(name string) *namespace {
	n := x.all[name]
	if n == nil {
		n = &namespace{name: name, classes: map[string]*class{}}
		x.all[name] = n
	}
	return n
}

func (x *spaces) forgetIfEmpty(n *namespace) {
	if !n.known && len(n.classes) == 0 && n.own == nil && len(n.policies) == 0 {
		delete(x.all, n.name)
	}
}

// relabel sets the labels of a namespace, and the scopes that it is in.
func (x *spaces) relabel(n *namespace, known bool, l labels) {
	for _, old := range n.labels {
		drop(x.labelled, old, n)
	}
	n.known, n.labels = known, l
	for _, now := range l {
		x.labelled[now] = append(x.labelled[now], n)
	}
	for _, s := range n.matching {
		delete(s.namespaces, n)
	}
	n.matching = nil
	if !known {
		return
	}
	x.selecting.candidates(l, func(s *scope) {
		if s.matches.matches(l) {
			n.matching = append(n.matching, s)
			s.namespaces[n] = true
		}
	})
}

func (x *spaces) scopeOf(from peer, n *namespace) *scope {
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

// refusedIn is the refused scope of a namespace.
func (x *spaces) refusedIn(n *namespace) *scope {
	if n.refused == nil {
		n.refused = &scope{ns: n, refused: true}
	}
	return n.refused
}

func (x *spaces) forgetScope(s *scope) {
	if s.ns != nil {
		if s.refused {
			s.ns.refused = nil
		} else {
			s.ns.own = nil
		}
		return // the caller removes the namespace if it is empty
	}
	delete(x.scopes, s.matches.String())
	x.selecting.remove(s.matches, s)
	for n := range s.namespaces {
		n.matching = without(n.matching, s)
	}
}

// compact frees the memory of deleted entries.
func (x *spaces) compact() {
	x.all, x.labelled, x.scopes = maps.Collect(maps.All(x.all)), maps.Collect(maps.All(x.labelled)), maps.Collect(maps.All(x.scopes))
	for _, n := range x.all {
		n.classes = maps.Collect(maps.All(n.classes))
		for _, c := range n.classes {
			c.pods = slices.Clip(slices.Clone(c.pods))
		}
	}
}

// eachMatching calls f with each namespace whose labels s matches.
func (x *spaces) eachMatching(s labelSelector, f func(*namespace)) {
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
	for _, n := range x.all {
		try(n)
	}
}

// eachClass calls f with each class of the namespaces of a scope.
func (s *scope) eachClass(f func(*class)) {
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

// fewer reports whether a scope has fewer than n classes.
func (s *scope) fewer(n int) bool {
	if s.ns != nil {
		return len(s.ns.classes) < n
	}
	classes := 0
	for ns := range s.namespaces {
		if classes += len(ns.classes); classes >= n {
			return false
		}
	}
	return classes < n
}

// has reports whether pods of n are in the scope.
func (s *scope) has(n *namespace) bool { return s.ns == n || s.ns == nil && s.namespaces[n] }
