// Package announce tells the LANs of the gateways on this host which addresses they answer for, and asks their next hops for
// their MACs.
package announce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/southbound"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// Announcements of addresses by the gateway that begins to answer for them. Otherwise hosts would keep the former
// gateway's MAC for up to a minute (RFC 4861 section 7.3), and switches its port.
const (
	// announceTimes and announceEvery are MAX_NEIGHBOR_ADVERTISEMENT and RetransTimer of RFC 4861, section 10.
	announceTimes = 3
	announceEvery = time.Second
	// announceBatch frames are sent at once, every announcePause.
	announceBatch = 256
	announcePause = 20 * time.Millisecond
	// southRetry is the pause before another try to reach the Southbound database.
	southRetry = 10 * time.Second
)

// Intervals of requests for the MACs of a gateway's next hops. OVN keeps a MAC for a day and never verifies it, as
// hosts do after half a minute (RFC 4861 section 7.3): a router replaced unnoticed would be unreachable for that
// long. The first intervals double, since br-int may be without flows after a boot.
const (
	askFirst = time.Second
	askEvery = time.Minute
)

// An Uplink is a port by which the router of a gateway on this host is connected to its LAN.
type Uplink struct {
	gateway string
	nic     string // the interface
	port    string // the logical port
	hops    string // the next hops of the gateway's router, with commas
}

// Shared is the bridge shared by the host and a gateway, and the NIC in it; or empty.
type Shared struct{ Bridge, NIC string }

// uplinkOf returns the uplink of a port of br-int. It reports false for other ports.
func (s Shared) uplinkOf(i vswitch.Interface) (Uplink, bool) {
	u := Uplink{gateway: i.ExternalIDs[names.GatewayTag], nic: i.Name, port: i.ExternalIDs[names.IfaceID], hops: i.ExternalIDs[names.NextHops]}
	if i.Name == names.PatchFromIntegration(s.Bridge) {
		u.nic = s.NIC
	}
	is := i.Bridge == names.IntegrationBridge && u.gateway != "" && u.port != "" && i.Name != names.PatchFromIntegration(names.LocalBridge)
	return u, is && (i.Type != "patch" || u.nic != i.Name)
}

// Uplinks returns the uplinks of all gateways on this host.
func (s Shared) Uplinks(all []vswitch.Interface) map[Uplink]bool {
	out := map[Uplink]bool{}
	for _, i := range all {
		if u, ok := s.uplinkOf(i); ok {
			out[u] = true
		}
	}
	return out
}

// An Announcer announces the addresses of gateways.
type Announcer struct {
	config   config.Config
	log      *logrus.Entry
	uplinks  chan map[Uplink]bool // of gateways here; the latest
	datapath func(router, uuid string)
}

// New returns an Announcer. datapath is called with the UUID of the Datapath_Binding of each gateway's router.
func New(c config.Config, log *logrus.Entry, datapath func(router, uuid string)) *Announcer {
	return &Announcer{config: c, log: log, uplinks: make(chan map[Uplink]bool, 1), datapath: datapath}
}

// Set replaces the uplinks. It does not block.
func (n *Announcer) Set(now map[Uplink]bool) {
	for {
		select {
		case n.uplinks <- now:
			return
		case <-n.uplinks: // outdated
		}
	}
}

// Run runs a goroutine for each uplink, until ctx ends.
func (n *Announcer) Run(ctx context.Context) {
	running := map[Uplink]func(){}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-n.uplinks:
			for u, stop := range running {
				if !now[u] {
					stop()
					delete(running, u)
				}
			}
			for u := range now {
				if running[u] == nil {
					running[u] = n.start(ctx, u)
				}
			}
		}
	}
}

// start announces the addresses of an uplink's gateway until stop is called.
func (n *Announcer) start(ctx context.Context, u Uplink) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	answers, followed, announced := make(chan southbound.Answers, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(followed)
		n.follow(ctx, u, answers)
	}()
	go func() {
		defer close(announced)
		n.announce(ctx, u, answers)
	}()
	return func() {
		cancel()
		<-followed
		<-announced
	}
}

// follow sends the addresses of an uplink's gateway. Only the latest value stays in the channel.
func (n *Announcer) follow(ctx context.Context, u Uplink, answers chan southbound.Answers) {
	if n.config.OVNRemote == "" {
		return
	}
	of := southbound.RouterPort{Router: names.GatewayRouter(u.gateway), Port: names.RouterToExternal(u.gateway), NIC: u.port}
	last := ""
	for ctx.Err() == nil {
		err := southbound.FollowAnswers(ctx, n.config, of, n.log, func(a southbound.Answers) {
			n.datapath(of.Router, a.Datapath)
			for {
				select {
				case answers <- a:
					return
				case <-answers:
				}
			}
		})
		if ctx.Err() == nil && err != nil && err.Error() != last {
			last = err.Error()
			n.log.Warnf("gateway %s: addresses of Services are not announced on %s, hosts find them when they ask again: %v", u.gateway, u.nic, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(southRetry):
		}
	}
}

// announce sends gratuitous ARP and unsolicited neighbour advertisements for new addresses of the gateway, and asks
// its next hops for their MACs.
func (n *Announcer) announce(ctx context.Context, u Uplink, answers <-chan southbound.Answers) {
	var latest southbound.Answers
	var due announcements
	last := ""
	complain := func(err error) {
		if err != nil && err.Error() != last {
			last = err.Error()
			n.log.Warnf("gateway %s: %v", u.gateway, err)
		}
	}
	timer, asking, wait := time.NewTimer(0), time.NewTimer(askFirst), askFirst
	defer timer.Stop()
	defer asking.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-answers:
			if same := now.VLAN == latest.VLAN && slices.Equal(now.MAC, latest.MAC); !same {
				due, wait = announcements{}, askFirst
				asking.Reset(0)
			}
			latest = now
			fresh := due.update(now.Addrs)
			if len(fresh) == 0 || len(now.MAC) == 0 {
				continue
			}
			n.log.Infof("gateway %s answers for %s and announces that on %s", u.gateway, some(fresh), u.nic)
		case <-asking.C:
			complain(inquire(u, latest))
			asking.Reset(wait)
			wait = min(2*wait, askEvery)
			continue
		case <-timer.C:
		}
		batch, pause := due.next()
		complain(send(u.nic, latest, batch))
		if pause > 0 {
			timer.Reset(pause)
		}
	}
}

// some formats the first of some addresses and the number of others.
func some(addrs []netip.Addr) string {
	const first = 4
	if len(addrs) > first {
		return fmt.Sprintf("%s and %d more", ipnet.Join(addrs[:first]), len(addrs)-first)
	}
	return ipnet.Join(addrs)
}

// send announces addresses by a NIC.
func send(nic string, a southbound.Answers, addrs []netip.Addr) error {
	if len(addrs) == 0 || len(a.MAC) == 0 {
		return nil
	}
	i, err := wire(nic, a)
	if err != nil {
		return fmt.Errorf("addresses of Services are not announced on %s: %w", nic, err)
	}
	return garp.Announce(i, addrs)
}

// wire returns a NIC as used by a router behind it.
func wire(nic string, a southbound.Answers) (garp.Interface, error) {
	i, err := ifstate.Find(nic)
	return garp.Interface{Name: i.Name, Index: i.Index, MAC: a.MAC, VLAN: a.VLAN}, err
}

// inquire asks the next hops of a gateway's router for their MACs, with the router as sender: so it gets the answers.
func inquire(u Uplink, a southbound.Answers) error {
	questions := u.questions(a.Own)
	if len(questions) == 0 || len(a.MAC) == 0 {
		return nil
	}
	i, err := wire(u.nic, a)
	if err == nil {
		err = garp.Inquire(i, questions)
	}
	if err != nil {
		return fmt.Errorf("next hops are not asked for their MACs on %s: %w", u.nic, err)
	}
	return nil
}

// questions returns a router's requests for the MACs of its next hops, given its own addresses on the LAN.
func (u Uplink) questions(own []netip.Prefix) (all []garp.Question) {
	for word := range strings.SplitSeq(u.hops, ",") {
		hop, err := netip.ParseAddr(word)
		if err != nil {
			continue
		}
		for _, from := range own {
			if from.Addr().Is4() == hop.Is4() {
				all = append(all, garp.Question{From: from.Addr(), Target: hop})
				break
			}
		}
	}
	return all
}

// announcements are due. The zero value is empty.
type announcements struct {
	known map[netip.Addr]bool
	left  map[netip.Addr]int // number of further announcements
	queue []netip.Addr       // of this round
}

// update records all present addresses, and returns the new ones.
func (n *announcements) update(addrs []netip.Addr) (fresh []netip.Addr) {
	now := make(map[netip.Addr]bool, len(addrs))
	left := map[netip.Addr]int{}
	for _, a := range addrs {
		now[a] = true
		if !n.known[a] {
			fresh = append(fresh, a)
			left[a] = announceTimes - 1
		} else if n.left[a] > 0 {
			left[a] = n.left[a]
		}
	}
	n.queue = append(slices.DeleteFunc(n.queue, func(a netip.Addr) bool { return !now[a] }), fresh...)
	n.known, n.left = now, left
	return fresh
}

// next returns the addresses to announce now, and the pause before the next call: 0 if nothing is left.
func (n *announcements) next() (batch []netip.Addr, pause time.Duration) {
	if len(n.queue) == 0 {
		for a := range n.left {
			n.queue = append(n.queue, a)
			if n.left[a]--; n.left[a] == 0 {
				delete(n.left, a)
			}
		}
		slices.SortFunc(n.queue, netip.Addr.Compare)
	}
	batch = n.queue[:min(len(n.queue), announceBatch)]
	n.queue = n.queue[len(batch):]
	switch {
	case len(n.queue) > 0:
		return batch, announcePause
	case len(n.left) > 0:
		return batch, announceEvery
	}
	return batch, 0
}
