package ruleset

import (
	"fmt"
	"net/netip"
	"strings"
)

// A Statement is one statement or match of a rule, as in nft(8). Rules of these can be written without the program nft.
type Statement interface {
	String() string
}

// The statements.
type (
	// FromInterface matches packets that came in by an interface.
	FromInterface struct{ Name string }
	// FromHere matches packets with a source address of this host.
	FromHere struct{}
	// FromOneOf matches packets with a source address in a set of one family.
	FromOneOf struct {
		Set    string
		Family netip.Addr
	}
	// Remember adds the packet's source address to a set with a timeout, or lets it stay longer there.
	Remember struct {
		Set    string
		Family netip.Addr
	}
	// SetMark sets bits of the packet's mark.
	SetMark struct{ Bits uint32 }
	// Translate replaces the destination of packets of a protocol.
	Translate struct {
		Protocol string // "tcp"
		To       netip.AddrPort
	}
	// GoTo goes on in another chain.
	GoTo struct{ Chain string }
	// GoToAny goes on in one of several chains, each with the same probability.
	GoToAny struct{ Chains []string }
)

// String implements Statement.
func (s FromInterface) String() string { return fmt.Sprintf("iifname %q", s.Name) }

// String implements Statement.
func (FromHere) String() string { return "fib saddr type local" }

// String implements Statement.
func (s FromOneOf) String() string { return fmt.Sprintf("%s saddr @%s", ip(s.Family), s.Set) }

// String implements Statement.
func (s Remember) String() string { return fmt.Sprintf("update @%s { %s saddr }", s.Set, ip(s.Family)) }

// String implements Statement.
func (s SetMark) String() string { return fmt.Sprintf("meta mark set meta mark | %#x", s.Bits) }

// String implements Statement.
func (s Translate) String() string {
	return fmt.Sprintf("meta l4proto %s dnat to %s", s.Protocol, s.To)
}

// String implements Statement.
func (s GoTo) String() string { return "goto " + s.Chain }

// String implements Statement.
func (s GoToAny) String() string {
	var cases []string
	for i, chain := range s.Chains {
		cases = append(cases, fmt.Sprintf("%d : goto %s", i, chain))
	}
	return fmt.Sprintf("numgen random mod %d vmap { %s }", len(cases), strings.Join(cases, ", "))
}

func ip(family netip.Addr) string {
	if family.Is6() {
		return "ip6"
	}
	return "ip"
}

// NewRule returns a rule of statements.
func NewRule(comment string, statements ...Statement) Rule {
	texts := make([]string, len(statements))
	for i, s := range statements {
		texts[i] = s.String()
	}
	return Rule{Text: strings.Join(texts, " "), Comment: comment, Statements: statements}
}
