package firewall

import (
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/service"
)

// numbered returns an address of a family for a number.
func numbered(family netip.Addr, a byte, i int) netip.Addr {
	if family.Is6() {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: a, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)})
	}
	return netip.AddrFrom4([4]byte{a, byte(i >> 16), byte(i >> 8), byte(i)})
}

// many returns Services of some families: a quarter with a NodePort, the others with an address outside. The first has session
// affinity, the second goes to endpoints here only; OVN chooses the endpoints of all others. The first three have a number of
// endpoints of each family, the others two.
func many(n, endpoints int, families []netip.Addr) (all []*service.Resolved) {
	for i := range n {
		s := service.Resolved{Service: service.Service{
			Key: service.Key{Namespace: "default", Name: fmt.Sprint("web-", i)}, Type: corev1.ServiceTypeLoadBalancer, Ours: true,
			Ports: []service.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		}}
		if i%4 == 0 {
			s.Ports[0].NodePort = uint16(30000 + i/4)
		}
		for _, family := range families {
			s.ClusterIPs = append(s.ClusterIPs, numbered(family, 172, i))
			if i%4 != 0 {
				s.Ingress = append(s.Ingress, service.Ingress{Addr: numbered(family, 203, i)})
			}
		}
		switch i {
		case 0:
			s.Affinity = 10800
		case 1:
			s.ExternalLocal = true
		}
		var to service.Endpoints
		for _, family := range families {
			for e := range map[bool]int{true: endpoints, false: 2}[i < 3] {
				to = append(to, service.Endpoint{Host: &service.Host{Addr: numbered(family, 10, 128<<16|1<<8|(3+e)), Node: "node1", State: service.Serving}, Port: 8080})
			}
		}
		s.Endpoints = []service.Endpoints{to}
		all = append(all, &s)
	}
	return all
}

// benchHost is a host of both families.
var benchHost = nodeport.Host{
	Node: "node1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}, Management: "k8s-node1",
	Pods: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24"), netip.MustParsePrefix("fd0a::80:100/120")},
}

// A filled has the packet filters of some families, and what they keep.
type filled struct {
	firewalls []*Firewall
	tables    []nodeport.Tables
	lists     service.Lists
}

func newFilled(program string, families []netip.Addr) *filled {
	return &filled{firewalls: NewFamilies(program, families...), tables: make([]nodeport.Tables, len(families))}
}

// sync makes the rules of Services, as the gateway helper does, and returns the number of changes.
func (f *filled) sync(tb testing.TB, services []*service.Resolved) (changes int) {
	tb.Helper()
	frontends := f.lists.Of(services, service.Network{})
	for i, firewall := range f.firewalls {
		lines, err := firewall.Sync(tb.Context(), Services, f.tables[i].Rules(benchHost, firewall.Family(), frontends, nil))
		if err != nil {
			tb.Fatal(err)
		}
		changes += len(lines)
	}
	return changes
}

// withEndpoints returns a Service with another number of endpoints.
func withEndpoints(s *service.Resolved, endpoints int, families []netip.Addr) *service.Resolved {
	other := *s
	other.Endpoints = many(1, endpoints, families)[0].Endpoints
	return &other
}

// BenchmarkServices measures the rules of 10 000 Services (OVNK8S_BENCH_SERVICES) with each program, and of both families:
// until they are made, until a new process has found them as they should be, and until a change of one endpoint of 100 is
// written, also in CPU time: of a Service with session affinity, of one that goes to endpoints here, and of one whose
// endpoint OVN chooses.
func BenchmarkServices(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	n := 10000
	if _, err := fmt.Sscan(os.Getenv("OVNK8S_BENCH_SERVICES"), &n); err != nil {
		n = 10000
	}
	runtime.LockOSThread()
	space, err := netns.New()
	if err != nil {
		b.Fatal(err)
	}
	defer space.Close()
	four := []netip.Addr{nodeport.IPv4}
	for _, of := range []struct {
		name, program string
		families      []netip.Addr
	}{{config.NFTables, config.NFTables, four}, {"families", config.NFTables, []netip.Addr{nodeport.IPv4, nodeport.IPv6}}, {config.IPTables, config.IPTables, four}} {
		b.Run(of.name, func(b *testing.B) {
			for range b.N {
				f := newFilled(of.program, of.families)
				sync := func(services []*service.Resolved) (took, used time.Duration, changes int) {
					began, before := time.Now(), cpuTime(b)
					changes = f.sync(b, services)
					return time.Since(began), cpuTime(b) - before, changes
				}
				services := many(n, 100, of.families)
				took, _, _ := sync(services)
				b.ReportMetric(took.Seconds(), "s/made")
				f = newFilled(of.program, of.families)
				took, used, changes := sync(services)
				if changes > 0 {
					b.Fatalf("%d changes of nothing", changes)
				}
				b.ReportMetric(took.Seconds(), "s/start")
				for i, kind := range []string{"affinity", "local", "ovn"} {
					for _, endpoints := range []int{99, 100} {
						services[i] = withEndpoints(services[i], endpoints, of.families)
						took, used, changes = sync(services)
					}
					b.ReportMetric(float64(took.Microseconds())/1000, "ms/"+kind)
					b.ReportMetric(float64(used.Microseconds())/1000, "cpu-ms/"+kind)
					b.ReportMetric(float64(changes), "changes/"+kind)
				}
				for _, f := range f.firewalls {
					if _, err := f.Sync(b.Context(), Services, nil); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// cpuTime is the CPU time of this process and of programs that it ran.
func cpuTime(b *testing.B) (total time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		total += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return total
}
