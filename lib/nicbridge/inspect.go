package nicbridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

const (
	bridgePrefix = "br"
	maxName      = 15 // IFNAMSIZ without the final 0
	// ovsMaster is the kernel's name for the datapath of Open vSwitch.
	ovsMaster = "ovs-system"
)

// errDone means that the move is not necessary; its text says why.
type errDone string

func (e errDone) Error() string { return string(e) }

// inspect takes the snapshot for a move. Its error says why the move is impossible or not necessary.
func (s *session) inspect(ctx context.Context, d Direction, name string) (Snapshot, error) {
	if d == ToBridge {
		return s.inspectNIC(ctx, name)
	}
	return s.inspectBridge(ctx, name)
}

func (s *session) inspectNIC(ctx context.Context, nic string) (Snapshot, error) {
	i, err := ifstate.Find(nic)
	if errors.Is(err, ifstate.ErrNone) {
		//lint:ignore ST1005 the Python version's text
		return Snapshot{}, fmt.Errorf("interface %s does not exist, skipping.", nic)
	}
	if err != nil {
		return Snapshot{}, err
	}
	nic = i.Name // it may be an altname, unknown to rules, sysctls and Open vSwitch
	snap := Snapshot{NIC: nic, Bridge: bridgePrefix + nic, From: nic}
	if len(snap.Bridge) > maxName {
		return snap, fmt.Errorf("interface %s: bridge %s would have a name of %d characters, but no more than %d are possible: rename the interface", nic, snap.Bridge, len(snap.Bridge), maxName)
	}
	if err := snap.take(i); err != nil {
		return snap, err
	}
	if err := s.checkNIC(ctx, &snap); err != nil {
		return snap, err
	}
	if err := s.checkBridge(ctx, &snap); err != nil {
		return snap, err
	}
	if !slices.ContainsFunc(snap.Records, movable) {
		if snap.HadPort {
			return snap, errDone(fmt.Sprintf("%s is a port of %s already, and has no address to move", nic, snap.Bridge))
		}
		return snap, fmt.Errorf("interface %s has no address to move: give it one, or make it a port with ovs-vsctl", nic)
	}
	return snap, nil
}

// movable reports whether a record is an address not created by the kernel.
func movable(r ifstate.Record) bool { return r.Kind == ifstate.Address && !r.Automatic() }

// take saves the state of the interface s.From.
func (s *Snapshot) take(i ifstate.Interface) error {
	var err error
	s.Taken = time.Now()
	if s.Device, err = ifstate.DeviceOf(i); err != nil {
		return err
	}
	if s.Settings, err = ifstate.SettingsOf(i); err != nil {
		return err
	}
	s.MAC, s.MTU = s.Device.MAC.String(), s.Device.MTU
	if s.Records, err = ifstate.Of(i); err != nil {
		return err
	}
	for _, r := range s.Records {
		err = errors.Join(err, r.Movable())
	}
	return err
}

// try returns an error if a record could not be restored after its removal.
func (s *Snapshot) try() error {
	i, err := ifstate.Find(s.From)
	if err != nil {
		return err
	}
	for _, r := range s.Records {
		err = errors.Join(err, ifstate.Try(r, i))
	}
	return err
}

// keep saves the state of the other interface.
func (s *Snapshot) keep(i ifstate.Interface) error {
	var err error
	s.KeptIndex = i.Index
	if s.KeptDevice, err = ifstate.DeviceOf(i); err != nil {
		return err
	}
	if s.KeptSettings, err = ifstate.SettingsOf(i); err != nil {
		return err
	}
	s.Kept, err = ifstate.Of(i)
	return err
}

// checkNIC returns an error for interfaces that cannot become a port.
func (s *session) checkNIC(ctx context.Context, snap *Snapshot) error {
	nic, device := snap.NIC, snap.Device
	in, err := s.sw.BridgeOfPort(ctx, nic)
	switch {
	case err != nil:
		return err
	case nic == "lo":
		return errors.New("interface lo is the loopback: it cannot be a port of a bridge")
	case in == nic:
		return fmt.Errorf("interface %s is a bridge of Open vSwitch itself", nic)
	case in != "" && in != snap.Bridge:
		return fmt.Errorf("interface %s is a port of bridge %s already", nic, in)
	case in == "" && device.Master != "" && device.Master != ovsMaster:
		return fmt.Errorf("interface %s is a part of %s: move %s instead", nic, device.Master, device.Master)
	case len(device.MAC) != 6 || snap.MAC == "00:00:00:00:00:00":
		return fmt.Errorf("interface %s has no Ethernet address: it cannot be a port of a bridge", nic)
	}
	snap.HadPort = in != ""
	return nil
}

// checkBridge inspects the bridge, or checks that it can be created.
func (s *session) checkBridge(ctx context.Context, snap *Snapshot) error {
	var err error
	if snap.Datapath, err = s.sw.PreferredDatapath(ctx); err != nil {
		return err
	}
	offered, err := s.sw.DatapathTypes(ctx)
	if err != nil {
		return err
	}
	if err := config.CheckDatapath(snap.Datapath, offered, link.HasOpenVSwitch); err != nil {
		return err
	}
	row, err := s.sw.FindBridge(ctx, snap.Bridge)
	if err != nil {
		return err
	}
	i, err := ifstate.Find(snap.Bridge)
	switch {
	case err != nil && !errors.Is(err, ifstate.ErrNone):
		return err
	case row == nil && err == nil:
		return fmt.Errorf("interface %s exists and is not an Open vSwitch bridge: rename or delete it", snap.Bridge)
	case row != nil && kernels(row.DatapathType) != kernels(snap.Datapath):
		return fmt.Errorf("bridge %s has datapath_type %s, but %s has %s: delete the bridge, or set its datapath_type",
			snap.Bridge, kernels(row.DatapathType), names.IntegrationBridge, kernels(snap.Datapath))
	case row != nil:
		snap.HadBridge, snap.Datapath, snap.Row = true, row.DatapathType, *row
	}
	if err == nil {
		if err := snap.keep(i); err != nil {
			return err
		}
	}
	snap.ExternalIDs = map[string]string{"bridge-id": snap.Bridge}
	if row == nil {
		maps.Copy(snap.ExternalIDs, s.Mark)
	}
	if snap.HadPort {
		return nil
	}
	nic, err := ifstate.Find(snap.NIC)
	if err != nil {
		return err
	}
	on, err := ifstate.Joining(nic)
	if snap.Joining = joining(snap.Datapath, on); len(snap.Joining) > 0 {
		snap.ExternalIDs[names.NICOffloads] = strings.Join(snap.Joining, ",")
	}
	return err
}

// joining selects the enabled offloads to be disabled while the NIC is a port: all of them for the userspace
// datapath, and LRO for the kernel's, whose dev_disable_lro() is not reverted.
func joining(datapath string, on []string) []string {
	if datapath == names.UserspaceDatapath {
		return on
	}
	return slices.DeleteFunc(on, func(name string) bool { return name != ifstate.LRO })
}

// kernels formats a datapath_type, including the default.
func kernels(datapath string) string {
	if datapath == "" {
		return "system"
	}
	return datapath
}

func (s *session) inspectBridge(ctx context.Context, bridge string) (Snapshot, error) {
	row, bridge, err := s.findBridge(ctx, bridge)
	snap := Snapshot{Bridge: bridge, From: bridge, HadBridge: true, HadPort: true}
	if err != nil {
		return snap, err
	}
	if row == nil {
		return snap, noBridge(bridge)
	}
	if snap.NIC, err = uplink(bridge, row); err != nil {
		return snap, err
	}
	if err := s.checkPort(ctx, &snap); err != nil {
		return snap, err
	}
	snap.Datapath = row.DatapathType
	if joining := row.ExternalIDs[names.NICOffloads]; joining != "" {
		snap.Joining = strings.Split(joining, ",")
	}
	nic, err := ifstate.Find(snap.NIC)
	if err != nil {
		return snap, fmt.Errorf("bridge %s without its NIC: %w", bridge, err)
	}
	if err := snap.keep(nic); err != nil {
		return snap, err
	}
	i, err := ifstate.Find(bridge)
	if err != nil {
		return snap, fmt.Errorf("%w: is ovs-vswitchd running?", err)
	}
	return snap, snap.take(i)
}

// checkPort saves the port of the NIC, and returns an error for a port without a NIC.
func (s *session) checkPort(ctx context.Context, snap *Snapshot) error {
	for _, name := range []string{snap.Bridge, snap.NIC} {
		p, err := s.sw.FindPort(ctx, snap.Bridge, name)
		if p == nil || err != nil {
			return err
		}
		if vlan := p.VLAN(); vlan != "" {
			s.warn("port %s of bridge %s has %s: that does not apply to addresses on %s", name, snap.Bridge, vlan, snap.NIC)
		}
		snap.Port = *p
	}
	if kind := snap.Port.Interface.Type; kind != "" && kind != "system" {
		return fmt.Errorf("port %s of bridge %s has type %s: it is no NIC of the host", snap.NIC, snap.Bridge, kind)
	}
	return nil
}

// findBridge finds a bridge by its name, its interface's altname, or its NIC's altname after "br". The row is nil if
// there is none.
func (s *session) findBridge(ctx context.Context, name string) (*vswitch.BridgeRow, string, error) {
	candidates := []string{name}
	if i, err := ifstate.Find(name); err == nil {
		candidates = append(candidates, i.Name)
	}
	if nic, ok := strings.CutPrefix(name, bridgePrefix); ok {
		if i, err := ifstate.Find(nic); err == nil {
			candidates = append(candidates, bridgePrefix+i.Name)
		}
	}
	for _, candidate := range candidates {
		if row, err := s.sw.FindBridge(ctx, candidate); row != nil || err != nil {
			return row, candidate, err
		}
	}
	return nil, name, nil
}

// noBridge is the error for a missing bridge: it was moved already, or never existed.
func noBridge(bridge string) error {
	nic, ok := strings.CutPrefix(bridge, bridgePrefix)
	if _, err := ifstate.Find(nic); ok && err == nil {
		return errDone(fmt.Sprintf("bridge %s does not exist, and %s is not in it", bridge, nic))
	}
	//lint:ignore ST1005 as of interfaces
	return fmt.Errorf("bridge %s does not exist, skipping.", bridge)
}

// uplink finds the NIC of a bridge, which must be its only port.
func uplink(bridge string, row *vswitch.BridgeRow) (string, error) {
	nic := ""
	if len(row.Ports) == 1 {
		nic = row.Ports[0]
	}
	if want := strings.TrimPrefix(bridge, bridgePrefix); slices.Contains(row.Ports, want) {
		nic = want
	}
	others := slices.DeleteFunc(slices.Clone(row.Ports), func(p string) bool { return p == nic })
	switch {
	case bridge == names.IntegrationBridge:
		return "", fmt.Errorf("bridge %s is the integration bridge of OVN: it has no NIC", bridge)
	case len(row.Ports) == 0:
		return "", fmt.Errorf("bridge %s has no NIC: delete it with ovs-vsctl del-br %s", bridge, bridge)
	case len(others) > 0:
		return "", fmt.Errorf("bridge %s has other ports: %s: remove them first; those of a gateway go with ovn-k8s-overlay gateway-remove", bridge, strings.Join(others, ", "))
	}
	return nic, nil
}
