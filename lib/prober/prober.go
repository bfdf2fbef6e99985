// Package prober finds out whether hosts live, by TCP connections to them.
//
// OVN itself would tell by BFD, between ports of gateway routers. But then every
// gateway has to send to several others, whoever is right if two accuse each
// other; it needs routes in each gateway for nothing but that; and the userspace
// datapath of Open vSwitch 3.1 aborts (an assertion of its connection tracker)
// a minute after the first such packet. Raising nb_cfg, to which each
// ovn-controller answers in Chassis_Private, has ovn-northd compute everything
// again each time and every host write. Probes cost the databases nothing.
package prober

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// When a host counts as dead: misses probes in a row, one each confirmInterval, without an
// answer to any of them. The first of them is sent at most Interval after the host's end, so
// 1.6 s later at the latest it is known. An answer may take the whole time.
const (
	confirmInterval = 200 * time.Millisecond
	misses          = 6
	probeTimeout    = misses * confirmInterval
	// aliveAfter answers in a row, one each Interval, a dead host is alive again.
	aliveAfter = 2
	// lateness of our own timers shows that this process did not run: its probes prove nothing.
	lateness = confirmInterval
)

// Interval is how often each of n hosts is probed: all together at most 1 000 times a second.
func Interval(n int) time.Duration {
	return max(400*time.Millisecond, time.Duration(n)*time.Millisecond)
}

// A Prober probes hosts while there are several of them: of a single one nothing would follow.
type Prober struct {
	changed func()                                     // must not block
	probe   func(context.Context, []netip.Addr) Answer // a test may have its own
	mu      sync.Mutex                                 // guards targets
	targets map[string]*target                         // by name
	renewed chan struct{}                              // holds one token after targets were added or removed
}

// A target is one host.
type target struct {
	addrs     []netip.Addr
	unhealthy bool
	row       int        // misses in a row, or answers in a row of an unhealthy one
	rejector  netip.Addr // the firewall that rejected the last probe; invalid: none did
}

// New returns a Prober. It calls changed after each change of Unhealthy or Rejected.
func New(changed func()) *Prober {
	return &Prober{changed: changed, probe: ask, targets: map[string]*target{}, renewed: make(chan struct{}, 1)}
}

// Watch sets the hosts that are probed, by name their addresses. unhealthy says how a new one begins.
func (p *Prober) Watch(hosts map[string][]netip.Addr, unhealthy func(name string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := len(p.targets)
	maps.DeleteFunc(p.targets, func(name string, _ *target) bool { _, ok := hosts[name]; return !ok })
	renewed := len(p.targets) != before
	for name, addrs := range hosts {
		t := p.targets[name]
		if t == nil {
			t, renewed = &target{unhealthy: unhealthy(name)}, true
			p.targets[name] = t
		}
		t.addrs = addrs
	}
	if renewed {
		select {
		case p.renewed <- struct{}{}:
		default:
		}
	}
}

// Unhealthy are the hosts that do not answer.
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

// Rejected are the hosts whose probes a firewall between them and this host rejects, by name
// its address. Whether such a host lives is not known; it counts as healthy.
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

// names are the hosts to probe.
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

// follow probes one host until ctx ends, each Interval, and after a miss each confirmInterval.
func (p *Prober) follow(ctx context.Context, name string) {
	spread := rand.Float64() // of the first pause, so that hosts are not probed all at once
	for ctx.Err() == nil {
		began := time.Now()
		p.round(ctx, name)
		interval := time.Duration(spread * float64(p.interval()))
		spread = 1
		pause(ctx, interval-time.Since(began))
	}
}

// round sends probes until one is answered, or until one has told nothing new of an unhealthy host.
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

func (p *Prober) interval() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Interval(len(p.targets))
}

func (p *Prober) addrs(name string) []netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.targets[name]; t != nil {
		return t.addrs
	}
	return nil
}

// answered records an answer.
func (p *Prober) answered(name string, a Answer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	if t == nil {
		return
	}
	changed := t.rejector != a.Rejector
	t.rejector = a.Rejector
	switch {
	case !t.unhealthy:
		t.row = 0
	case t.row+1 < aliveAfter:
		t.row++
	default:
		t.unhealthy, t.row, changed = false, 0, true
	}
	if changed {
		p.changed()
	}
}

// missed records a probe without an answer, or that this process was late to look for it. It
// reports whether the host is unhealthy.
func (p *Prober) missed(name string, late bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[name]
	switch {
	case t == nil:
		return true
	case t.unhealthy || late:
		t.row = 0
	case t.row+1 < misses:
		t.row++
	default:
		t.unhealthy, t.row, t.rejector = true, 0, netip.Addr{}
		p.changed()
	}
	return t.unhealthy
}
