package vswitch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A PodPort is the host's end of a pod's veth pair as a port of a bridge.
type PodPort struct {
	Bridge string
	Name   string // of the network device
	// ExternalIDs of the Interface; all other keys except for ovn-controller's are removed.
	ExternalIDs map[string]string
	// IngressRate limits the traffic to the pod in bit/s, as in the annotation kubernetes.io/ingress-bandwidth; 0 is
	// no limit.
	IngressRate int64
	// EgressRate limits the traffic from the pod, as in egress-bandwidth. It works with the kernel's datapath only:
	// the names.UserspaceDatapath datapath takes packets from a device before the kernel's policer sees them, so there a limit
	// must be set at the pod's end of the pair.
	EgressRate int64
}

// An Interface is a row of the table Interface.
type Interface struct {
	Name, Bridge string
	Type         string // as in the database: empty for a network device of the host
	MAC          string // the MAC in use, or empty
	// Ofport is positive once ovs-vswitchd has opened the device, negative if it could not, 0 before it tried.
	Ofport int
	// Error is ovs-vswitchd's message.
	Error       string
	ExternalIDs map[string]string
}

// AttachPort adds the port to its bridge, which must exist, or corrects it, in one transaction. It does not wait:
// see WaitInstalled.
func (s *Switch) AttachPort(ctx context.Context, p PodPort) error {
	_, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		if err := s.suffices(ctx, c, p.Name); err != nil {
			return confdb.Plan{}, err
		}
		return planPod(ctx, c, p)
	})
	if errors.Is(err, errNarrow) {
		return s.widely(ctx, func(all *Switch) error { return all.AttachPort(ctx, p) })
	}
	if err != nil {
		return fmt.Errorf("attaching %s to %s: %w", p.Name, p.Bridge, err)
	}
	return nil
}

func planPod(ctx context.Context, c client.Client, p PodPort) (confdb.Plan, error) {
	var pl confdb.Plan
	br := &vswitchdb.Bridge{Name: p.Bridge}
	if ok, err := confdb.Get(ctx, c, br); !ok || err != nil {
		if err == nil {
			err = fmt.Errorf("there is no bridge %s", p.Bridge)
		}
		return pl, err
	}
	want := &vswitchdb.Interface{Name: p.Name, ExternalIDs: p.ExternalIDs}
	if br.DatapathType != names.UserspaceDatapath {
		want.IngressPolicingRate, want.IngressPolicingBurst = policing(p.EgressRate)
	}
	port, iface, err := confdb.FindPort(ctx, c, p.Bridge, p.Name)
	if err != nil {
		return pl, err
	}
	if port == nil {
		err = confdb.AddPort(ctx, c, &pl, p.Bridge, confdb.NewPort{Iface: want, QoS: shaper(p)})
		return pl, err
	}
	if iface.IngressPolicingRate != want.IngressPolicingRate || iface.IngressPolicingBurst != want.IngressPolicingBurst {
		pl.Say("set Interface %s ingress_policing_rate=%d (was %d)", p.Name, want.IngressPolicingRate, iface.IngressPolicingRate)
		want.UUID = iface.UUID
		if err := pl.Add(c.Where(want).Update(want, &want.IngressPolicingRate, &want.IngressPolicingBurst)); err != nil {
			return pl, err
		}
	}
	if err := confdb.SetKeys(c, &pl, iface, p.ExternalIDs, stale(iface, p.ExternalIDs)); err != nil {
		return pl, err
	}
	err = setShaper(ctx, c, &pl, port, p)
	return pl, err
}

// stale lists the unwanted keys of a pod's interface: the keys of an earlier pod, and ovn-controller's keys about
// the earlier pod.
func stale(iface *vswitchdb.Interface, want map[string]string) []string {
	same := iface.ExternalIDs[names.IfaceID] == want[names.IfaceID]
	var out []string
	for _, k := range slices.Sorted(maps.Keys(iface.ExternalIDs)) {
		_, wanted := want[k]
		if !wanted && !(same && strings.HasPrefix(k, names.OVNInstalled)) {
			out = append(out, k)
		}
	}
	return out
}

// minBurst in kilobits lets a policer pass a few segments of 64 KiB: the kernel joins packets of one TCP stream to
// such segments.
const minBurst = 2000

// policing returns ingress_policing_rate and ingress_policing_burst in kbit/s and kbit for a rate in bit/s.
// ovs-vswitchd.conf.db(5) recommends a tenth of the rate for the burst.
func policing(rate int64) (kbps, burst int) {
	if rate <= 0 {
		return 0, 0
	}
	kbps = int(max(rate/1000, 1))
	return kbps, max(kbps/10, minBurst)
}

// shaper returns the QoS row limiting the traffic to a pod, or nil. With the names.UserspaceDatapath datapath linux-htb works as
// well, since packets are sent through a socket; egress-policer is for DPDK's devices alone (measured with 3.1).
func shaper(p PodPort) *vswitchdb.QoS {
	if p.IngressRate <= 0 {
		return nil
	}
	return &vswitchdb.QoS{
		Type:        "linux-htb",
		OtherConfig: map[string]string{"max-rate": strconv.FormatInt(p.IngressRate, 10)},
		ExternalIDs: map[string]string{names.QoSPort: p.Name},
	}
}

// setShaper gives a port its desired QoS row, and deletes an unused one.
func setShaper(ctx context.Context, c client.Client, pl *confdb.Plan, port *vswitchdb.Port, p PodPort) error {
	want := shaper(p)
	var old *vswitchdb.QoS
	if port.QOS != nil {
		old = &vswitchdb.QoS{UUID: *port.QOS}
		if ok, err := confdb.Get(ctx, c, old); !ok || err != nil {
			return err
		}
		if want != nil && old.Type == want.Type && maps.Equal(old.OtherConfig, want.OtherConfig) {
			return nil
		}
	}
	if old == nil && want == nil {
		return nil
	}
	changed := &vswitchdb.Port{UUID: port.UUID}
	if want == nil {
		pl.Say("remove QoS of port %s", p.Name)
	} else {
		pl.Say("set QoS of port %s to %s bit/s", p.Name, want.OtherConfig["max-rate"])
		want.UUID = "new_qos"
		changed.QOS = &want.UUID
		if err := pl.Add(c.Create(want)); err != nil {
			return err
		}
	}
	if err := pl.Add(c.Where(changed).Update(changed, &changed.QOS)); err != nil {
		return err
	}
	if old != nil && old.ExternalIDs[names.QoSPort] == p.Name {
		return pl.Add(c.Where(old).Delete())
	}
	return nil
}

// DetachWhere deletes all ports with an interface for which cond is true, in one transaction, with their QoS rows,
// and returns their names, sorted. It does not wait for ovs-vswitchd. cond is as for InterfacesWhere.
func (s *Switch) DetachWhere(ctx context.Context, cond func(Interface) bool) ([]string, error) {
	if s.widen != nil {
		some, err := s.InterfacesWhere(ctx, cond)
		if err != nil {
			return nil, fmt.Errorf("detaching ports: %w", err)
		}
		if len(some) == 0 {
			return nil, nil
		}
		var detached []string
		err = s.widely(ctx, func(all *Switch) (err error) {
			detached, err = all.DetachWhere(ctx, cond)
			return err
		})
		return detached, err
	}
	var doomed map[string]bool
	_, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		doomed = map[string]bool{}
		some, err := interfaces(c, cond)
		if err != nil {
			return confdb.Plan{}, err
		}
		for _, i := range some {
			doomed[i.Name] = true
		}
		return confdb.DeletePorts(c, doomed)
	})
	if err != nil {
		return nil, fmt.Errorf("detaching ports: %w", err)
	}
	return slices.Sorted(maps.Keys(doomed)), nil
}

// Interfaces lists the interfaces of all bridges, sorted by name. Their ExternalIDs may not be changed.
func (s *Switch) Interfaces(ctx context.Context) ([]Interface, error) {
	return s.InterfacesWhere(ctx, func(Interface) bool { return true })
}

// InterfacesWhere is Interfaces for those for which cond is true. cond gets them without their bridges.
func (s *Switch) InterfacesWhere(ctx context.Context, cond func(Interface) bool) ([]Interface, error) {
	var out []Interface
	err := s.Read(ctx, func(c client.Client) (err error) {
		out, err = interfaces(c, cond)
		return err
	})
	return out, err
}

func interfaces(c client.Client, cond func(Interface) bool) ([]Interface, error) {
	rows, err := confdb.Rows[*vswitchdb.Interface](c, vswitchdb.InterfaceTable)
	if err != nil {
		return nil, err
	}
	var out []Interface
	at := map[string]int{} // places in out, by UUID of the interface
	for _, r := range rows {
		if i := fromRow(r); cond(i) {
			at[r.UUID] = len(out)
			out = append(out, i)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	ports, err := confdb.Rows[*vswitchdb.Port](c, vswitchdb.PortTable)
	if err != nil {
		return nil, err
	}
	bridges, err := confdb.Rows[*vswitchdb.Bridge](c, vswitchdb.BridgeTable)
	if err != nil {
		return nil, err
	}
	of := map[string]*vswitchdb.Port{} // those of out
	for _, p := range ports {
		if slices.ContainsFunc(p.Interfaces, func(i string) bool { _, ok := at[i]; return ok }) {
			of[p.UUID] = p
		}
	}
	for _, b := range bridges {
		for _, uuid := range b.Ports {
			p := of[uuid]
			if p == nil {
				continue
			}
			for _, i := range p.Interfaces {
				if n, ok := at[i]; ok {
					out[n].Bridge = b.Name
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Interface) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// IsTunnel reports whether the interface is a tunnel to another host: ovn-controller makes one for each host.
func (i Interface) IsTunnel() bool { return confdb.IsTunnel(i.Type) }

// NICs returns the names of the NICs in a bridge, among all interfaces: ports with iface-id are of pods and virtual machines.
func NICs(all []Interface, bridge string) (nics []string) {
	for _, i := range all {
		if bridge != "" && i.Bridge == bridge && slices.Contains([]string{"", "system", "dpdk"}, i.Type) && i.ExternalIDs[names.IfaceID] == "" {
			nics = append(nics, i.Name)
		}
	}
	return nics
}

// fromRow returns an interface without its bridge.
func fromRow(r *vswitchdb.Interface) Interface {
	i := Interface{Name: r.Name, Type: r.Type, ExternalIDs: r.ExternalIDs}
	if r.MACInUse != nil && *r.MACInUse != "00:00:00:00:00:00" {
		i.MAC = *r.MACInUse
	}
	if r.Ofport != nil {
		i.Ofport = *r.Ofport
	}
	if r.Error != nil {
		i.Error = *r.Error
	}
	return i
}

// errRemoved means that an interface is gone: a DEL came before the end of the ADD, for example.
var errRemoved = errors.New("another command has removed it")

// WaitInstalled waits until ovn-controller has installed the flows of the logical port ifaceID for an attached interface:
// then the first packet passes. It ends if the interface or its device is removed. If ctx ends, the error describes the last known state.
func (s *Switch) WaitInstalled(ctx context.Context, name, ifaceID string) error {
	last := "not in the database"
	err := s.AwaitInterface(ctx, name, func(c client.Client) (bool, error) {
		row := &vswitchdb.Interface{Name: name}
		switch ok, err := confdb.Get(ctx, c, row); {
		case err != nil:
			return false, err
		case !ok:
			last = "not in the database"
			return false, s.removed(ctx, name)
		}
		i := fromRow(row)
		last = i.state(ifaceID)
		if i.Error != "" && !isDevice(name) {
			return false, errRemoved
		}
		return last == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting for interface %s (logical port %s): %s: %w", name, ifaceID, last, err)
	}
	return nil
}

// isDevice reports whether this network namespace has a device of a name.
func isDevice(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

// removed is errRemoved if the database, not only the copy, has no such interface.
func (s *Switch) removed(ctx context.Context, name string) error {
	return s.Read(ctx, func(c client.Client) error {
		there, err := confdb.Get(ctx, c, &vswitchdb.Interface{Name: name})
		if err == nil && !there {
			err = errRemoved
		}
		return err
	})
}

// state describes why an interface is not installed for a logical port yet, or returns "".
func (i Interface) state(ifaceID string) string {
	switch {
	case i.ExternalIDs[names.IfaceID] != ifaceID:
		return fmt.Sprintf("its %s is %q", names.IfaceID, i.ExternalIDs[names.IfaceID])
	case i.Ofport <= 0 && i.Error != "":
		return "ovs-vswitchd says: " + i.Error
	case i.Ofport <= 0:
		return "ovs-vswitchd has not opened it: is ovs-vswitchd running?"
	case i.ExternalIDs[names.OVNInstalled] != "true":
		return "ovn-controller has not installed its flows: no " + names.OVNInstalled
	}
	return ""
}
