package watcher

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ovn-kubernetes/libovsdb/cache"
	"github.com/ovn-kubernetes/libovsdb/model"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
	"ovn-k8s/lib/nb/nbdb"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/sbdb"
)

// How the hosts of gateways are asked whether they live. A dead one is noticed
// after deadAfter intervals, four seconds, and what the databases and hosts need
// then is to fit into ten.
const (
	askInterval = time.Second
	askTimeout  = 900 * time.Millisecond
	deadAfter   = 3 // times without an answer
	aliveAfter  = 2 // answers
)

// askedPorts are TCP ports of which one is likely to let packets in on a node:
// the number that Geneve has with UDP, and the kubelet's. Nothing needs to listen:
// that a connection is refused is an answer, too. The second is asked only where
// the first is silent, since a kubelet complains of connections without TLS.
var askedPorts = []uint16{6081, 10250}

// A vigil asks the hosts of gateways whether they live, while there are several
// gateways.
//
// OVN itself would tell by BFD, between ports of gateway routers. But then every
// gateway has to send to several others, whoever is right if two accuse each
// other; it needs routes in each gateway for nothing but that; and the userspace
// datapath of Open vSwitch 3.1 aborts (an assertion of its connection tracker)
// a minute after the first such packet. Raising nb_cfg, to which each
// ovn-controller answers in Chassis_Private, has ovn-northd compute everything
// again each time and every host write. So this costs the databases nothing.
type vigil struct {
	changed func(desired.Silent) // called with each new verdict; must not block

	mu      sync.Mutex
	hosts   map[string]*askedHost // by gateway
	wakeups chan struct{}
}

// An askedHost is the host of one gateway.
type askedHost struct {
	addrs  []netip.Addr
	silent bool
	row    int // how many answers in a row contradict silent
}

func newVigil(changed func(desired.Silent)) *vigil {
	return &vigil{changed: changed, hosts: map[string]*askedHost{}, wakeups: make(chan struct{}, 1)}
}

// watch sets the gateways whose hosts are asked, and returns the verdicts. Of a
// new one it is what silent says.
func (v *vigil) watch(hosts map[string][]netip.Addr, silent func(gateway string) bool) desired.Silent {
	v.mu.Lock()
	defer v.mu.Unlock()
	several := len(v.hosts) > 1
	for name := range v.hosts {
		if _, there := hosts[name]; !there {
			delete(v.hosts, name)
		}
	}
	for name, addrs := range hosts {
		if v.hosts[name] == nil {
			v.hosts[name] = &askedHost{silent: silent(name)}
		}
		v.hosts[name].addrs = addrs
	}
	if len(v.hosts) > 1 && !several {
		select {
		case v.wakeups <- struct{}{}:
		default:
		}
	}
	return v.verdict()
}

// verdict lists the hosts that do not answer. v.mu is held.
func (v *vigil) verdict() desired.Silent {
	silent := desired.Silent{}
	for name, h := range v.hosts {
		if h.silent {
			silent[name] = true
		}
	}
	return silent
}

// run asks until ctx ends.
func (v *vigil) run(ctx context.Context) {
	ticker := time.NewTicker(askInterval)
	defer ticker.Stop()
	for {
		next := (<-chan time.Time)(ticker.C)
		if !v.ask(ctx) {
			next = nil // until there are several gateways
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		case <-v.wakeups:
		}
	}
}

// ask asks all hosts once, at the same time. It reports whether there are
// several gateways.
func (v *vigil) ask(ctx context.Context) bool {
	v.mu.Lock()
	hosts := map[string][]netip.Addr{}
	for name, h := range v.hosts {
		hosts[name] = h.addrs
	}
	v.mu.Unlock()
	if len(hosts) < 2 {
		return false
	}
	var mu sync.Mutex // guards answered
	answered := map[string]bool{}
	var wg sync.WaitGroup
	for name, addrs := range hosts {
		wg.Go(func() {
			ok := len(addrs) == 0 || answers(ctx, addrs) // of which nothing is known
			mu.Lock()
			defer mu.Unlock()
			answered[name] = ok
		})
	}
	wg.Wait()
	if ctx.Err() == nil {
		v.judge(answered)
	}
	return true
}

// judge takes in who has answered.
func (v *vigil) judge(answered map[string]bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	turned := false
	for name, ok := range answered {
		h := v.hosts[name]
		if h == nil {
			continue
		}
		if ok != h.silent {
			h.row = 0
			continue
		}
		enough := deadAfter
		if h.silent {
			enough = aliveAfter
		}
		if h.row++; h.row >= enough {
			h.silent, h.row, turned = !ok, 0, true
		}
	}
	if turned {
		v.changed(v.verdict())
	}
}

// answers reports whether anything answers at one of the addresses.
func answers(ctx context.Context, addrs []netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	result := make(chan bool, len(addrs)*len(askedPorts))
	for _, a := range addrs {
		for i, port := range askedPorts {
			go func() { result <- answersAfter(ctx, time.Duration(i)*askTimeout/3, netip.AddrPortFrom(a, port)) }()
		}
	}
	for range cap(result) {
		if <-result {
			return true
		}
	}
	return false
}

// answersAfter waits, and then reports whether a host answers, be it with no.
func answersAfter(ctx context.Context, wait time.Duration, to netip.AddrPort) bool {
	if wait > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(wait):
		}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to.String())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// watchGateways tells the vigil which gateways there are, if they may be others than before.
func (e *engine) watchGateways() []nb.Unit {
	if !e.hostsChanged {
		return nil
	}
	e.hostsChanged = false
	led := sync.OnceValue(func() map[string]bool { return ledTo(e.links.db) })
	return e.world.Put(e.vigil.watch(e.world.GatewayHosts(), func(name string) bool {
		gateways := led()
		return gateways != nil && !gateways[name]
	}))
}

// ledTo returns the gateways to which the database has routes, nil if that is not known: one to which
// there are none was dead before the watcher started.
func ledTo(db *ovsdb.DB) map[string]bool {
	c := db.Client()
	if c == nil {
		return nil
	}
	rows := c.Cache()
	if rows == nil {
		return nil
	}
	led := map[string]bool{}
	for _, table := range []string{nbdb.LogicalRouterStaticRouteTable, nbdb.LogicalRouterPolicyTable} {
		for _, m := range rows.Table(table).RowsShallow() {
			ids := m.(interface{ GetExternalIDs() map[string]string }).GetExternalIDs()
			if name, ok := topology.GatewayOf(nb.Unit(ids[names.Owner])); ok && strings.HasPrefix(ids[names.ID], name+"/") {
				led[name] = true
			}
		}
	}
	return led
}

// silent records which hosts of gateways do not answer, and says so.
func (e *engine) silent(s desired.Silent) []nb.Unit {
	return e.judged(func() []nb.Unit { return e.world.Put(s) })
}

// judged says which gateways are dead or alive by what record records.
func (e *engine) judged(record func() []nb.Unit) []nb.Unit {
	before, absent := e.world.DeadGateways(), e.world.Absent()
	touched := record()
	e.warnAbsent(absent, e.world.Absent())
	now := e.world.DeadGateways()
	for _, name := range now {
		if !slices.Contains(before, name) {
			e.log.WithField("gateway", name).Warnf("is dead: nothing leads there until its host is registered in the Southbound database and answers at %s, TCP port %d or %d", e.addressesOf(name), askedPorts[0], askedPorts[1])
		}
	}
	for _, name := range before {
		if !slices.Contains(now, name) {
			e.log.WithField("gateway", name).Info("is alive again")
		}
	}
	return touched
}

// addressesOf are the addresses of a gateway's host, for people.
func (e *engine) addressesOf(gateway string) string {
	var all []string
	for _, a := range e.world.GatewayHosts()[gateway] {
		all = append(all, a.String())
	}
	if all == nil {
		return "an address, of which none is known"
	}
	return strings.Join(all, " or ")
}

// southRetry is how long to wait for a Southbound database that is not there.
const southRetry = 10 * time.Second

// followChassis follows which hosts are registered in the Southbound database,
// until ctx ends. An ovn-controller that is stopped takes its host out of there.
// Without a Southbound database, only the hosts' answers count.
func (e *engine) followChassis(ctx context.Context) {
	if e.links.config.OVNRemote == "" {
		return
	}
	said := ""
	for ctx.Err() == nil {
		sb, err := ovsdb.OpenSouth(ctx, e.links.config, e.log)
		if err == nil {
			e.serveSouth(ctx, sb)
			sb.Close()
			return
		}
		if err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			e.log.Warnf("going on without the Southbound database, to which gateways that are stopped are known: %v", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(southRetry):
		}
	}
}

// serveSouth passes on which hosts are registered, until ctx ends.
func (e *engine) serveSouth(ctx context.Context, sb *ovsdb.DB) {
	tellDatapath, stop := e.followDatapath(sb)
	defer stop()
	tell := func() {
		tellDatapath()
		e.send(func() []nb.Unit {
			chassis, ok := sb.Chassis()
			if !ok {
				return nil // what was known last is the best there is
			}
			touched := e.world.Put(desired.Tunnels(sb.Tunnels()))
			return append(touched, e.judged(func() []nb.Unit { return e.world.Put(desired.Chassis(chassis)) })...)
		})
	}
	defer sb.Handle(&cache.EventHandlerFuncs{
		AddFunc: func(string, model.Model) { tell() },
		UpdateFunc: func(table string, _, _ model.Model) {
			if table == sbdb.EncapTable {
				tell()
				return
			}
			tellDatapath()
		},
		DeleteFunc: func(string, model.Model) { tell() },
	})()
	tell()
	_ = sb.Run(ctx, tell, nil) // ends with ctx
}
