// Package flow represents OpenFlow flows as values, and in the syntax of ovs-ofctl(8).
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

// String formats p as ovs-ofctl does: a number, or LOCAL.
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
		return 0, fmt.Errorf("%q is not an OpenFlow port", s)
	}
	return Port(n), nil
}

// A Match selects packets. A zero field matches all packets.
type Match struct {
	// State of the connection, as in "+est+trk". The order of the flags is the order of ovs-fields(7): new, est, rel,
	// rpl, inv, trk.
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

// String formats m as ovs-ofctl does.
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

// field is the name of an address field: nw_src, ipv6_dst …
func field(p netip.Prefix, end string) string {
	if p.Addr().Is4() {
		return "nw_" + end
	}
	return "ipv6_" + end
}

// prefix omits the length of a single address.
func prefix(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.Masked().String()
}

// Actions.
const (
	// Normal handles a packet like a learning switch.
	Normal = "NORMAL"
	// Drop drops the packet.
	Drop = "drop"
)

// Output sends packets out of ports.
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

// Learn makes the switch learn the port of the packet's sender, and nothing else: the packet is addressed to its
// sender, and NORMAL drops it.
const Learn = "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]," + Normal

// Commit commits the packet's connection to a conntrack zone, then runs the actions in then.
func Commit(zone int, then string) string { return fmt.Sprintf("ct(commit,zone=%d),%s", zone, then) }

// Track looks the packet's connection up in a conntrack zone and continues in a table.
func Track(zone, table int) string { return fmt.Sprintf("ct(table=%d,zone=%d)", table, zone) }

// A Flow is a flow of a bridge. Match and Actions are spelled as ovs-ofctl prints them, so that desired and actual
// flows can be compared.
type Flow struct {
	Cookie          uint64
	Table, Priority int
	Match, Actions  string
}

// A Key identifies a flow in a switch: a new flow replaces the one with its Key.
type Key struct {
	Table, Priority int
	Match           string // fields sorted
}

// Key returns the key of f.
func (f Flow) Key() Key {
	fields := strings.Split(f.Match, ",")
	slices.Sort(fields)
	return Key{f.Table, f.Priority, strings.Join(fields, ",")}
}

// String formats f for "ovs-ofctl add-flow".
func (f Flow) String() string {
	match := f.Match
	if match != "" {
		match = "," + match
	}
	return fmt.Sprintf("cookie=%#x,table=%d,priority=%d%s,actions=%s", f.Cookie, f.Table, f.Priority, match, f.Actions)
}

// Compare orders flows by table, then by falling priority.
func Compare(a, b Flow) int {
	return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(b.Priority, a.Priority), strings.Compare(a.Match, b.Match))
}

// defaultPriority applies to flows without a priority (ovs-ofctl(8), «Flow Syntax»).
const defaultPriority = 0x8000

// Parse reads a line of "ovs-ofctl --no-stats --no-names dump-flows".
func Parse(line string) (Flow, error) {
	head, actions, ok := strings.Cut(strings.TrimSpace(line), "actions=")
	if !ok {
		return Flow{}, fmt.Errorf("%q is not a flow: actions missing", line)
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
			return Flow{}, fmt.Errorf("%q is not a flow: bad %s", line, key)
		}
	}
	f.Match = strings.Join(match, ",")
	return f, nil
}

// A Mod adds a flow, replacing the flow with the same Key, or deletes it.
type Mod struct {
	Delete bool
	Flow   Flow
}

// String formats m for "ovs-ofctl --bundle add-flows".
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
