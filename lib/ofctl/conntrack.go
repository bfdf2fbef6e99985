package ofctl

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A Connection is a UDP connection with DNAT by Open vSwitch: its original destination, and the endpoint answering
// it.
type Connection struct{ To, Answers netip.AddrPort }

// A tracked is a Connection in a conntrack zone.
type tracked struct {
	Connection
	zone string
}

// udpConnection matches a line of "ovs-appctl dpctl/dump-conntrack". Zone 0 is not printed, and not matched: OVN does not use it, and
// on the kernel's datapath it is the host's.
var udpConnection = regexp.MustCompile(`^udp,orig=\(src=[^,]+,dst=([^,]+),sport=\d+,dport=(\d+)\),reply=\(src=([^,]+),dst=[^,]+,sport=(\d+),[^)]*\),zone=(\d+)`)

// ForgetUDP deletes UDP connections matched by stale from the conntrack zones of the Open vSwitch in rundir, so that
// their next packets are balanced again. It returns the number of distinct (connection, zone) pairs; the connections
// of all clients count as one. There must be one datapath: Open vSwitch 3.1 accepts no datapath name together with a
// tuple.
func ForgetUDP(ctx context.Context, rundir string, stale func(Connection) bool) (int, error) {
	dump, err := appctl(ctx, rundir, "dpctl/dump-conntrack")
	if err != nil {
		return 0, fmt.Errorf("reading connections: %w", err)
	}
	forgotten := 0
	for _, c := range translated(dump) {
		if !stale(c.Connection) {
			continue
		}
		if _, err := appctl(ctx, rundir, "dpctl/flush-conntrack", "zone="+c.zone, tuple("dst", c.To), tuple("src", c.Answers)); err != nil {
			return forgotten, fmt.Errorf("forgetting connections to %v: %w", c.To, err)
		}
		forgotten++
	}
	return forgotten, nil
}

// FlushUDP deletes the UDP connections from c.To to c.Answers in all conntrack zones. An unspecified address of c.To
// matches any address. It needs no dump of connections.
func FlushUDP(ctx context.Context, rundir string, c Connection) error {
	if _, err := appctl(ctx, rundir, flushUDP(c)...); err != nil {
		return fmt.Errorf("forgetting connections to %v that %v answers: %w", c.To, c.Answers, err)
	}
	return nil
}

// flushUDP is the command of FlushUDP for ovs-vswitchd.
func flushUDP(c Connection) []string {
	to := tuple("dst", c.To)
	if c.To.Addr().IsUnspecified() {
		to = fmt.Sprintf("ct_nw_proto=17,ct_tp_dst=%d", c.To.Port())
	}
	return []string{"dpctl/flush-conntrack", to, tuple("src", c.Answers)}
}

// translated lists the connections with DNAT in a dump, without duplicates.
func translated(dump string) (out []tracked) {
	for line := range strings.Lines(dump) {
		m := udpConnection.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		to, err := addrPort(m[1], m[2])
		answers, err2 := addrPort(m[3], m[4])
		if c := (tracked{Connection{to, answers}, m[5]}); err == nil && err2 == nil && to != answers && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

func addrPort(addr, port string) (netip.AddrPort, error) {
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	return netip.ParseAddrPort(addr + ":" + port)
}

// tuple formats one side of a connection for ovs-appctl.
func tuple(side string, a netip.AddrPort) string {
	family := "nw"
	if a.Addr().Is6() {
		family = "ipv6"
	}
	return fmt.Sprintf("ct_%s_%s=%v,ct_nw_proto=17,ct_tp_%s=%d", family, side, a.Addr(), side, a.Port())
}
