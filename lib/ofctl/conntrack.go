package ofctl

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// A Connection is a UDP connection whose destination Open vSwitch translates: what
// the client sends to, and who answers.
type Connection struct{ To, Answers netip.AddrPort }

// udpConnection is a line of "ovs-appctl dpctl/dump-conntrack".
var udpConnection = regexp.MustCompile(`^udp,orig=\(src=[^,]+,dst=([^,]+),sport=\d+,dport=(\d+)\),reply=\(src=([^,]+),dst=[^,]+,sport=(\d+),`)

// ForgetUDP has the Open vSwitch of a run directory forget the UDP connections
// for which stale is true, in all of its zones, so that the next packet of each is
// looked at anew. It returns how many kinds of them there were: of each, all
// clients' are forgotten.
func ForgetUDP(ctx context.Context, rundir string, stale func(Connection) bool) (int, error) {
	forgotten := 0
	datapaths, err := appctl(ctx, rundir, "dpctl/dump-dps")
	if err != nil {
		return 0, fmt.Errorf("listing datapaths: %w", err)
	}
	for dp := range strings.FieldsSeq(datapaths) {
		dump, err := appctl(ctx, rundir, "dpctl/dump-conntrack", dp)
		if err != nil {
			return forgotten, fmt.Errorf("reading connections of %s: %w", dp, err)
		}
		for _, c := range translated(dump) {
			if !stale(c) {
				continue
			}
			if _, err := appctl(ctx, rundir, "dpctl/flush-conntrack", dp, tuple("dst", c.To), tuple("src", c.Answers)); err != nil {
				return forgotten, fmt.Errorf("forgetting connections to %v: %w", c.To, err)
			}
			forgotten++
		}
	}
	return forgotten, nil
}

// translated lists the connections of a dump whose destination is translated,
// each once.
func translated(dump string) (out []Connection) {
	for line := range strings.Lines(dump) {
		m := udpConnection.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		to, err := addrPort(m[1], m[2])
		answers, err2 := addrPort(m[3], m[4])
		if c := (Connection{to, answers}); err == nil && err2 == nil && to != answers && !slices.Contains(out, c) {
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

// tuple selects one side of connections, as ovs-appctl wants it.
func tuple(side string, a netip.AddrPort) string {
	family := "nw"
	if a.Addr().Is6() {
		family = "ipv6"
	}
	return fmt.Sprintf("ct_%s_%s=%v,ct_nw_proto=17,ct_tp_%s=%d", family, side, a.Addr(), side, a.Port())
}
