package southbound

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"
	libovsdb "github.com/ovn-kubernetes/libovsdb/ovsdb"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
)

// A RouterPort is the port of a logical router on a LAN.
type RouterPort struct {
	Router string // the logical router
	Port   string // its port on the LAN
	NIC    string // the logical port of the NIC; a VLAN is a port within it
}

// Answers are the addresses for which a logical router answers ARP requests and neighbor solicitations, in addition
// to its own.
type Answers struct {
	MAC   net.HardwareAddr
	VLAN  int          // 0: none
	Addrs []netip.Addr // sorted
	// Own are the router's own addresses on the LAN.
	Own []netip.Prefix
	// Datapath is the UUID of the router's Datapath_Binding.
	Datapath string

	key int // of the router's datapath
}

// FollowAnswers calls changed with the Answers of a logical router, read from the Southbound database, now and
// after each change, until ctx ends or the connection cannot be made. It reads the rows of this router only.
func FollowAnswers(ctx context.Context, c config.Config, of RouterPort, log *logrus.Entry, changed func(Answers)) error {
	for key := 0; ctx.Err() == nil; {
		db, err := open(ctx, c, answersModel(), log, of.tables(key))
		if err != nil {
			return err
		}
		key = followAnswers(ctx, db, of, key, changed)
	}
	return context.Cause(ctx)
}

// followAnswers calls changed as long as the datapath of the router has a key, and returns the router's next key.
func followAnswers(ctx context.Context, db *ovsdb.DB, of RouterPort, key int, changed func(Answers)) int {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	other := make(chan int, 1)
	var telling sync.Mutex // so that an older state never comes last: Run and events call tell
	tell := func() {
		telling.Lock()
		defer telling.Unlock()
		a, ok := answers(db, of)
		switch {
		case ok && a.key != key:
			select {
			case other <- a.key:
			default:
			}
			cancel() // other Address_Sets are to be followed
		case ok && key != 0:
			changed(a)
		}
	}
	defer db.Handle(&cache.EventHandlerFuncs{
		AddFunc:    func(string, model.Model) { tell() },
		UpdateFunc: func(string, model.Model, model.Model) { tell() },
		DeleteFunc: func(string, model.Model) { tell() },
	})()
	_ = db.Run(ctx, tell, nil) // ends with ctx
	select {
	case key = <-other:
	default:
	}
	return key
}

func answersModel() map[string]model.Model {
	return map[string]model.Model{
		sbdb.DatapathBindingTable: &sbdb.DatapathBinding{}, sbdb.AddressSetTable: &sbdb.AddressSet{}, sbdb.PortBindingTable: &sbdb.PortBinding{},
	}
}

// answerSets are the Address_Sets in which ovn-northd lists a router's load balancer addresses
// (lr_lb_address_set_name in OVN's ovn-util.c, 22.03 to 26.03).
func answerSets(key int) []string {
	return []string{fmt.Sprintf("_rtr_lb_%d_ip4", key), fmt.Sprintf("_rtr_lb_%d_ip6", key)}
}

// tables are the tables to follow for a router with a datapath key; 0 means unknown.
func (p RouterPort) tables(key int) []ovsdb.Table {
	named := libovsdb.OvsMap{GoMap: map[any]any{"name": p.Router}}
	var sets []libovsdb.Condition
	for _, name := range answerSets(key) {
		sets = append(sets, libovsdb.NewCondition("name", libovsdb.ConditionEqual, name))
	}
	return []ovsdb.Table{
		{Name: sbdb.DatapathBindingTable, Columns: []string{"external_ids", "tunnel_key"}, Where: []libovsdb.Condition{
			libovsdb.NewCondition("external_ids", libovsdb.ConditionIncludes, named),
		}},
		{Name: sbdb.AddressSetTable, Columns: []string{"name", "addresses"}, Where: sets},
		{Name: sbdb.PortBindingTable, Columns: []string{"logical_port", "mac", "parent_port", "tag"}, Where: []libovsdb.Condition{
			libovsdb.NewCondition("logical_port", libovsdb.ConditionEqual, p.Port),
			libovsdb.NewCondition("parent_port", libovsdb.ConditionEqual, p.NIC),
		}},
	}
}

// answers reads a router's Answers from the cache. ok is false without a connection.
func answers(db *ovsdb.DB, of RouterPort) (a Answers, ok bool) {
	rows := db.Cache()
	if rows == nil {
		return a, false
	}
	for _, m := range rows.Table(sbdb.DatapathBindingTable).RowsShallow() {
		if row := m.(*sbdb.DatapathBinding); row.ExternalIDs["name"] == of.Router {
			a.key, a.Datapath = row.TunnelKey, row.UUID
		}
	}
	for _, m := range rows.Table(sbdb.PortBindingTable).RowsShallow() {
		row := m.(*sbdb.PortBinding)
		if words := strings.Fields(strings.Join(row.MAC, " ")); row.LogicalPort == of.Port && len(words) > 0 {
			a.MAC, _ = net.ParseMAC(words[0])
			for _, word := range words[1:] {
				if own, err := netip.ParsePrefix(word); err == nil {
					a.Own = append(a.Own, own)
				}
			}
		}
		if row.ParentPort != nil && *row.ParentPort == of.NIC && row.Tag != nil {
			a.VLAN = *row.Tag
		}
	}
	for _, m := range rows.Table(sbdb.AddressSetTable).RowsShallow() {
		row := m.(*sbdb.AddressSet)
		if !slices.Contains(answerSets(a.key), row.Name) {
			continue
		}
		for _, text := range row.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				a.Addrs = append(a.Addrs, addr)
			}
		}
	}
	slices.SortFunc(a.Addrs, netip.Addr.Compare)
	return a, true
}
