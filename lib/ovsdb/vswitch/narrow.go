package vswitch

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// ConnectFor is Connect for what makes one port, ports being the names that it may
// get, one at least, and ifaceID its logical port. Only rows of such interfaces
// are followed: what happens to the other ports of a node, perhaps at the same time,
// costs nothing.
//
// The Switch serves AttachPort, DetachWhere, DatapathType, WaitInstalled,
// ExternalIDs, and Interfaces, which knows no bridges. For a port that is there
// already, the first two connect once more to follow everything.
func ConnectFor(ctx context.Context, rundir string, ports []string, ifaceID string) (*Switch, error) {
	s, err := connect(ctx, rundir, narrow(ports, ifaceID), nil)
	if err != nil {
		return nil, err
	}
	s.widen = func(ctx context.Context) (*Switch, error) { return Connect(ctx, rundir, nil) }
	return s, nil
}

// narrow is what tables is for Connect. Columns that change as others make ports,
// such as those with all ports of a bridge, are not followed.
func narrow(ports []string, ifaceID string) []ovsdb.Table {
	var named []libovsdb.Condition
	for _, name := range ports {
		named = append(named, libovsdb.NewCondition("name", libovsdb.ConditionEqual, name))
	}
	bound := libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, libovsdb.OvsMap{GoMap: map[any]any{names.IfaceID: ifaceID}})
	return []ovsdb.Table{
		{Name: vswitchdb.OpenvSwitchTable, Columns: []string{"external_ids"}},
		{Name: vswitchdb.BridgeTable, Columns: []string{"name", "datapath_type"}},
		{Name: vswitchdb.PortTable, Columns: []string{"name"}, Where: named},
		{Name: vswitchdb.InterfaceTable, Columns: []string{"name", "ofport", "error", "external_ids"}, Where: append(named, bound)},
	}
}

// errNarrow means that more has to be followed than is.
var errNarrow = errors.New("the port is there already")

// suffices is errNarrow if a port is there already and not all is followed.
func (s *Switch) suffices(ctx context.Context, c client.Client, port string) error {
	if s.widen == nil {
		return nil
	}
	there, err := get(ctx, c, &vswitchdb.Port{Name: port})
	if there {
		return errNarrow
	}
	return err
}

// widely calls f with a Switch that follows everything, and then waits until s has
// what f did.
func (s *Switch) widely(ctx context.Context, f func(*Switch) error) error {
	all, err := s.widen(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	if err := f(all); err != nil {
		return err
	}
	return s.read(ctx, func(client.Client) error { return nil })
}
