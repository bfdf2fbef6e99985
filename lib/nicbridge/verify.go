package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"

	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/link/ifstate"
)

// A probe tests whether a target is reachable.
type probe struct {
	name string
	ask  func(context.Context) error
}

// Witnesses are the targets that answered before the move.
type witnesses struct {
	hops   []garp.Question // next hops
	probes []probe
}

// An unheard is a target without an answer, and the error.
type unheard struct {
	name string
	err  error
}

// ask probes all at once until ctx ends. It returns the targets with an answer and those without.
func (w witnesses) ask(ctx context.Context, i garp.Interface) (heard witnesses, silent []unheard) {
	results := make([]error, len(w.probes))
	var wg sync.WaitGroup
	for n, p := range w.probes {
		wg.Go(func() { results[n] = p.ask(ctx) })
	}
	quiet, err := garp.Ask(ctx, i, w.hops)
	wg.Wait()
	for _, q := range w.hops {
		why := err
		if slices.Contains(quiet, q) {
			why = fmt.Errorf("%v on %s %w", q.Target, i.Name, garp.ErrSilent)
		}
		if why != nil {
			silent = append(silent, unheard{"the next hop " + q.Target.String(), why})
			continue
		}
		heard.hops = append(heard.hops, q)
	}
	for n, p := range w.probes {
		if results[n] != nil {
			silent = append(silent, unheard{p.name, results[n]})
			continue
		}
		heard.probes = append(heard.probes, p)
	}
	return heard, silent
}

// prober creates the requested probe, and the probe of the API server.
func (s *session) prober(ctx context.Context) ([]probe, error) {
	var all []probe
	if s.Probe != "" {
		p, err := parseProbe(s.Probe)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if server, err := url.Parse(s.apiServer(ctx)); err == nil && server.Host != "" {
		all = append(all, dialer("the API server at "+server.Host, hostPort(server)))
	}
	return all, nil
}

// hostPort is the address of a URL.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = u.Scheme // net.Dial knows "https"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// parseProbe parses --probe.
func parseProbe(text string) (probe, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return probe{text, func(ctx context.Context) error { return garp.Ping(ctx, a) }}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return probe{}, fmt.Errorf("--probe %q is neither an IP address nor HOST:PORT", text)
	}
	return dialer(text, text), nil
}

// dialer is a TCP probe. A refused connection counts as an answer.
func dialer(name, address string) probe {
	return probe{name, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		return conn.Close()
	}}
}

// listen finds the targets that answer before the move.
func (s *session) listen(ctx context.Context, snap Snapshot, d Direction) witnesses {
	all := witnesses{probes: s.probes}
	for _, gw := range gateways(snap.Records) {
		if from, ok := sourceFor(snap.Records, gw); ok {
			all.hops = append(all.hops, garp.Question{From: from, Target: gw})
		}
	}
	if len(all.hops)+len(all.probes) == 0 {
		return witnesses{}
	}
	i, err := s.frames(snap.source(d))
	if err != nil {
		s.warn("next hops and probes are not checked: %v", err)
		return witnesses{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.askBefore)
	defer cancel()
	heard, silent := all.ask(ctx, i)
	for _, q := range silent {
		s.warn("%s does not answer now, so it is not checked after the move", q.name)
	}
	return heard
}

// gateways returns the next hops of routes.
func gateways(records []ifstate.Record) []netip.Addr {
	var all []netip.Addr
	for _, r := range records {
		for _, gw := range r.Gateways() {
			if !slices.Contains(all, gw) {
				all = append(all, gw)
			}
		}
	}
	return all
}

// sourceFor is the source address for probing a gateway, preferably one of its subnet.
func sourceFor(records []ifstate.Record, gw netip.Addr) (from netip.Addr, ok bool) {
	for _, r := range records {
		p := r.Prefix()
		if r.Kind != ifstate.Address || p.Addr().Is4() != gw.Is4() {
			continue
		}
		if p.Masked().Contains(gw) {
			return p.Addr(), true
		}
		from, ok = p.Addr(), true
	}
	return from, ok
}

// frames is an interface for package garp.
func (s *session) frames(name string) (garp.Interface, error) {
	i, err := ifstate.Find(name)
	if err != nil {
		return garp.Interface{}, err
	}
	device, err := ifstate.DeviceOf(i)
	return garp.Interface{Name: name, Index: i.Index, MAC: device.MAC}, err
}

// announce tells the neighbours about the addresses' new port, except duplicates of other hosts' addresses. Errors do
// not matter: the MAC is unchanged and known to the neighbours.
func (s *session) announce(i ifstate.Interface, snap Snapshot) {
	var addresses []netip.Addr
	for _, r := range snap.Records {
		if r.Usable() {
			addresses = append(addresses, r.Prefix().Addr())
		}
	}
	frames, err := s.frames(i.Name)
	if err == nil {
		err = garp.Announce(frames, addresses)
	}
	if err != nil {
		s.warn("%v", err)
	}
}

// verify checks that the target has all records, that ovs-vswitchd serves it, and that all witnesses answer again.
func (s *session) verify(ctx context.Context, snap Snapshot, d Direction, want witnesses) error {
	lost, err := snap.missing(d)
	if err != nil {
		return err
	}
	if len(lost) > 0 {
		return fmt.Errorf("%s %s is not on %s", lost[0].Kind, lost[0].Text, snap.target(d))
	}
	i, err := ifstate.Find(snap.target(d))
	if err != nil {
		return err
	}
	s.announce(i, snap)
	frames, err := s.frames(i.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.askAfter)
	defer cancel()
	if err := s.sw.AwaitVswitchd(ctx); err != nil {
		return err
	}
	if _, silent := want.ask(ctx, frames); len(silent) > 0 {
		return fmt.Errorf("%s answered before, but does not answer now (%w)", silent[0].name, silent[0].err)
	}
	return nil
}
