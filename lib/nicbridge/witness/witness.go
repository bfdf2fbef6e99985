// Package witness finds the hosts that answer before a move of a NIC, and asks them again after it.
package witness

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/link/ifstate"
)

// A Probe tests whether a target is reachable.
type Probe struct {
	Name string
	Ask  func(context.Context) error
}

// Witnesses are the targets that answered before the move.
type Witnesses struct {
	Hops   []garp.Question // next hops
	Probes []Probe
}

// An Unheard is a target without an answer, and the error.
type Unheard struct {
	Name string
	Err  error
}

// Ask probes all at once until ctx ends. It returns the targets with an answer and those without.
func (w Witnesses) Ask(ctx context.Context, i garp.Interface) (heard Witnesses, silent []Unheard) {
	results := make([]error, len(w.Probes))
	var wg sync.WaitGroup
	for n, p := range w.Probes {
		wg.Go(func() { results[n] = p.Ask(ctx) })
	}
	quiet, err := garp.Ask(ctx, i, w.Hops)
	wg.Wait()
	for _, q := range w.Hops {
		why := err
		if slices.Contains(quiet, q) {
			why = fmt.Errorf("%v on %s %w", q.Target, i.Name, garp.ErrSilent)
		}
		if why != nil {
			silent = append(silent, Unheard{"the next hop " + q.Target.String(), why})
			continue
		}
		heard.Hops = append(heard.Hops, q)
	}
	for n, p := range w.Probes {
		if results[n] != nil {
			silent = append(silent, Unheard{p.Name, results[n]})
			continue
		}
		heard.Probes = append(heard.Probes, p)
	}
	return heard, silent
}

// Probes creates the probe of --probe, unless it is "", and of the API server, unless its URL is "".
func Probes(text, apiServer string) ([]Probe, error) {
	var all []Probe
	if text != "" {
		p, err := parse(text)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if server, err := url.Parse(apiServer); err == nil && server.Host != "" {
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

// parse parses --probe.
func parse(text string) (Probe, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return Probe{text, func(ctx context.Context) error { return garp.Ping(ctx, a) }}, nil
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return Probe{}, fmt.Errorf("--probe %q is neither an IP address nor HOST:PORT", text)
	}
	return dialer(text, text), nil
}

// dialer is a TCP probe.
func dialer(name, address string) Probe {
	return Probe{name, func(ctx context.Context) error { return garp.Dial(ctx, address) }}
}

// Hops returns the questions for the next hops of routes.
func Hops(records []ifstate.Record) []garp.Question {
	var all []garp.Question
	for _, gw := range gateways(records) {
		if from, ok := sourceFor(records, gw); ok {
			all = append(all, garp.Question{From: from, Target: gw})
		}
	}
	return all
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
