package vswitch

import (
	"context"
	"fmt"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"

	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// An InternalPort is a port with a network device made by Open vSwitch itself.
type InternalPort struct {
	Bridge, Name string
	// MAC is the device's MAC; empty lets Open vSwitch choose.
	MAC string
	// MTU in bytes; 0 lets Open vSwitch choose.
	MTU int
	// ExternalIDs of the Interface. Other keys are left as they are.
	ExternalIDs map[string]string
}

// EnsureInternalPort makes the port, and its bridge if missing, in one transaction, or corrects it. An existing
// bridge is used as it is. It then waits until the network device exists. changed reports whether the database
// changed.
func (s *Switch) EnsureInternalPort(ctx context.Context, p InternalPort) (changed bool, err error) {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) { return planInternalPort(ctx, c, p) })
	if err != nil {
		return false, fmt.Errorf("adding port %s to %s: %w", p.Name, p.Bridge, err)
	}
	if err = s.AwaitDevice(ctx, cfg, p.Bridge, p.Name, nil); err != nil {
		return cfg > 0, fmt.Errorf("waiting for network device %s: %w", p.Name, err)
	}
	return cfg > 0, nil
}

// PlanInternalPort lists the changes of EnsureInternalPort, one a line.
func (s *Switch) PlanInternalPort(ctx context.Context, p InternalPort) ([]string, error) {
	var lines []string
	err := s.Read(ctx, func(c client.Client) error {
		plan, err := planInternalPort(ctx, c, p)
		lines = plan.Lines
		return err
	})
	return lines, err
}

func planInternalPort(ctx context.Context, c client.Client, p InternalPort) (confdb.Plan, error) {
	want := &vswitchdb.Interface{Name: p.Name, Type: "internal", ExternalIDs: p.ExternalIDs}
	if p.MAC != "" {
		want.MAC = &p.MAC
	}
	if p.MTU != 0 {
		want.MTURequest = &p.MTU
	}
	port, iface, err := confdb.FindPort(ctx, c, p.Bridge, p.Name)
	if err != nil {
		return confdb.Plan{}, err
	}
	var pl confdb.Plan
	if port == nil {
		err = confdb.AddPort(ctx, c, &pl, p.Bridge, confdb.NewPort{Iface: want})
		return pl, err
	}
	var fields []any
	if iface.Type != want.Type {
		pl.Say("set Interface %s type=%s (was %q)", p.Name, want.Type, iface.Type)
		fields = append(fields, &want.Type)
	}
	if want.MAC != nil && (iface.MAC == nil || !strings.EqualFold(*iface.MAC, *want.MAC)) {
		pl.Say("set Interface %s mac=%s (was %s)", p.Name, *want.MAC, text(iface.MAC))
		fields = append(fields, &want.MAC)
	}
	if want.MTURequest != nil && (iface.MTURequest == nil || *iface.MTURequest != *want.MTURequest) {
		pl.Say("set Interface %s mtu_request=%d (was %s)", p.Name, *want.MTURequest, text(iface.MTURequest))
		fields = append(fields, &want.MTURequest)
	}
	want.UUID = iface.UUID
	if len(fields) > 0 {
		if err := pl.Add(c.Where(want).Update(want, fields...)); err != nil {
			return pl, err
		}
	}
	err = confdb.SetKeys(c, &pl, iface, p.ExternalIDs, nil)
	return pl, err
}

// text formats an optional value.
func text[T any](v *T) string {
	if v == nil {
		return "unset"
	}
	return fmt.Sprint(*v)
}

// DatapathType returns a bridge's datapath: "system" for the kernel's,
// "netdev" for the one in user space.
func (s *Switch) DatapathType(ctx context.Context, bridge string) (is string, err error) {
	err = s.Read(ctx, func(c client.Client) (err error) {
		is, err = datapathType(ctx, c, bridge)
		return err
	})
	return is, err
}

// CopiedDatapathType is DatapathType in the copy, which is up to date after Refresh. It asks no server.
func (s *Switch) CopiedDatapathType(ctx context.Context, bridge string) (is string, err error) {
	err = s.ReadCopy(func(c client.Client) (err error) {
		is, err = datapathType(ctx, c, bridge)
		return err
	})
	return is, err
}

func datapathType(ctx context.Context, c client.Client, bridge string) (string, error) {
	br := &vswitchdb.Bridge{Name: bridge}
	ok, err := confdb.Get(ctx, c, br)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return "", fmt.Errorf("there is no bridge %s", bridge)
	case br.DatapathType == "":
		return "system", nil
	}
	return br.DatapathType, nil
}

// DeletePort takes a port out of a bridge, with its QoS row, and waits for ovs-vswitchd. A missing port is not an
// error.
func (s *Switch) DeletePort(ctx context.Context, bridge, name string) (changed bool, err error) {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		port, _, err := confdb.FindPort(ctx, c, bridge, name)
		if port == nil || err != nil {
			return confdb.Plan{}, err
		}
		return confdb.DeletePorts(c, map[string]bool{name: true})
	})
	if err != nil || cfg == 0 {
		return false, err
	}
	err = s.AwaitApplied(ctx, cfg)
	if err != nil {
		return true, fmt.Errorf("waiting until port %s is gone: %w", name, err)
	}
	return true, nil
}
