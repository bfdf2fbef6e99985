package prober

import (
	"context"
	"net/netip"
	"time"
)

// ports are TCP ports of which one is likely to let packets in on a node: the number that
// Geneve has with UDP, and the kubelet's. Nothing needs to listen: a refused connection is an
// answer, too. The second is asked only where the first is silent, since a kubelet
// complains of connections without TLS.
var ports = [...]uint16{6081, 10250}

// Ports returns the TCP ports of a host that are probed.
func Ports() []uint16 { return ports[:] }

// stagger is how long to wait for one address and port before the next is asked as well.
const stagger = 40 * time.Millisecond

// An Answer is the result of a probe.
type Answer struct {
	Alive    bool       // the host itself answered
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
			go func() { answers <- dial(ctx, to, addrs) }()
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
				return best // a host that drops packets at its other port says no more
			}
		}
	}
	return best
}
