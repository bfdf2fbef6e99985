package nb

import (
	"fmt"
	"strings"
)

// OneOf is the right side of "==" in a match: a value, or a set of several.
func OneOf[T any](values []T) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = fmt.Sprint(v)
	}
	if len(words) == 1 {
		return words[0]
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// MatchPorts matches some ports of each protocol of Kubernetes, as field "src" or "dst", such as
// "(tcp.src == 8080 || udp.src == {53, 54})". It is "" if there are none.
func MatchPorts[P ~string](field string, ports map[P][]uint16) string {
	var terms []string
	for _, protocol := range []P{"TCP", "UDP", "SCTP"} {
		if of := ports[protocol]; len(of) > 0 {
			terms = append(terms, fmt.Sprintf("%s.%s == %s", strings.ToLower(string(protocol)), field, OneOf(of)))
		}
	}
	if len(terms) > 1 {
		return "(" + strings.Join(terms, " || ") + ")"
	}
	return strings.Join(terms, "")
}
