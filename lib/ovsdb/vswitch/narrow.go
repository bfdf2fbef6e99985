package vswitch

import (
	"context"
	"errors"

	"github.com/ovn-kubernetes/libovsdb/client"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitch/confdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// ConnectFor is Connect for the work on one port. ports are the names it may get, one at least, and ifaceID is its
// logical port. Only rows of such interfaces are followed: changes of a node's other ports, perhaps at the same
// time, cost nothing.
//
// The Switch serves AttachPort, DetachWhere, DatapathType, WaitInstalled, ExternalIDs, and Interfaces without
// bridges. If the port exists already, AttachPort and DetachWhere connect once more to follow all rows.
func ConnectFor(ctx context.Context, rundir string, ports []string, ifaceID string) (*Switch, error) {
	db, err := confdb.Connect(ctx, rundir, narrow(ports, ifaceID), nil)
	if err != nil {
		return nil, err
	}
	return &Switch{db, func(ctx context.Context) (*Switch, error) { return Connect(ctx, rundir, nil) }}, nil
}

// narrow are the tables for ConnectFor. Columns changed by other ports, such as the ports of a bridge, are not
// followed.
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

// errNarrow means that all rows have to be followed.
var errNarrow = errors.New("the port is there already")

// suffices is errNarrow if the port exists already and not all rows are followed.
func (s *Switch) suffices(ctx context.Context, c client.Client, port string) error {
	if s.widen == nil {
		return nil
	}
	there, err := confdb.Get(ctx, c, &vswitchdb.Port{Name: port})
	if there {
		return errNarrow
	}
	return err
}

// widely calls f with a Switch that follows all rows, and then waits until s has the changes of f.
func (s *Switch) widely(ctx context.Context, f func(*Switch) error) error {
	all, err := s.widen(ctx)
	if err != nil {
		return err
	}
	defer all.Close()
	if err := f(all); err != nil {
		return err
	}
	return s.Read(ctx, func(client.Client) error { return nil })
}
