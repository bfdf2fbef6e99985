package vswitch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// A StandaloneBridge forwards like an ordinary switch, with or without flows of its own.
type StandaloneBridge struct {
	Name string
	// MAC is the MAC of the bridge's own network device.
	MAC string
	// MTU is the MTU of the bridge's own network device, in bytes.
	MTU int
	// DatapathType of a new bridge; an existing one must have it.
	DatapathType string
	// ExternalIDs of the Bridge. Other keys are left as they are.
	ExternalIDs map[string]string
}

// A BridgeRow is the present state of a bridge.
type BridgeRow struct {
	DatapathType string // as in the database: empty means the kernel's
	FailMode     string // empty means unset
	OtherConfig  map[string]string
	ExternalIDs  map[string]string
	MTU          int // requested for its network device, 0 if none is
	// Ports are names, sorted, without the bridge's own and the gateway helper's ports. DeleteBridge deletes all of
	// them.
	Ports []string
}

// FindBridge returns a bridge by its name, or nil.
func (s *Switch) FindBridge(ctx context.Context, name string) (*BridgeRow, error) {
	var found *BridgeRow
	err := s.Read(ctx, func(c client.Client) error {
		br := &vswitchdb.Bridge{Name: name}
		ok, err := confdb.Get(ctx, c, br)
		if !ok || err != nil {
			return err
		}
		var ports []*vswitchdb.Port
		if err := confdb.List(ctx, c, &ports); err != nil {
			return err
		}
		local := &vswitchdb.Interface{Name: name}
		if _, err := confdb.Get(ctx, c, local); err != nil {
			return err
		}
		found = &BridgeRow{DatapathType: br.DatapathType, OtherConfig: br.OtherConfig, ExternalIDs: br.ExternalIDs}
		if br.FailMode != nil {
			found.FailMode = *br.FailMode
		}
		if local.MTURequest != nil {
			found.MTU = *local.MTURequest
		}
		spare, err := helperPatch(ctx, c, name)
		if err != nil {
			return err
		}
		for _, p := range ports {
			if slices.Contains(br.Ports, p.UUID) && p.Name != name && !spare[p.Name] {
				found.Ports = append(found.Ports, p.Name)
			}
		}
		slices.Sort(found.Ports)
		return nil
	})
	return found, err
}

// BridgeOfPort returns the name of a port's bridge, or "".
func (s *Switch) BridgeOfPort(ctx context.Context, port string) (string, error) {
	name := ""
	err := s.Read(ctx, func(c client.Client) error {
		p := &vswitchdb.Port{Name: port}
		ok, err := confdb.Get(ctx, c, p)
		if !ok || err != nil {
			return err
		}
		br, err := confdb.BridgeOf(ctx, c, p.UUID)
		if br != nil {
			name = br.Name
		}
		return err
	})
	return name, err
}

// PreferredDatapath is the datapath type for bridges connected to br-int: br-int's own, or the type ovn-controller
// will give br-int.
func (s *Switch) PreferredDatapath(ctx context.Context) (string, error) {
	br, err := s.FindBridge(ctx, names.IntegrationBridge)
	if err != nil {
		return "", err
	}
	if br != nil {
		return br.DatapathType, nil
	}
	return s.ExternalIDs()["ovn-bridge-datapath-type"], nil
}

// DatapathTypes are the types that ovs-vswitchd offers, none before its first start.
func (s *Switch) DatapathTypes(ctx context.Context) (types []string, err error) {
	err = s.Read(ctx, func(c client.Client) error {
		root, err := confdb.Root(ctx, c)
		if err == nil {
			types = root.DatapathTypes
		}
		return err
	})
	return types, err
}

// EnsureStandaloneBridge makes the bridge, or corrects it, and waits until its network device exists and has the
// MAC.
func (s *Switch) EnsureStandaloneBridge(ctx context.Context, b StandaloneBridge) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) { return planStandalone(ctx, c, b) })
	if err != nil {
		return fmt.Errorf("making bridge %s: %w", b.Name, err)
	}
	err = s.AwaitDevice(ctx, cfg, b.Name, b.Name, func(i *vswitchdb.Interface) bool {
		return i.MACInUse != nil && strings.EqualFold(*i.MACInUse, b.MAC)
	})
	if err != nil {
		return fmt.Errorf("waiting for network device %s: %w", b.Name, err)
	}
	return nil
}

func planStandalone(ctx context.Context, c client.Client, b StandaloneBridge) (confdb.Plan, error) {
	var pl confdb.Plan
	br := &vswitchdb.Bridge{Name: b.Name}
	found, err := confdb.Get(ctx, c, br)
	if err != nil {
		return pl, err
	}
	if !found {
		err := insertStandalone(ctx, c, &pl, b)
		return pl, err
	}
	if br.DatapathType != b.DatapathType {
		return pl, confdb.Conflict("bridge %s has datapath_type %q, but %q is needed", b.Name, br.DatapathType, b.DatapathType)
	}
	standalone := vswitchdb.BridgeFailModeStandalone
	if br.FailMode == nil || *br.FailMode != standalone {
		br.FailMode = &standalone
		if err := pl.Add(c.Where(br).Update(br, &br.FailMode)); err != nil {
			return pl, err
		}
	}
	var m []model.Mutation
	m = append(m, keys(&br.OtherConfig, br.OtherConfig, map[string]string{"hwaddr": b.MAC})...)
	m = append(m, keys(&br.ExternalIDs, br.ExternalIDs, b.ExternalIDs)...)
	if len(m) > 0 {
		if err := pl.Add(c.Where(br).Mutate(br, m...)); err != nil {
			return pl, err
		}
	}
	local := &vswitchdb.Interface{Name: b.Name}
	if ok, err := confdb.Get(ctx, c, local); !ok || err != nil || local.MTURequest != nil && *local.MTURequest == b.MTU {
		return pl, err
	}
	local.MTURequest = &b.MTU
	err = pl.Add(c.Where(local).Update(local, &local.MTURequest))
	return pl, err
}

// RestoreBridge undoes the changes of EnsureStandaloneBridge(b), given the former state of the bridge. A missing
// bridge is not an error.
func (s *Switch) RestoreBridge(ctx context.Context, b StandaloneBridge, was BridgeRow) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) { return planRestore(ctx, c, b, was) })
	if err == nil {
		err = s.AwaitApplied(ctx, cfg)
	}
	if err != nil {
		return fmt.Errorf("giving back the settings of bridge %s: %w", b.Name, err)
	}
	return nil
}

func planRestore(ctx context.Context, c client.Client, b StandaloneBridge, was BridgeRow) (confdb.Plan, error) {
	var pl confdb.Plan
	br, local := &vswitchdb.Bridge{Name: b.Name}, &vswitchdb.Interface{Name: b.Name}
	if ok, err := confdb.Get(ctx, c, br); !ok || err != nil {
		return pl, err
	}
	if ok, err := confdb.Get(ctx, c, local); !ok || err != nil {
		return pl, err
	}
	if mode := br.FailMode; mode != nil && *mode != was.FailMode {
		br.FailMode = nil
		if was.FailMode != "" {
			br.FailMode = &was.FailMode
		}
		if err := pl.Add(c.Where(br).Update(br, &br.FailMode)); err != nil {
			return pl, err
		}
	}
	m := append(formerKeys(&br.OtherConfig, br.OtherConfig, was.OtherConfig, map[string]string{"hwaddr": b.MAC}),
		formerKeys(&br.ExternalIDs, br.ExternalIDs, was.ExternalIDs, b.ExternalIDs)...)
	if len(m) > 0 {
		if err := pl.Add(c.Where(br).Mutate(br, m...)); err != nil {
			return pl, err
		}
	}
	if local.MTURequest == nil || *local.MTURequest == was.MTU {
		return pl, nil
	}
	local.MTURequest = nil
	if was.MTU != 0 {
		local.MTURequest = &was.MTU
	}
	return pl, pl.Add(c.Where(local).Update(local, &local.MTURequest))
}

// formerKeys are the mutations to give the keys in set their values in was.
func formerKeys(field any, is, was, set map[string]string) []model.Mutation {
	want := map[string]string{}
	var gone []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		if v, had := was[k]; had {
			want[k] = v
		} else if _, there := is[k]; there {
			gone = append(gone, k)
		}
	}
	m := keys(field, is, want)
	if len(gone) > 0 {
		m = append(m, model.Mutation{Field: field, Mutator: libovsdb.MutateOperationDelete, Value: gone})
	}
	return m
}

// keys are the mutations to give a map the wanted values.
func keys(field any, is, want map[string]string) []model.Mutation {
	set := map[string]string{}
	var remove []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		old, had := is[k]
		if had && old == want[k] {
			continue
		}
		set[k] = want[k]
		if had {
			remove = append(remove, k)
		}
	}
	var m []model.Mutation
	if len(remove) > 0 {
		m = append(m, model.Mutation{Field: field, Mutator: libovsdb.MutateOperationDelete, Value: remove})
	}
	if len(set) > 0 {
		m = append(m, model.Mutation{Field: field, Mutator: libovsdb.MutateOperationInsert, Value: set})
	}
	return m
}

func insertStandalone(ctx context.Context, c client.Client, pl *confdb.Plan, b StandaloneBridge) error {
	top, err := confdb.Root(ctx, c)
	if err != nil {
		return err
	}
	local, err := confdb.InsertPort(c, pl, "local_", confdb.NewPort{Iface: &vswitchdb.Interface{Name: b.Name, Type: "internal", MTURequest: &b.MTU}})
	if err != nil {
		return err
	}
	standalone := vswitchdb.BridgeFailModeStandalone
	br := &vswitchdb.Bridge{
		UUID: "new_bridge", Name: b.Name, Ports: []string{local}, FailMode: &standalone, DatapathType: b.DatapathType,
		OtherConfig: map[string]string{"hwaddr": b.MAC}, ExternalIDs: b.ExternalIDs,
	}
	if err := pl.Add(c.Create(br)); err != nil {
		return err
	}
	return pl.Add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationInsert, Value: []string{br.UUID}}))
}

// EnsureUplink adds a network device of the host to a bridge, which must exist, and waits until ovs-vswitchd has
// opened it. A port that is new gets the configuration.
func (s *Switch) EnsureUplink(ctx context.Context, bridge, nic string, configuration PortRow) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		var pl confdb.Plan
		port, _, err := confdb.FindPort(ctx, c, bridge, nic)
		if port != nil || err != nil {
			return pl, err
		}
		br := &vswitchdb.Bridge{Name: bridge}
		if ok, err := confdb.Get(ctx, c, br); !ok || err != nil {
			return pl, orMissing(err, bridge)
		}
		n, err := configuration.newPort(ctx, c, nic)
		if err == nil {
			err = confdb.AppendPort(c, &pl, br, "new_", n)
		}
		return pl, err
	})
	if err != nil {
		return fmt.Errorf("adding port %s to %s: %w", nic, bridge, err)
	}
	err = s.AwaitDevice(ctx, cfg, bridge, nic, nil)
	if err != nil {
		return fmt.Errorf("waiting until %s is a port of %s: %w", nic, bridge, err)
	}
	return nil
}

func orMissing(err error, bridge string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("there is no bridge %s", bridge)
}

// DeleteBridge deletes a bridge with all its ports, and the gateway helper's patch ports to it, and waits for
// ovs-vswitchd. A missing bridge is not an error.
func (s *Switch) DeleteBridge(ctx context.Context, name string) error {
	cfg, err := s.Converge(ctx, func(c client.Client) (confdb.Plan, error) {
		var pl confdb.Plan
		br := &vswitchdb.Bridge{Name: name}
		if ok, err := confdb.Get(ctx, c, br); !ok || err != nil {
			return pl, err
		}
		top, err := confdb.Root(ctx, c)
		if err != nil {
			return pl, err
		}
		doomed, err := helperPatch(ctx, c, name)
		if err == nil && len(doomed) > 0 {
			pl, err = confdb.DeletePorts(c, doomed)
		}
		if err != nil {
			return pl, err
		}
		err = pl.Add(c.Where(top).Mutate(top, model.Mutation{Field: &top.Bridges, Mutator: libovsdb.MutateOperationDelete, Value: []string{br.UUID}}))
		return pl, err
	})
	if err != nil || cfg == 0 {
		return err
	}
	err = s.AwaitApplied(ctx, cfg)
	if err != nil {
		return fmt.Errorf("waiting until bridge %s is gone: %w", name, err)
	}
	return nil
}
