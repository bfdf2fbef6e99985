// Package prober finds out whether hosts are alive, by TCP connections to them.
//
// BFD of OVN would run between gateway routers: each gateway would need routes to, and send packets to, several
// others, with no rule for two that accuse each other; and the userspace datapath of Open vSwitch 3.1 aborts (an
// assertion in conntrack) a minute after the first BFD packet. Raising nb_cfg and waiting for each ovn-controller's
// answer in Chassis_Private makes ovn-northd recompute everything and every host write. Probes cost the databases
// nothing.
package prober

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A host is dead after this many misses in a row, one each confirmInterval, without any answer. The first missed
// probe is sent at most Interval after the host's end, so detection takes 1.6 s at most. A late answer counts until
// the last miss.
const (
	confirmInterval = 200 * time.Millisecond
	misses          = 6
	probeTimeout    = misses * confirmInterval
	// A dead host is alive again after aliveAfter answers in a row, one each Interval.
	aliveAfter = 2
	// Probes are ignored if our own timers were late by more than lateness: this process did not run.
	lateness = confirmInterval
	// metLately is two intervals, and ends before the last two misses: so all addresses are probed before a verdict.
	metLately = (misses - 2) * confirmInterval
	// rejectedLately is several times the interval between two ICMP errors of a firewall: see limited.
	rejectedLately = 5 * time.Second
	// hearing is the time for a firewall to reject a probe of one host more.
	hearing = 3 * time.Second
)

// Interval is the time between two probes of each of n hosts. All together, at most 1 000 probes are sent a second.
func Interval(n int) time.Duration {
	return max(400*time.Millisecond, time.Duration(n)*time.Millisecond)
}

// A Prober probes hosts if there are at least two: the health of a single one has no consequences.
type Prober struct {
	changed func()                                     // must not block
	probe   func(context.Context, []netip.Addr) Answer // replaced by tests
	mu      sync.Mutex                                 // guards the fields below
	targets map[string]*target                         // by name
	reached int                                        // number of targets with an answer at a tunnel address
	met     time.Time                                  // when another host answered there
	// rejected has the time of each firewall's last rejection.
	rejected map[netip.Addr]time.Time
	renewed  chan struct{} // holds one token after targets were added or removed
}

// A Host has the addresses to probe.
type Host struct {
	Tunnels []netip.Addr // packets for its gateway go there
	// Others are probed, too, while the network of the tunnels may be out of this process's reach: a firewall may drop probes
	// there. Later they count for nothing: a dead host's address may have moved to another one.
	Others []netip.Addr
}

// A target is one host.
type target struct {
	Host
	answered  netip.Addr // the tunnel address of the last answer
	unhealthy bool
	row       int        // misses in a row; for an unhealthy host, answers in a row
	rejector  netip.Addr // the firewall with a rejection since the last answer; invalid: none
	since     time.Time  // the time of the first probe
	heard     bool       // there was an answer or a rejection
}

// New returns a Prober. It calls changed after each change of Unhealthy or Rejected.
func New(changed func()) *Prober {
	return &Prober{changed: changed, probe: ask, targets: map[string]*target{}, rejected: map[netip.Addr]time.Time{}, renewed: make(chan struct{}, 1)}
}

// Watch sets the hosts to probe, by name. unhealthy is the initial state of a new host.
func (p *Prober) Watch(hosts map[string]Host, unhealthy func(name string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.targets)
	maps.DeleteFunc(p.targets, func(name string, _ *target) bool { _, ok := hosts[name]; return !ok })
	renewed := len(p.targets) != before
	for name, h := range hosts {
		t := p.targets[name]
		if t == nil {
			t, renewed = &target{unhealthy: unhealthy(name), since: time.Now()}, true
			p.targets[name] = t
		}
		t.Host = h
	}
	p.count()
	if renewed {
		select {
		case p.renewed <- struct{}{}:
		default:
		}
	}
}

// Unhealthy returns the hosts that do not answer.
func (p *Prober) Unhealthy() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]bool{}
	for name, t := range p.targets {
		if t.unhealthy {
			out[name] = true
		}
	}
	return out
}

// Rejected returns hosts with probes rejected by a firewall in between, and its address. The state of these hosts is
// unknown; they count as healthy while it rejects probes.
func (p *Prober) Rejected() map[string]netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]netip.Addr{}
	for name, t := range p.targets {
		if t.rejector.IsValid() {
			out[name] = t.rejector
		}
	}
	return out
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	running := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for {
		names := p.names()
		for name, stop := range running {
			if !names[name] {
				stop()
				delete(running, name)
			}
		}
		for name := range names {
			if running[name] == nil {
				following, stop := context.WithCancel(ctx)
				running[name] = stop
				wg.Go(func() { p.follow(following, name) })
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.renewed:
		}
	}
}

// names returns the hosts to probe.
func (p *Prober) names() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := map[string]bool{}
	if len(p.targets) < 2 {
		return names
	}
	for name := range p.targets {
		names[name] = true
	}
	return names
}

// follow probes one host each Interval until ctx ends, and after a miss each confirmInterval.
func (p *Prober) follow(ctx context.Context, name string) {
	// The first pause differs, so that hosts are not probed all at once. Before its end all have answered once: see addrs.
	spread := (1 + rand.Float64()) / 2
	for ctx.Err() == nil {
		began := time.Now()
		p.round(ctx, name)
		interval := time.Duration(spread * float64(p.interval(name)))
		spread = 1
		pause(ctx, interval-time.Since(began))
	}
}

// round sends probes until one is answered or, for an unhealthy host, missed.
func (p *Prober) round(ctx context.Context, name string) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	answers := make(chan Answer)
	for {
		sent, addrs := time.Now(), p.addrs(name)
		wg.Go(func() {
			if a := p.probe(ctx, addrs); !a.silent() {
				select {
				case answers <- a:
				case <-ctx.Done():
				}
			}
		})
		select {
		case <-ctx.Done():
			return
		case a := <-answers:
			p.answered(name, a)
			return
		case <-time.After(confirmInterval):
			if p.missed(name, time.Since(sent) > confirmInterval+lateness) {
				return
			}
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// interval is the time between two probes of a host. Behind a rejecting firewall it is longer: nothing will be known, and the
// firewall has rejections left for other hosts.
func (p *Prober) interval(name string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	interval := Interval(len(p.targets))
	if t := p.targets[name]; t != nil && t.rejector.IsValid() && !t.unhealthy {
		interval *= misses
	}
	return interval
}

// addrs are the addresses of a host that count: only those of its tunnels once one of them has answered. A process that starts
// after the host's end does not know. Then answers of most hosts there count: with fewer, it may be a liar's. But if
// no other host answers there now, the network of the tunnels may be cut off from this host, and all addresses count.
func (p *Prober) addrs(name string) []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch t := p.targets[name]; {
	case t == nil:
		return nil
	case len(t.Tunnels) > 0 && (t.reached() || 2*p.reached > len(p.targets)) && time.Since(p.met) < metLately:
		return t.Tunnels
	default:
		return slices.Concat(t.Tunnels, t.Others)
	}
}

// reached reports whether one of the tunnels' addresses has answered.
func (t *target) reached() bool { return slices.Contains(t.Tunnels, t.answered) }

// count counts the hosts reached.
func (p *Prober) count() {
	p.reached = 0
	for _, t := range p.targets {
		if t.reached() {
			p.reached++
		}
	}
}

func (p *Prober) answered(name string, a Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	if t == nil {
		return
	}
	if slices.Contains(t.Tunnels, a.At) {
		if !a.Here {
			p.met = time.Now()
		}
		if t.answered != a.At {
			t.answered = a.At
			p.count()
		}
	}
	if !a.Alive {
		maps.DeleteFunc(p.rejected, func(_ netip.Addr, at time.Time) bool { return time.Since(at) > rejectedLately })
		p.rejected[a.Rejector] = time.Now()
	}
	changed := t.rejector.IsValid() == a.Alive
	t.rejector, t.heard = a.Rejector, true
	switch {
	case !t.unhealthy:
		t.row = 0
	case a.Alive && t.row+1 < aliveAfter:
		t.row++
	default:
		t.unhealthy, t.row, changed = false, 0, true
	}
	if changed {
		p.changed()
	}
}

// limited reports whether silence means nothing: firewalls send few ICMP errors, Linux one a second to us for all hosts behind it
// (icmp(7), icmp_ratelimit). So it takes long until each host was rejected once, and others count as rejected until then.
func (p *Prober) limited(t *target) bool {
	rejected := func(t *target) bool {
		return t.rejector.IsValid() && time.Since(p.rejected[t.rejector]) < rejectedLately
	}
	if t.heard {
		return rejected(t)
	}
	all := 0
	for _, o := range p.targets {
		if rejected(o) {
			all++
		}
	}
	return time.Since(t.since) < time.Duration(all)*hearing
}

// missed records a missing answer; late means that this process did not run, and the probe is ignored. It reports
// whether further probes can wait.
func (p *Prober) missed(name string, late bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	switch {
	case t == nil:
		return true
	case t.unhealthy || late:
		t.row = 0
	case t.heard && p.limited(t):
		t.row = 0
		return true
	case t.row+1 < misses:
		t.row++
	case !t.heard && p.limited(t):
		t.row = 0
	default:
		t.unhealthy, t.row = true, 0
		p.changed()
	}
	return t.unhealthy
}
