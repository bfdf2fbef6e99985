package node

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
)

// Differences compares this host with what the role would make of it, once. Each line is a change to be made, after ~, or a
// problem, after !. It changes nothing, and may run beside the role.
func (n *Node) Differences(ctx context.Context, s settings.Session) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("this needs root: it reads the rules of the host's packet filter")
	}
	cluster, err := n.connect(s)
	if err != nil {
		return nil, err
	}
	defer cluster.Close()
	found := stopped(s.Config.RunDir)
	all, err := cluster.ListOn(ctx, kube.KindOf(&corev1.Node{}), n.name())
	if err != nil { // the rest is known without it
		found = append(found, "! "+err.Error())
	}
	in := input{listed: err == nil, serving: protocol.Served()}
	for o := range all.Objects {
		in.node, _ = o.(*corev1.Node)
	}
	e := newEngine(n, s, cluster)
	e.pass.found = &found
	if err := e.pass.run(ctx, in); err != nil {
		found = append(found, "! "+err.Error())
	}
	return found, nil
}

// stopped has a line for each silent daemon of Open vSwitch and OVN.
func stopped(rundir string) (lines []string) {
	for _, d := range vswitch.Stopped(rundir) {
		lines = append(lines, fmt.Sprintf("! %s is stopped: no process answers at its control socket %s: start %s", d.Program, d.Socket, d.Program))
	}
	return lines
}
