// Package southbound reads OVN's Southbound database (ovn-sb(5)): the registered
// hosts, logical ports, and the addresses for which a router answers.
package southbound

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
)

// A DB is a Southbound database whose registered hosts are followed.
type DB struct{ *ovsdb.DB }

// Open connects to ovn-controller's Southbound database and follows the registered hosts: see Chassis and
// Tunnels. log may be nil.
func Open(ctx context.Context, c config.Config, log *logrus.Entry) (*DB, error) {
	tables := map[string]model.Model{sbdb.ChassisTable: &sbdb.Chassis{}, sbdb.EncapTable: &sbdb.Encap{}}
	db, err := open(ctx, c, tables, log, []ovsdb.Table{{Name: sbdb.ChassisTable, Columns: []string{"name", "other_config"}}, {Name: sbdb.EncapTable, Columns: []string{"chassis_name", "ip"}}})
	if err != nil {
		return nil, err
	}
	return &DB{db}, nil
}

// open connects to the Southbound database and follows some tables.
func open(ctx context.Context, c config.Config, models map[string]model.Model, log *logrus.Entry, tables []ovsdb.Table) (*ovsdb.DB, error) {
	remotes, err := config.ParseRemotes(c.OVNRemote)
	if err != nil {
		return nil, fmt.Errorf("reading external_ids:ovn-remote: %w", err)
	}
	var tlsConfig *tls.Config
	if slices.ContainsFunc(remotes, func(r string) bool { return strings.HasPrefix(r, "ssl:") }) {
		files := ovsdb.Files{PrivateKey: c.SBPrivateKey, Certificate: c.SBCertificate, CACert: c.SBCACert}
		if tlsConfig, err = ovsdb.TLSConfig(ctx, files, remotes, io.Discard); err != nil {
			return nil, err
		}
	}
	m, err := model.NewClientDBModel("OVN_Southbound", models)
	if err != nil {
		return nil, fmt.Errorf("making the Southbound model: %w", err)
	}
	return ovsdb.Open(ctx, ovsdb.Options{
		Name: "SB", Remotes: remotes, TLS: tlsConfig, Model: m, Needs: "OVN 23.03", AnyMember: true, Log: log,
		Tables: tables,
	})
}

// Chassis are the system-ids of the hosts registered in the database. ok is false without a
// connection.
func (db *DB) Chassis() (ids map[string]bool, ok bool) {
	ids, _, ok = db.Hosts()
	return ids, ok
}

// Tunnels are the tunnel addresses of the hosts of Chassis, sorted, by system-id. They are nil without a
// connection.
func (db *DB) Tunnels() map[string][]netip.Addr {
	_, tunnels, _ := db.Hosts()
	return tunnels
}

// Hosts are Chassis and Tunnels of one connection: it may end between two calls.
func (db *DB) Hosts() (ids map[string]bool, tunnels map[string][]netip.Addr, ok bool) {
	all := db.Cache()
	if all == nil {
		return nil, nil, false
	}
	ids = map[string]bool{}
	for _, m := range all.Table(sbdb.ChassisTable).RowsShallow() {
		ids[m.(*sbdb.Chassis).Name] = true
	}
	tunnels = map[string][]netip.Addr{}
	for _, m := range all.Table(sbdb.EncapTable).RowsShallow() {
		e := m.(*sbdb.Encap)
		if a, err := netip.ParseAddr(e.IP); err == nil && !slices.Contains(tunnels[e.ChassisName], a) {
			tunnels[e.ChassisName] = append(tunnels[e.ChassisName], a)
		}
	}
	for _, list := range tunnels {
		slices.SortFunc(list, netip.Addr.Compare)
	}
	return ids, tunnels, true
}

// CMSOptions are the ovn-cms-options of registered hosts, by system-id and option name: see ovn-controller(8). ok
// is false without a connection.
func (db *DB) CMSOptions() (options map[string]map[string]string, ok bool) {
	all := db.Cache()
	if all == nil {
		return nil, false
	}
	options = map[string]map[string]string{}
	for _, m := range all.Table(sbdb.ChassisTable).RowsShallow() {
		row := m.(*sbdb.Chassis)
		options[row.Name] = map[string]string{}
		for word := range strings.SplitSeq(row.OtherConfig["ovn-cms-options"], ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(word), ":")
			options[row.Name][name] = value
		}
	}
	return options, true
}

// PortBindings are the logical ports in the Southbound database. They are read once, and not followed.
func (db *DB) PortBindings(ctx context.Context) (map[string]bool, error) {
	results, err := db.Transact(ctx, []libovsdb.Operation{{
		Op: libovsdb.OperationSelect, Table: "Port_Binding", Columns: []string{"logical_port"},
		// True of all rows; libovsdb does not send an empty condition.
		Where: []libovsdb.Condition{libovsdb.NewCondition("tunnel_key", libovsdb.ConditionGreaterThanOrEqual, 1)},
	}})
	if err != nil {
		return nil, fmt.Errorf("reading Port_Binding: %w", err)
	}
	return logicalPorts(results[0].Rows), nil
}

// PortsDown are the logical ports in the Southbound database not yet made by a host. They are read once, and not
// followed.
func (db *DB) PortsDown(ctx context.Context) (map[string]bool, error) {
	results, err := db.Transact(ctx, []libovsdb.Operation{{
		Op: libovsdb.OperationSelect, Table: "Port_Binding", Columns: []string{"logical_port"},
		Where: []libovsdb.Condition{libovsdb.NewCondition("up", libovsdb.ConditionEqual, false)},
	}})
	if err != nil {
		return nil, fmt.Errorf("reading Port_Binding: %w", err)
	}
	return logicalPorts(results[0].Rows), nil
}

// HasAddress reports whether an address set in the Southbound database has an address. It is read once, and not followed.
func (db *DB) HasAddress(ctx context.Context, set, address string) (bool, error) {
	results, err := db.Transact(ctx, []libovsdb.Operation{{
		Op: libovsdb.OperationSelect, Table: "Address_Set", Columns: []string{"name"},
		Where: []libovsdb.Condition{
			libovsdb.NewCondition("name", libovsdb.ConditionEqual, set),
			libovsdb.NewCondition("addresses", libovsdb.ConditionIncludes, libovsdb.OvsSet{GoSet: []any{address}}),
		},
	}})
	if err != nil {
		return false, fmt.Errorf("reading Address_Set: %w", err)
	}
	return len(results[0].Rows) > 0, nil
}

func logicalPorts(rows []libovsdb.Row) map[string]bool {
	ports := map[string]bool{}
	for _, row := range rows {
		if name, ok := row["logical_port"].(string); ok {
			ports[name] = true
		}
	}
	return ports
}

// Userspace reports whether a registered chassis has the userspace datapath. ok is false without a connection or a
// chassis.
func (db *DB) Userspace() (userspace, ok bool) {
	all := db.Cache()
	if all == nil {
		return false, false
	}
	rows := all.Table(sbdb.ChassisTable).RowsShallow()
	for _, m := range rows {
		if m.(*sbdb.Chassis).OtherConfig["datapath-type"] == "netdev" {
			userspace = true
		}
	}
	return userspace, len(rows) > 0
}
