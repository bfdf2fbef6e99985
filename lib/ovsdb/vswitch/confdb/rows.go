package confdb

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitchdb"
)

// IsConflict reports whether err is about a port or bridge of another owner. Only the owner can remove it.
func IsConflict(err error) bool { return errors.As(err, new(*conflictError)) }

type conflictError struct{ error }

// Conflict returns an error recognized by IsConflict.
func Conflict(format string, args ...any) error { return &conflictError{fmt.Errorf(format, args...)} }

var errNoRoot = errors.New("the database has no row in table Open_vSwitch: has ovs-vswitchd or ovs-ctl never been started?")

// Root returns the only row of the table Open_vSwitch.
func Root(ctx context.Context, c client.Client) (*vswitchdb.OpenvSwitch, error) {
	var rows []*vswitchdb.OpenvSwitch
	if err := List(ctx, c, &rows); err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errNoRoot
	}
	return rows[0], nil
}

// List reads all rows of a table.
func List(ctx context.Context, c client.Client, rows any) error {
	if c == nil {
		return ovsdb.ErrNotConnected
	}
	if err := c.List(ctx, rows); err != nil {
		return fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	return nil
}

// Rows lists all rows of a table, in no order. They belong to the copy and may not be changed: copies of all would take milliseconds
// for the tunnels of a large cluster.
func Rows[T model.Model](c client.Client, table string) ([]T, error) {
	if c == nil {
		return nil, ovsdb.ErrNotConnected
	}
	tables := c.Cache()
	if tables == nil || tables.Table(table) == nil {
		return nil, ovsdb.ErrNotConnected
	}
	rows := tables.Table(table).RowsShallow()
	out := make([]T, 0, len(rows))
	for _, row := range rows {
		out = append(out, row.(T))
	}
	return out, nil
}

// Get reads the row with the name set in row, or returns false.
func Get(ctx context.Context, c client.Client, row model.Model) (bool, error) {
	err := c.Get(ctx, row)
	if errors.Is(err, client.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading Open vSwitch's database: %w", err)
	}
	return true, nil
}

// FindPort returns the port of a bridge and its interface, or nil. A port of the same name in another bridge is a
// conflict.
func FindPort(ctx context.Context, c client.Client, bridge, name string) (*vswitchdb.Port, *vswitchdb.Interface, error) {
	port := &vswitchdb.Port{Name: name}
	if ok, err := Get(ctx, c, port); !ok || err != nil {
		return nil, nil, err
	}
	br, err := BridgeOf(ctx, c, port.UUID)
	if err != nil {
		return nil, nil, err
	}
	if br == nil || br.Name != bridge {
		other := "no bridge"
		if br != nil {
			other = "bridge " + br.Name
		}
		return nil, nil, Conflict("port %s belongs to %s already", name, other)
	}
	iface := &vswitchdb.Interface{Name: name}
	ok, err := Get(ctx, c, iface)
	if err != nil {
		return nil, nil, err
	}
	if !ok || !slices.Equal(port.Interfaces, []string{iface.UUID}) {
		return nil, nil, Conflict("port %s of bridge %s is a bond of other interfaces", name, bridge)
	}
	return port, iface, nil
}

// BridgeOf returns the bridge of a port, or nil.
func BridgeOf(ctx context.Context, c client.Client, port string) (*vswitchdb.Bridge, error) {
	var bridges []*vswitchdb.Bridge
	if err := List(ctx, c, &bridges); err != nil {
		return nil, err
	}
	for _, b := range bridges {
		if slices.Contains(b.Ports, port) {
			return b, nil
		}
	}
	return nil, nil
}
