package connections

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/tracked"
	"ovn-k8s/test/namespace"
)

const family = netlink.InetFamily(unix.AF_INET)

// at is the NodePort of ofService.
var at = netip.MustParseAddrPort("192.0.2.1:30080")

// connect adds a connection to at to the kernel's table, to which an endpoint answers.
func connect(t *testing.T, endpoint string) {
	t.Helper()
	answers, client := netip.MustParseAddrPort(endpoint), netip.MustParseAddrPort("198.51.100.7:5000")
	err := netlink.ConntrackCreate(netlink.ConntrackTable, family, &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET, TimeOut: 600,
		Forward: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: client.Addr().AsSlice(), SrcPort: client.Port(), DstIP: at.Addr().AsSlice(), DstPort: at.Port()},
		Reverse: netlink.IPTuple{Protocol: unix.IPPROTO_UDP, SrcIP: answers.Addr().AsSlice(), SrcPort: answers.Port(), DstIP: client.Addr().AsSlice(), DstPort: client.Port()},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// connected reports whether the table has the connection.
func connected(t *testing.T) bool {
	t.Helper()
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(f *netlink.ConntrackFlow) bool { return f.Forward.DstPort == at.Port() })
}

// ofService is the table for a UDP Service with a NodePort and endpoints.
func ofService(policyLocal bool, endpoints ...string) tracked.Table {
	s := &service.Resolved{
		Service: service.Service{
			Key: service.Key{Namespace: "default", Name: "dns"}, Type: corev1.ServiceTypeNodePort, Ours: true, ExternalLocal: policyLocal,
			ClusterIPs: []netip.Addr{netip.MustParseAddr("172.30.0.10")},
			Ports:      []service.Port{{Protocol: corev1.ProtocolUDP, Port: 53, NodePort: at.Port()}},
		},
		Endpoints: []service.Endpoints{nil},
	}
	for _, e := range endpoints {
		a := netip.MustParseAddrPort(e)
		s.Endpoints[0] = append(s.Endpoints[0], service.Endpoint{Host: &service.Host{Addr: a.Addr(), Node: "node1", State: service.Serving}, Port: a.Port()})
	}
	host := nodeport.Host{Node: "node1", Addrs: []netip.Addr{at.Addr()}, Management: "k8s-node1"}
	return nodeport.NewTracked(host, nodeport.IPv4, service.AllFrontends([]*service.Resolved{s}, service.Network{}), nil)
}

const a, b, gone = "10.128.1.3:53", "10.128.1.4:53", "10.128.1.9:53"

func newHost(again func()) *Host {
	return &Host{Family: nodeport.IPv4, Log: logrus.NewEntry(logrus.New()), Again: again}
}

// forget calls Forget, and checks whether the connection is tracked after it.
func forget(t *testing.T, h *Host, now tracked.Table, want bool, why string) {
	t.Helper()
	if err := h.Forget(now, nil); err != nil {
		t.Fatal(err)
	}
	if connected(t) != want {
		t.Errorf("%s: tracked: %v", why, !want)
	}
}

// The host's connections are read at first, and not again after changes of a Service that OVN balances.
func TestEndpointsOfOVNDoNotCostTheHostALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes: there are no pauses
		namespace.Enter(t)
		h := newHost(func() {})
		connect(t, a)
		forget(t, h, ofService(false, a, b), true, "an endpoint that is there")
		forget(t, h, ofService(false, b), false, "an endpoint that an earlier process may have chosen goes")
		connect(t, gone)
		for range 3 {
			forget(t, h, ofService(false, a, b), true, "an endpoint comes")
			forget(t, h, ofService(false, b), true, "an endpoint goes")
		}
		forget(t, h, ofService(false), false, "no endpoint is left")
	})
}

// A change during the pause after a look waits for its end, and is not lost.
func TestLooksHavePauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		namespace.Enter(t)
		var calls atomic.Int32
		h := newHost(func() { calls.Add(1) })
		connect(t, a)
		forget(t, h, ofService(true, a, b), true, "an endpoint that is there")
		h.pace.took(time.Second)
		for range 3 {
			forget(t, h, ofService(true, b), true, "an endpoint goes during the pause")
		}
		time.Sleep(readFactor*time.Second - time.Nanosecond)
		synctest.Wait()
		if calls.Load() != 0 {
			t.Error("the pause ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if calls.Load() != 1 {
			t.Errorf("called again %d times", calls.Load())
		}
		forget(t, h, ofService(true, b), false, "after the pause")
		connect(t, gone)
		forget(t, h, ofService(true, b), true, "no change")
		forget(t, h, ofService(true, a, b), false, "a change after a calm time")
		connect(t, b)
		h.pace.took(time.Hour)
		forget(t, h, ofService(true, a), true, "another pause")
		time.Sleep(maxPause)
		synctest.Wait()
		if calls.Load() != 2 {
			t.Error("a pause has no bound")
		}
		forget(t, h, ofService(true, a), false, "after the longest pause")
	})
}

// An endpoint of OVN costs no look if it goes and returns during a pause. Nor is its count forgotten.
func TestEndpointsOfOVNThatReturnCostNoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		namespace.Enter(t)
		h := newHost(func() {})
		pause := func() {
			time.Sleep(readFactor * time.Second)
			synctest.Wait()
		}
		forget(t, h, ofService(false, a, b), false, "the first time all count")
		connect(t, gone) // a look would delete it
		for range 3 {
			h.pace.took(time.Second)
			forget(t, h, ofService(false, b), true, "an endpoint goes during a pause")
			forget(t, h, ofService(false, a, b), true, "it returns")
			pause()
			forget(t, h, ofService(false, a, b), true, "after the pause it is there")
		}
		forget(t, h, ofService(false, b), false, "it goes, and counted until now")
		connect(t, a)
		forget(t, h, ofService(false, a, b), true, "it comes, and does not count")
		forget(t, h, ofService(false, b), true, "it goes, and did not count")
		h.pace.took(time.Second)
		forget(t, h, ofService(false, a), true, "another one goes during a pause")
		pause()
		forget(t, h, ofService(false, a), true, "after the pause: a look")
		for range 3 {
			forget(t, h, ofService(false, a, b), true, "no one counts")
			forget(t, h, ofService(false, b), true, "no one counts any longer")
		}
	})
}

// Other changes during a pause are not lost beside an endpoint's return.
func TestOtherChangesInAPauseCostALook(t *testing.T) {
	none := map[netip.AddrPort]map[netip.AddrPort]bool{}
	for what, during := range map[string]func(*Host){
		"an endpoint comes and goes": func(h *Host) { _ = h.Forget(ofService(true, a, b), nil) },
		"changed rules":              func(h *Host) { _ = h.Forget(ofService(true, b), []string{"a rule"}) },
		"a Service goes and returns": func(h *Host) { _ = h.Forget(tracked.Table{Answers: none, Addrs: ofService(true).Addrs}, nil) },
		"another address":            func(h *Host) { _ = h.Forget(tracked.Table{Answers: ofService(true, b).Answers}, nil) },
	} {
		synctest.Test(t, func(t *testing.T) {
			namespace.Enter(t)
			h := newHost(func() {})
			forget(t, h, ofService(true, b), false, "the first time")
			connect(t, gone)
			h.pace.took(time.Second)
			during(h)
			forget(t, h, ofService(true, b), true, what+": during the pause")
			time.Sleep(readFactor * time.Second)
			synctest.Wait()
			forget(t, h, ofService(true, b), false, what+": after the pause")
		})
	}
}
