package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	libovsdb "github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/world"
)

// A history has the changes of pods and endpoints in the API, the Northbound database and the nodes' flows, with
// the time.
type history struct {
	end   context.CancelFunc
	f     informers.SharedInformerFactory
	nb    *ovsdb.DB
	nodes []*world.Node
	wg    sync.WaitGroup

	mu        sync.Mutex
	lines     []line
	last      map[string]string   // by address and kind
	addresses map[string][]string // by pod
}

type line struct {
	at   time.Time
	of   string // address
	text string
}

// watch begins a history.
func watch(ctx context.Context, w *world.World) (*history, error) {
	ctx, end := context.WithCancel(ctx)
	h := &history{end: end, f: informers.NewSharedInformerFactory(w.Kube.Client(), 0), nodes: w.Nodes, last: map[string]string{}, addresses: map[string][]string{}}
	pods, endpoints := h.f.Core().V1().Pods().Informer(), h.f.Discovery().V1().EndpointSlices().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: h.pod, UpdateFunc: func(_, o any) { h.pod(o) }, DeleteFunc: h.gone,
	})
	if err == nil {
		_, err = endpoints.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) { h.slice(nil, o) }, UpdateFunc: h.slice})
	}
	h.f.Start(ctx.Done())
	if err == nil {
		err = h.followNB(ctx, w.Central.NB)
	}
	return h, err
}

// followNB records the endpoints removed from load balancers of the Northbound database.
func (h *history) followNB(ctx context.Context, remote string) error {
	m, err := ovsdb.NBModel()
	if err != nil {
		return err
	}
	h.nb, err = ovsdb.Open(ctx, ovsdb.Options{
		Name: "NB", Remotes: []string{remote}, Model: m, Tables: []ovsdb.Table{{Name: nbdb.LoadBalancerTable, Columns: []string{"vips"}}},
	})
	if err != nil {
		return err
	}
	h.nb.Handle(&libovsdb.EventHandlerFuncs{UpdateFunc: func(_ string, before, after model.Model) {
		now := backends(after)
		for e := range backends(before) {
			if !now[e] && h.add(e, "NB", "no endpoint any more") {
				h.wg.Go(func() { h.awaitFlows(ctx, e) })
			}
		}
	}})
	return nil
}

// backends are the addresses of the endpoints of a load balancer.
func backends(m model.Model) map[string]bool {
	out := map[string]bool{}
	for _, list := range m.(*nbdb.LoadBalancer).Vips {
		for e := range strings.SplitSeq(list, ",") {
			if a, err := netip.ParseAddrPort(e); err == nil {
				out[a.Addr().String()] = true
			}
		}
	}
	return out
}

// awaitFlows records the time at which each node's flows have lost an endpoint.
func (h *history) awaitFlows(ctx context.Context, address string) {
	to := "dst=" + netip.AddrPortFrom(netip.MustParseAddr(address), 0).String()
	to = strings.TrimSuffix(to, "0") // with the colon before the port
	for _, n := range h.nodes {
		h.wg.Go(func() {
			for ctx.Err() == nil {
				out, _, err := n.Run(ctx, "ovs-ofctl", "-O", "OpenFlow15", "dump-groups", "br-int")
				if err == nil && !strings.Contains(out, to) {
					h.add(address, "flows on "+n.Name, "without it")
					return
				}
				wait(ctx, 100*time.Millisecond)
			}
		})
	}
}

func (h *history) close() {
	h.end()
	h.wg.Wait()
	if h.nb != nil {
		h.nb.Close()
	}
	h.f.Shutdown()
}

// add adds a line, unless it repeats the last one of the address and kind. It reports whether it did.
func (h *history) add(address, kind, text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last[address+kind] == text {
		return false
	}
	h.last[address+kind] = text
	h.lines = append(h.lines, line{time.Now(), address, kind + " " + text})
	return true
}

func (h *history) pod(o any) {
	p := o.(*corev1.Pod)
	text := fmt.Sprintf("%s on %s: %s", p.Name, p.Spec.NodeName, p.Status.Phase)
	if p.DeletionTimestamp != nil {
		text += ", deleted"
	}
	for _, a := range p.Status.PodIPs {
		if h.add(a.IP, "pod", text) && p.DeletionTimestamp == nil {
			h.renew(p.Namespace+"/"+p.Name, a.IP)
		}
	}
}

// renew clears the last lines of a former pod with the address, so that add repeats them, and adds the address to
// the pod.
func (h *history) renew(pod, address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.last, address+"NB")
	for _, n := range h.nodes {
		delete(h.last, address+"flows on "+n.Name)
	}
	if !slices.Contains(h.addresses[pod], address) {
		h.addresses[pod] = append(h.addresses[pod], address)
	}
}

// ofPod lists the addresses of a pod.
func (h *history) ofPod(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addresses[name]
}

func (h *history) gone(o any) {
	if p, ok := o.(*corev1.Pod); ok {
		for _, a := range p.Status.PodIPs {
			h.add(a.IP, "pod", p.Name+" gone")
		}
	}
}

func (h *history) slice(before, after any) {
	now := map[string]bool{}
	for _, e := range after.(*discoveryv1.EndpointSlice).Endpoints {
		c := e.Conditions
		if c.Ready == nil || c.Serving == nil || c.Terminating == nil {
			continue // the API server's own
		}
		now[e.Addresses[0]] = true
		h.add(e.Addresses[0], "slice", fmt.Sprintf("ready %t, serving %t, terminating %t", *c.Ready, *c.Serving, *c.Terminating))
	}
	if before == nil {
		return
	}
	for _, e := range before.(*discoveryv1.EndpointSlice).Endpoints {
		if !now[e.Addresses[0]] {
			h.add(e.Addresses[0], "slice", "none")
		}
	}
}

// isPod reports whether an address belongs to a pod or endpoint.
func (h *history) isPod(address string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[address+"slice"] != "" || h.last[address+"pod"] != ""
}

// deleted returns when the last pod of an address before a moment was deleted.
func (h *history) deleted(address string, before time.Time) (at time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range h.lines {
		if l.of != address || !strings.HasPrefix(l.text, "pod ") || l.at.After(before) {
			continue
		}
		deleted := strings.HasSuffix(l.text, ", deleted")
		if deleted && !ok {
			at = l.at
		}
		ok = deleted || ok && strings.HasSuffix(l.text, " gone")
	}
	return at, ok
}

// of returns the lines about an address from a minute before until 15 s after a moment.
func (h *history) of(address string, at time.Time) string {
	return h.said(at, time.Minute, func(l line) (string, bool) { return l.text, l.of == address })
}

// around returns all lines from 10 s before until 15 s after a moment.
func (h *history) around(at time.Time) string {
	return h.said(at, 10*time.Second, func(l line) (string, bool) { return l.of + " " + l.text, true })
}

// said lists lines from some time before a moment until 15 s after.
func (h *history) said(at time.Time, before time.Duration, choose func(line) (string, bool)) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, l := range h.lines {
		if text, ok := choose(l); ok && l.at.After(at.Add(-before)) && l.at.Before(at.Add(15*time.Second)) {
			out = append(out, fmt.Sprintf("%+.3f s %s", l.at.Sub(at).Seconds(), text))
		}
	}
	return strings.Join(out, "; ")
}
