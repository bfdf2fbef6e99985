// Package flow says OpenFlow flows as values, and in the text of ovs-ofctl(8).
package flow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Port is an OpenFlow port of a bridge.
type Port int

// Local is the port of the bridge's own network device.
const Local Port = 0xfffe

// String spells p as ovs-ofctl does: a number, or LOCAL.
func (p Port) String() string {
	if p == Local {
		return "LOCAL"
	}
	return strconv.Itoa(int(p))
}

// ParsePort is the inverse of String.
func ParsePort(s string) (Port, error) {
	if s == "LOCAL" {
		return Local, nil
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is no OpenFlow port", s)
	}
	return Port(n), nil
}

// A Match says for which packets a flow is. A field that is zero is for all.
type Match struct {
	// State of the connection, as in "+est+trk". The order of the flags is that
	// of ovs-fields(7): new, est, rel, rpl, inv, trk.
	State string
	// Protocol is a shorthand of ovs-ofctl: "arp", "ip", "ipv6", "tcp", "tcp6" …
	Protocol string
	InPort   Port
	EthSrc   string // a MAC
	EthDst   string
	From, To netip.Prefix
	ToPort   uint16
	ICMPType uint8
}

// String is m as ovs-ofctl prints it.
func (m Match) String() string {
	var fields []string
	add := func(set bool, key string, value any) {
		if set {
			fields = append(fields, fmt.Sprintf("%s=%v", key, value))
		}
	}
	add(m.State != "", "ct_state", m.State)
	if m.Protocol != "" {
		fields = append(fields, m.Protocol)
	}
	add(m.InPort != 0, "in_port", m.InPort)
	add(m.EthSrc != "", "dl_src", m.EthSrc)
	add(m.EthDst != "", "dl_dst", m.EthDst)
	add(m.From.IsValid(), field(m.From, "src"), prefix(m.From))
	add(m.To.IsValid(), field(m.To, "dst"), prefix(m.To))
	add(m.ToPort != 0, "tp_dst", m.ToPort)
	add(m.ICMPType != 0, "icmp_type", m.ICMPType)
	return strings.Join(fields, ",")
}

// field is the name of an address's field: nw_src, ipv6_dst …
func field(p netip.Prefix, end string) string {
	if p.Addr().Is4() {
		return "nw_" + end
	}
	return "ipv6_" + end
}

// prefix leaves out the length of a single address.
func prefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Masked().String()
}

// Actions.
const (
	// Normal handles a packet as a switch that learns would.
	Normal = "NORMAL"
	// Drop drops it.
	Drop = "drop"
)

// Output sends packets out by ports.
func Output(ports ...Port) string {
	var out []string
	for _, p := range ports {
		if p == Local {
			out = append(out, p.String())
			continue
		}
		out = append(out, "output:"+p.String())
	}
	return strings.Join(out, ",")
}

// Learn has a switch remember behind which port the packet's sender is, as NORMAL
// does, and nothing else: it sends the packet back, which NORMAL drops.
const Learn = "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]," + Normal

// Commit remembers the packet's connection in a conntrack zone, and goes on.
func Commit(zone int, then string) string { return fmt.Sprintf("ct(commit,zone=%d),%s", zone, then) }

// Track looks the packet's connection up in a conntrack zone and goes on in a
// table.
func Track(zone, table int) string { return fmt.Sprintf("ct(table=%d,zone=%d)", table, zone) }

// A Flow is one of a bridge. Match and Actions are in the words in which
// ovs-ofctl prints them, so that what was written and what is read can be
// compared.
type Flow struct {
	Cookie          uint64
	Table, Priority int
	Match, Actions  string
}

// A Key is what a switch tells flows apart by: of two with one Key there is
// the latter.
type Key struct {
	Table, Priority int
	Match           string // its fields sorted
}

// Key returns f's.
func (f Flow) Key() Key {
	fields := strings.Split(f.Match, ",")
	slices.Sort(fields)
	return Key{f.Table, f.Priority, strings.Join(fields, ",")}
}

// String is f as ovs-ofctl's add-flow takes it.
func (f Flow) String() string {
	match := f.Match
	if match != "" {
		match = "," + match
	}
	return fmt.Sprintf("cookie=%#x,table=%d,priority=%d%s,actions=%s", f.Cookie, f.Table, f.Priority, match, f.Actions)
}

// Compare orders flows as a switch looks at them: by table, the highest
// priority first.
func Compare(a, b Flow) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Match, b.Match))
}

// defaultPriority is that of a flow that names none (ovs-ofctl(8), «Flow
// Syntax»).
const defaultPriority = 0x8000

// Parse reads a line of "ovs-ofctl --no-stats --no-names dump-flows".
func Parse(line string) (Flow, error) {
	head, actions, ok := strings.Cut(strings.TrimSpace(line), "actions=")
	if !ok {
		return Flow{}, fmt.Errorf("%q is no flow: it has no actions", line)
	}
	f := Flow{Priority: defaultPriority, Actions: actions}
	var match []string
	for _, word := range strings.FieldsFunc(head, func(r rune) bool { return r == ',' || r == ' ' }) {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "cookie":
			f.Cookie, err = strconv.ParseUint(value, 0, 64)
		case "table":
			f.Table, err = strconv.Atoi(value)
		case "priority":
			f.Priority, err = strconv.Atoi(value)
		default:
			match = append(match, word)
		}
		if err != nil {
			return Flow{}, fmt.Errorf("%q is no flow: bad %s", line, key)
		}
	}
	f.Match = strings.Join(match, ",")
	return f, nil
}

// A Mod is a change of a switch's flows. One that does not delete adds the flow,
// in place of what had its Key.
type Mod struct {
	Delete bool
	Flow   Flow
}

// String is m as "ovs-ofctl --bundle add-flows" takes it.
func (m Mod) String() string {
	if !m.Delete {
		return "add " + m.Flow.String()
	}
	match := m.Flow.Match
	if match != "" {
		match = "," + match
	}
	return fmt.Sprintf("delete_strict cookie=%#x/-1,table=%d,priority=%d%s", m.Flow.Cookie, m.Flow.Table, m.Flow.Priority, match)
}
