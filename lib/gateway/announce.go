package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ovn-k8s/lib/garp"
	"ovn-k8s/lib/ipnet"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// How the addresses that a gateway begins to answer for are announced. Hosts keep the MAC of the gateway that answered
// before for up to a minute (RFC 4861 section 7.3), and switches its port.
const (
	// announceTimes and announceEvery are MAX_NEIGHBOR_ADVERTISEMENT and RetransTimer of RFC 4861, section 10.
	announceTimes = 3
	announceEvery = time.Second
	// announceBatch frames are sent at once, every announcePause.
	announceBatch = 256
	announcePause = 20 * time.Millisecond
	// southRetry is how long to wait for a Southbound database that is not there.
	southRetry = 10 * time.Second
)

// How often the next hops of a gateway are asked for their MACs. OVN keeps a MAC for a day and never asks whether it is
// still right, as hosts do after half a minute (RFC 4861 section 7.3): a router that was replaced while nobody here
// listened would be lost for that long. The first pauses double, since br-int may be without flows after a boot.
const (
	askFirst = time.Second
	askEvery = time.Minute
)

// An uplink is where the router of a gateway on this host meets its LAN.
type uplink struct {
	gateway string
	nic     string // the interface
	port    string // the logical port
	hops    string // the next hops of the gateway's router, with commas
}

// uplink is that of a port of br-int. It reports false for other ports.
func (h *Helper) uplink(i vswitch.Interface) (uplink, bool) {
	u := uplink{gateway: i.ExternalIDs[names.GatewayTag], nic: i.Name, port: i.ExternalIDs[names.IfaceID], hops: i.ExternalIDs[names.NextHops]}
	if i.Name == names.PatchFromIntegration(h.Bridge) {
		u.nic = h.Interface
	}
	is := i.Bridge == names.IntegrationBridge && u.gateway != "" && u.port != "" && i.Name != names.PatchFromIntegration(names.LocalBridge)
	return u, is && (i.Type != "patch" || u.nic != i.Name)
}

// uplinks are those of all gateways on this host.
func (h *Helper) uplinks(all []vswitch.Interface) map[uplink]bool {
	out := map[uplink]bool{}
	for _, i := range all {
		if u, ok := h.uplink(i); ok {
			out[u] = true
		}
	}
	return out
}

// setUplinks has the gateways on this host announce what they answer for. It does not block.
func (e *engine) setUplinks(all []vswitch.Interface) {
	now := e.helper.uplinks(all)
	for {
		select {
		case e.uplinks <- now:
			return
		case <-e.uplinks: // is out of date
		}
	}
}

// announceAll runs a goroutine for each uplink, until ctx ends.
func (e *engine) announceAll(ctx context.Context) {
	running := map[uplink]func(){}
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-e.uplinks:
			for u, stop := range running {
				if !now[u] {
					stop()
					delete(running, u)
				}
			}
			for u := range now {
				if running[u] == nil {
					running[u] = e.startAnnouncing(ctx, u)
				}
			}
		}
	}
}

// startAnnouncing announces what the gateway of an uplink answers for, until stop is called.
func (e *engine) startAnnouncing(ctx context.Context, u uplink) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	answers, followed, announced := make(chan ovsdb.Answers, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(followed)
		e.followAnswers(ctx, u, answers)
	}()
	go func() {
		defer close(announced)
		e.announce(ctx, u, answers)
	}()
	return func() {
		cancel()
		<-followed
		<-announced
	}
}

// followAnswers sends what the gateway of an uplink answers for, of which only the latest counts.
func (e *engine) followAnswers(ctx context.Context, u uplink, answers chan ovsdb.Answers) {
	if e.config.OVNRemote == "" {
		return
	}
	of := ovsdb.RouterPort{Router: names.GatewayRouter(u.gateway), Port: names.RouterToExternal(u.gateway), NIC: u.port}
	said := ""
	for ctx.Err() == nil {
		err := ovsdb.FollowAnswers(ctx, e.config, of, e.log, func(a ovsdb.Answers) {
			for {
				select {
				case answers <- a:
					return
				case <-answers:
				}
			}
		})
		if ctx.Err() == nil && err != nil && err.Error() != said {
			said = err.Error()
			e.log.Warnf("gateway %s: addresses of Services are not announced on %s, hosts find them when they ask again: %v", u.gateway, u.nic, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(southRetry):
		}
	}
}

// announce sends gratuitous ARP and unsolicited neighbor advertisements for what the gateway begins to answer for, and
// asks its next hops for their MACs.
func (e *engine) announce(ctx context.Context, u uplink, answers <-chan ovsdb.Answers) {
	var latest ovsdb.Answers
	var due announcements
	said := ""
	complain := func(err error) {
		if err != nil && err.Error() != said {
			said = err.Error()
			e.log.Warnf("gateway %s: %v", u.gateway, err)
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
			e.log.Infof("gateway %s answers for %s and announces that on %s", u.gateway, some(fresh), u.nic)
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

// some lists the first of some addresses.
func some(addrs []netip.Addr) string {
	const first = 4
	if len(addrs) > first {
		return fmt.Sprintf("%s and %d more", ipnet.Join(addrs[:first]), len(addrs)-first)
	}
	return ipnet.Join(addrs)
}

// send announces addresses by a NIC.
func send(nic string, a ovsdb.Answers, addrs []netip.Addr) error {
	if len(addrs) == 0 || len(a.MAC) == 0 {
		return nil
	}
	i, err := wire(nic, a)
	if err != nil {
		return fmt.Errorf("addresses of Services are not announced on %s: %w", nic, err)
	}
	return garp.Announce(i, addrs)
}

// wire is a NIC as a router behind it uses it.
func wire(nic string, a ovsdb.Answers) (garp.Interface, error) {
	i, err := ifstate.Find(nic)
	return garp.Interface{Name: i.Name, Index: i.Index, MAC: a.MAC, VLAN: a.VLAN}, err
}

// inquire asks the next hops of a gateway's router for their MACs, in its name: it hears the answers.
func inquire(u uplink, a ovsdb.Answers) error {
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

// questions are those of a router with its own addresses on the LAN: who are the next hops?
func (u uplink) questions(own []netip.Prefix) (all []garp.Question) {
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

// announcements are those that are due. The zero value is empty.
type announcements struct {
	known map[netip.Addr]bool
	left  map[netip.Addr]int // how many times more
	queue []netip.Addr       // of this round
}

// update records all addresses there are, and returns those that are new.
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

// next returns what to announce now, and when to call it again: 0 if nothing is left.
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
