package nftables

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"ovn-k8s/lib/ruleset"
)

// An object is one in the output of "nft -j list table": the field of its kind is set.
type object struct {
	Chain    *struct{ Name string }
	Set, Map *struct {
		Name string
		Elem []json.RawMessage
	}
	Rule *struct{ Chain, Comment string }
}

// read reads our table by one command. Lists of single sets would cost a process each, and each process reads all.
func (t *Table) read(ctx context.Context) (*state, error) {
	s := &state{chains: map[string][]string{}, sets: map[string]contents{}, maps: map[string]contents{}}
	family := "ip"
	if t.family.Is6() {
		family = "ip6"
	}
	objects, err := list(ctx, "table", family, TableName)
	if err != nil {
		if strings.Contains(err.Error(), "No such file or directory") { // nft does not translate messages
			return s, nil
		}
		return nil, err
	}
	s.there = true
	for _, text := range objects {
		var o object
		if err := json.Unmarshal(text, &o); err != nil {
			return nil, fmt.Errorf("reading the output of nft: %w", err)
		}
		switch {
		case o.Chain != nil:
			s.chains[o.Chain.Name] = nil
		case o.Set != nil:
			s.sets[o.Set.Name] = contents{raw: o.Set.Elem}
		case o.Map != nil:
			s.maps[o.Map.Name] = contents{raw: o.Map.Elem}
		case o.Rule != nil:
			s.chains[o.Rule.Chain] = append(s.chains[o.Rule.Chain], o.Rule.Comment)
		}
	}
	return s, nil
}

// parse parses the elements of a set that was read. Those of a set with a timeout belong to the kernel.
func (s *state) parse(set ruleset.Set) error {
	all := s.of(set)
	c := all[set.Name]
	if len(c.raw) == 0 || set.Timeout > 0 {
		return nil
	}
	parsed := contents{elements: make([]ruleset.Element, 0, len(c.raw))}
	for _, text := range c.raw {
		e, err := parseElement(set, text)
		if err != nil {
			return fmt.Errorf("%w: element of %s: %w", ErrUnreadable, set.Name, err)
		}
		parsed.elements = append(parsed.elements, e)
	}
	all[set.Name] = parsed
	return nil
}

// parseElement parses an element: a key, or a pair of key and value. A key with a comment is within an object.
func parseElement(set ruleset.Set, text json.RawMessage) (ruleset.Element, error) {
	pair := [2]json.RawMessage{text}
	if set.IsMap() {
		if err := json.Unmarshal(text, &pair); err != nil {
			return ruleset.Element{}, err
		}
	}
	var full struct {
		Elem *struct {
			Val     json.RawMessage
			Comment string
		}
	}
	comment := ""
	if json.Unmarshal(pair[0], &full) == nil && full.Elem != nil {
		pair[0], comment = full.Elem.Val, full.Elem.Comment
	}
	key, err := values(pair[0])
	if err != nil {
		return ruleset.Element{}, err
	}
	var value []string
	if set.IsMap() {
		if value, err = values(pair[1]); err != nil {
			return ruleset.Element{}, err
		}
	}
	return set.Parse(key, value, comment)
}

// values formats an expression of libnftables-json(5) as nft does: a word, a number, a prefix, a verdict, or several
// concatenated.
func values(text json.RawMessage) ([]string, error) {
	if len(text) == 0 || text[0] != '{' {
		return []string{strings.Trim(string(text), `"`)}, nil
	}
	var e struct {
		Concat []json.RawMessage
		Prefix *struct {
			Addr netip.Addr
			Len  int
		}
		Goto *struct{ Target string }
		Drop json.RawMessage // null
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	var out []string
	for _, part := range e.Concat {
		v, err := values(part)
		if err != nil {
			return nil, err
		}
		out = append(out, v...)
	}
	switch {
	case e.Prefix != nil:
		out = []string{netip.PrefixFrom(e.Prefix.Addr, e.Prefix.Len).String()}
	case e.Goto != nil:
		out = []string{"goto " + e.Goto.Target}
	case e.Drop != nil:
		out = []string{"drop"}
	case len(out) == 0:
		return nil, fmt.Errorf("unknown expression %s", text)
	}
	return out, nil
}
