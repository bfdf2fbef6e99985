package prober

import (
	"context"
	"net/netip"
	"time"
)

// ports are two TCP ports, one of them likely to be open in a node's firewall: Geneve's number, and the kubelet's. A
// refused connection counts as an answer, so nothing needs to listen. The second port is tried only if the first is
// silent, because a kubelet logs connections without TLS.
var ports = [...]uint16{6081, 10250}

// Ports returns the TCP ports used for probes.
func Ports() []uint16 { return ports[:] }

// stagger is the delay before the next address and port is tried in parallel.
const stagger = 40 * time.Millisecond

// An Answer is the result of a probe.
type Answer struct {
	Alive    bool       // the host itself answered
	At       netip.Addr // at this address
	Here     bool       // and is this host: its networks may be cut off
	Rejector netip.Addr // or else the firewall that rejected the probe
}

// silent reports whether nothing came back.
func (a Answer) silent() bool { return a == Answer{} }

// ask probes one host at its addresses. A host without a known address counts as alive.
func ask(ctx context.Context, addrs []netip.Addr) Answer {
	if len(addrs) == 0 {
		return Answer{Alive: true}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	answers := make(chan Answer, len(addrs)*len(ports))
	var best Answer
	for asked, done := 0, 0; done < cap(answers); {
		if asked < cap(answers) {
			to := netip.AddrPortFrom(addrs[asked%len(addrs)], ports[asked/len(addrs)])
			go func() {
				a := dial(ctx, to, addrs)
				if a.Alive {
					a.At, a.Here = to.Addr(), here(to)
				}
				answers <- a
			}()
			asked++
		}
		var next <-chan time.Time
		if asked < cap(answers) || !best.silent() {
			next = time.After(stagger)
		}
		select {
		case <-ctx.Done():
			return best
		case a := <-answers:
			if a.Alive {
				return a
			}
			if done++; !a.silent() {
				best = a
			}
		case <-next:
			if asked == cap(answers) && !best.silent() {
				return best // a host that drops packets to its other port too stays silent
			}
		}
	}
	return best
}
