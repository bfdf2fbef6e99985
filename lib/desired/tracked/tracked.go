// Package tracked tells which UDP connections in the host's conntrack table are stale.
package tracked

import (
	"maps"
	"net/netip"
	"slices"
)

// A Table is what the host's conntrack table may hold for connections of UDP, of one family. See Equal.
type Table struct {
	// Answers are the allowed addresses of answers, by those of frontends and hostPorts. The value says whether the host's rules
	// lead there: other addresses do not count for Equal.
	Answers map[netip.AddrPort]map[netip.AddrPort]bool
	// Translated: rules of this host lead packets to some of them.
	Translated bool
	Addrs      []netip.Addr   // of the host
	Pods       []netip.Prefix // of this node's pods
}

// Keep makes t count the addresses that counted before and are still allowed: connections there go on, though the rules lead new
// ones elsewhere. Before the first time all count, since rules of an earlier process may have led there.
func (t Table) Keep(before Table) {
	for to, good := range t.Answers {
		for a := range good {
			good[a] = good[a] || before.Answers == nil || before.Answers[to][a]
		}
	}
}

// Join returns t with all that counted before, also if it is gone now: Keep then knows it when it returns.
func (t Table) Join(before Table) Table {
	t.Answers = maps.Clone(t.Answers)
	for to, good := range before.Answers {
		all := maps.Clone(good)
		maps.DeleteFunc(all, func(_ netip.AddrPort, ours bool) bool { return !ours })
		maps.Copy(all, t.Answers[to])
		t.Answers[to] = all
	}
	return t
}

// Equal reports whether the same connections by rules of this host are stale.
func (t Table) Equal(o Table) bool {
	return maps.EqualFunc(t.Answers, o.Answers, sameOfHost) && slices.Equal(t.Addrs, o.Addrs) && slices.Equal(t.Pods, o.Pods)
}

// sameOfHost reports whether the host's rules lead to the same addresses.
func sameOfHost(was, now map[netip.AddrPort]bool) bool {
	for _, all := range [][2]map[netip.AddrPort]bool{{was, now}, {now, was}} {
		for a, ours := range all[0] {
			if ours && !all[1][a] {
				return false
			}
		}
	}
	return true
}

// Stale reports whether a connection is stale. One to a frontend or hostPort is, unless an address that may answer does; one to any
// other port of the host's addresses is, if a pod of this node answers.
func (t Table) Stale(to, answers netip.AddrPort) bool {
	if good, known := t.Answers[to]; known {
		_, allowed := good[answers]
		return !allowed
	}
	here := func(p netip.Prefix) bool { return p.Contains(answers.Addr()) }
	return slices.Contains(t.Addrs, to.Addr()) && !slices.Contains(t.Addrs, answers.Addr()) && slices.ContainsFunc(t.Pods, here)
}
