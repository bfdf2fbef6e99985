package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"
	"time"

	"ovn-k8s/lib/daemon"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/firewall"
	"ovn-k8s/lib/flowsync"
)

// Commands are the helper's commands for ovs-appctl(8).
func (h *Helper) Commands() []daemon.Command {
	return []daemon.Command{
		{Name: "flows/show", Run: h.showFlows},
		{Name: "rules/show", Run: h.showRules},
		{Name: "service/show", Usage: "[NAMESPACE/NAME]", Max: 1, Run: h.showServices},
		{Name: "services/show", Usage: daemon.Hidden, Max: 1, Run: h.showServices}, // former names
		{Name: "hostport/show", Run: h.showHostPorts},
		{Name: "hostports/show", Usage: daemon.Hidden, Run: h.showHostPorts},
		{Name: "reconcile/show", Run: h.showParts},
		{Name: "reconcile/resync", Run: h.resync},
	}
}

var errStarting = errors.New("the helper is about to start")

// answerTimeout bounds the time of a command.
const answerTimeout = 10 * time.Second

// seen returns the latest desired state.
func (h *Helper) seen() (*engine, view, error) {
	e := h.engine.Load()
	if e == nil {
		return nil, view{}, errStarting
	}
	e.shared.Lock()
	defer e.shared.Unlock()
	return e, e.view, nil
}

// showFlows prints our flows of the bridge, marked if missing, different or
// superfluous, and the number of others.
func (h *Helper) showFlows([]string) (string, error) {
	e, v, err := h.seen()
	if err != nil {
		return "", err
	}
	if e.helper.Bridge == "" {
		return "", errors.New("no bridge: the helper was started without --physical-bridge and --physical-interface")
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	have, err := e.bridge.Dump(ctx)
	if err != nil {
		return "", err
	}
	want := new(flows).wanted(v.bridge, v.known, v)
	var b strings.Builder
	fmt.Fprintf(&b, "bridge %s, NIC port %v, overlay port %v, MAC %s, conntrack zone %d\n", e.helper.Bridge, v.bridge.Physical, v.bridge.Overlay, v.bridge.MAC, v.bridge.Zone)
	if !v.synced {
		b.WriteString("waiting for the API server: flows of Services stay as they are\n")
	}
	b.WriteString(flowsync.Show(have, want, ours(v.bridge, v)))
	return b.String(), nil
}

// showRules prints our rules, and the changes that they need.
func (h *Helper) showRules([]string) (string, error) {
	e, v, err := h.seen()
	if err != nil {
		return "", err
	}
	if !v.synced {
		return "", errors.New("waiting for the API server: rules stay as they are")
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var b strings.Builder
	for _, part := range []string{partRules4, partRules6} {
		f, ok := e.firewall[part]
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "%v\n", f)
		want := rulesOf(v, f)
		for _, line := range f.Describe(want) {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		changes, err := f.Plan(ctx, firewall.Services, want)
		if err != nil {
			return "", err
		}
		for _, c := range changes {
			fmt.Fprintf(&b, "! %s\n", c)
		}
	}
	return b.String(), nil
}

// showServices prints the frontends for clients outside, and the part of the host that handles each.
func (h *Helper) showServices(args []string) (string, error) {
	e, v, err := h.seen()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tFRONTEND\tTO\tFROM OUTSIDE\tENDPOINTS\tON THIS NODE")
	for f := range v.outside.Outside() {
		if len(args) > 0 && args[0] != f.Key.String() {
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\n", f.Key, frontendText(f), f.Cluster(), e.helper.taker(v, f), len(f.Backends().Cluster()), len(f.Local(v.host.Node)))
	}
	err = t.Flush()
	return b.String(), err
}

func frontendText(f service.Frontend) string {
	at := fmt.Sprintf("node:%d", f.Number)
	if f.Kind != service.NodePort {
		at = netip.AddrPortFrom(f.Addr, f.Number).String()
	}
	return fmt.Sprintf("%s/%s", strings.ToLower(string(f.Protocol())), at)
}

// taker names the part of the host that handles connections from outside to a frontend.
func (h *Helper) taker(v view, f service.Frontend) string {
	switch {
	case f.Proxy:
		return "load balancer"
	case f.Refused != "":
		return "nobody: the address " + f.Refused
	case f.Resolved.Refused[v.host.Node] > 0:
		return "nobody: older services leave no room for its replies here"
	case h.Bridge == "" || !v.known || !v.bridge.Takes(f):
		return "rules"
	}
	return "flows"
}

// showParts prints the parts that failed, and why.
func (h *Helper) showParts([]string) (string, error) {
	e, v, err := h.seen()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "node\t%s\n", v.host.Node)
	fmt.Fprintf(t, "management port\t%s\n", v.host.Management)
	fmt.Fprintf(t, "services\t%d\n", len(v.services))
	fmt.Fprintf(t, "services known\t%v\n", v.synced)
	if text := e.objects.Awaited(); text != "" {
		fmt.Fprintf(t, "waits for\t%s\n", text)
	}
	fmt.Fprintf(t, "gateways down\t%v\n", e.monitor)
	for _, f := range e.loop.Status().Failed {
		fmt.Fprintf(t, "%s fails\t%v (for %s, tries %d)\n", f.Key, f.Err, time.Since(f.Since).Round(time.Second), f.Tries)
	}
	err = t.Flush()
	return b.String(), err
}

// resync compares everything again.
func (h *Helper) resync([]string) (string, error) {
	e, _, err := h.seen()
	if err != nil {
		return "", err
	}
	e.send(e.all)
	return "comparing everything again\n", nil
}
