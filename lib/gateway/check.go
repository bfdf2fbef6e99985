package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/flowsync"
	"ovn-k8s/lib/gateway/localend"
	"ovn-k8s/lib/gateway/routes"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/settings"
)

// Differences compares the flows and rules of this host with what the helper would make of them, once. Each line is a change
// to be made, after ~, or a problem, after !. It changes nothing, and may run beside the helper.
func (h *Helper) Differences(ctx context.Context, s settings.Session) ([]string, error) {
	h = &Helper{Options: h.Options}
	if err := h.adoptBridge(ctx, s.Switch); err != nil {
		return nil, err
	}
	cluster, err := h.connect(s)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	e := newEngine(h, s.Config, s.Switch)
	if _, err := e.look(ctx); err != nil {
		return nil, err
	}
	if e.addrs, err = link.Addresses(); err != nil {
		return nil, err
	}
	var lines []string
	problem := func(err error) {
		if err != nil {
			lines = append(lines, "! "+err.Error())
		}
	}
	problem(e.objects.List(ctx, cluster))
	v := e.wanted()
	changes, err := flowDifferences(ctx, e, v)
	lines = append(lines, changes...)
	problem(err)
	changes, err = hostDifferences(ctx, e, v)
	lines = append(lines, changes...)
	problem(err)
	if !v.synced {
		return lines, nil // rules stay as they are
	}
	for _, part := range slices.Sorted(maps.Keys(e.firewall)) {
		f := e.firewall[part]
		changes, err := f.Plan(ctx, firewall.Services, rulesOf(v, f))
		problem(err)
		for _, c := range changes {
			lines = append(lines, fmt.Sprintf("~ %v: %s", f, c))
		}
	}
	return lines, nil
}

// hostDifferences compares the host's end of a local gateway, the forwarding of IP packets, and the routes to ServiceCIDRs.
func hostDifferences(ctx context.Context, e *engine, v view) (lines []string, err error) {
	links, err := localend.Links(e.ports.local.ExternalIDs, e.config)
	if err != nil {
		return nil, err
	}
	end, err := e.local.Plan(ctx, links)
	if err != nil {
		return nil, err
	}
	forwarding, err := localend.PlanForwarding(v.host.Pods, links)
	if err != nil {
		return nil, err
	}
	routes, err := planRoutes(e, v)
	for _, l := range slices.Concat(end, forwarding, routes) {
		lines = append(lines, "~ "+l)
	}
	return lines, err
}

// planRoutes lists the changes of routes to ServiceCIDRs.
func planRoutes(e *engine, v view) (lines []string, err error) {
	want, known := routes.Of(e.config, v.host, v.cidrs)
	if !known {
		return nil, nil
	}
	changes, err := link.PlanRoutes(want)
	for _, c := range changes {
		lines = append(lines, c.String())
	}
	return lines, err
}

// flowDifferences compares the flows of a shared bridge.
func flowDifferences(ctx context.Context, e *engine, v view) (lines []string, err error) {
	if e.helper.Bridge == "" {
		return nil, nil
	}
	b, nic, patch, err := e.flows.find(ctx, e.bridge, e.helper.Interface, e.ports, v.bridge)
	if err != nil {
		return nil, err
	}
	have, err := e.bridge.Dump(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range flowsync.Diff(have, new(flows).wanted(b, nic && patch, v), ours(b, v)) {
		lines = append(lines, fmt.Sprintf("~ bridge %s: %v", e.helper.Bridge, m))
	}
	return lines, nil
}
