// Package checks finds conditions of this host that drop or misdirect packets of pods and Services: MTUs, other firewalls,
// kube-proxy. It mends one, the offloads of a shared NIC after a reboot.
package checks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// databaseTimeout bounds the time for which a check waits for Open vSwitch's database, perhaps during its restart: Services wait
// for the check.
const databaseTimeout = time.Second

// ofDatabase is ctx with databaseTimeout.
func ofDatabase(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, databaseTimeout, fmt.Errorf("no answer from Open vSwitch's database within %v: is ovsdb-server running?", databaseTimeout))
}

// A Problem is an error that is also reported by an Event on the Node.
type Problem struct {
	Reason string // of the Event
	error
}

// MTU checks the MTUs of tunnels and of pods.
type MTU struct {
	Config config.Config
	Switch *vswitch.Switch
}

// Check reports the MTUs of pods and of tunnels to the Southbound database. Its error, and an Event on the Node,
// tell why packets of pods do not fit.
func (m MTU) Check(ctx context.Context, node string) error {
	ctx, cancel := ofDatabase(ctx)
	defer cancel()
	all, failed := m.Switch.Interfaces(ctx)
	tunnels := m.Config.Tunnels(func(a netip.Addr) (string, int) {
		name, mtu, err := link.NICWith(a)
		failed = errors.Join(failed, err)
		bridge := name
		for _, nic := range vswitch.NICs(all, bridge) { // Open vSwitch drops what the bridge takes and its NIC does not
			of, err := link.MTU(nic)
			failed = errors.Join(failed, err)
			if of > 0 && of < mtu {
				name, mtu = nic+" of bridge "+bridge, of
			}
		}
		return name, mtu
	})
	if failed != nil {
		return failed
	}
	var t config.Tunnel // none
	if len(tunnels) > 0 {
		t = config.Narrowest(tunnels)
	}
	if _, err := m.Switch.Controller().SetCMSOption(ctx, names.MTUOption, t.Report(m.Config.MTU)); err != nil {
		return err
	}
	pods := m.checkPods(ctx, node)
	if problem := tunnelProblem(m.Config, tunnels, t); problem.error != nil {
		return Problem{problem.Reason, fmt.Errorf("node %s: %w", node, problem.error)}
	}
	return pods
}

// tunnelProblem is the reason why this host's tunnels do not carry packets of pods. t is the narrowest one. Without a reason it has
// no error.
func tunnelProblem(c config.Config, tunnels []config.Tunnel, t config.Tunnel) Problem {
	badType, err := config.CheckTunnelTypes(c.EncapType), t.Check(c.MTU)
	switch {
	case c.EncapType != "" && badType != nil:
		return Problem{"BadTunnelType", fmt.Errorf("bad ovn-encap-type %q of Open_vSwitch: %w", c.EncapType, badType)}
	case len(tunnels) == 0:
		return Problem{"NoTunnelAddress", errors.New("ovn-encap-ip of Open_vSwitch is not set, so that this host has no tunnels: set it to an address of this host")}
	case t.NIC == "":
		return Problem{"NoTunnelAddress", err}
	}
	return Problem{"MTUTooLarge", err}
}

// checkPods returns an error if there are pods created under a larger MTU: pods with the present MTU do not get
// their large packets. It reports the number of such pods to the Southbound database.
func (m MTU) checkPods(ctx context.Context, node string) error {
	ports, err := m.largerPorts(ctx)
	if err != nil {
		return err
	}
	count := ""
	if len(ports) > 0 {
		count = strconv.Itoa(len(ports))
	}
	if _, err := m.Switch.Controller().SetCMSOption(ctx, names.PodMTUOption, count); err != nil || len(ports) == 0 {
		return err
	}
	return Problem{"PodMTUTooLarge", fmt.Errorf("node %s: pods with a larger MTU than ovn-k8s-mtu %d: %d, logical port %s first: their large packets do not reach other pods: delete these pods, to have them made again",
		node, m.Config.MTU, len(ports), slices.Min(ports))}
}

// largerPorts lists the logical ports of connected pods whose MTU is larger than the present one.
func (m MTU) largerPorts(ctx context.Context) (ports []string, err error) {
	ends, err := link.LargerHostEnds(m.Config.MTU)
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	all, err := m.Switch.Interfaces(ctx)
	for _, i := range all {
		if p := i.ExternalIDs[names.IfaceID]; p != "" && slices.Contains(ends, i.Name) {
			ports = append(ports, p)
		}
	}
	return ports, err
}
