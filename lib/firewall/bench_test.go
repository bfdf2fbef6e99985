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

// many returns Services: a quarter with a NodePort, the others with an address outside. The first has session affinity, the
// second goes to endpoints here only; OVN chooses the endpoints of all others. The first three have a number of endpoints,
// the others two.
func many(n, endpoints int) (all []*service.Resolved) {
	for i := range n {
		at := func(a byte) netip.Addr { return netip.AddrFrom4([4]byte{a, byte(i >> 16), byte(i >> 8), byte(i)}) }
		s := service.Resolved{Service: service.Service{
			Key: service.Key{Namespace: "default", Name: fmt.Sprint("web-", i)}, Type: corev1.ServiceTypeLoadBalancer, Ours: true,
			ClusterIPs: []netip.Addr{at(172)}, Ports: []service.Port{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		}}
		if i%4 == 0 {
			s.Ports[0].NodePort = uint16(30000 + i/4)
		} else {
			s.Ingress = []service.Ingress{{Addr: at(203)}}
		}
		switch i {
		case 0:
			s.Affinity = 10800
		case 1:
			s.ExternalLocal = true
		}
		var to service.Endpoints
		for e := range map[bool]int{true: endpoints, false: 2}[i < 3] {
			to = append(to, service.Endpoint{Host: &service.Host{Addr: netip.AddrFrom4([4]byte{10, 128, 1, byte(3 + e)}), Node: "node1", State: service.Serving}, Port: 8080})
		}
		s.Endpoints = []service.Endpoints{to}
		all = append(all, &s)
	}
	return all
}

// BenchmarkServices measures the rules of 10 000 Services (OVNK8S_BENCH_SERVICES) with each program: until they are made, until a
// new process has found them as they should be, and until a change of one endpoint of 100 is written, also in CPU time: of a Service with
// session affinity, of one that goes to endpoints here, and of one whose endpoint OVN chooses.
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
	host := nodeport.Host{Node: "node1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Management: "k8s-node1", Pods: []netip.Prefix{netip.MustParsePrefix("10.128.1.0/24")}}
	for _, program := range []string{config.NFTables, config.IPTables} {
		b.Run(program, func(b *testing.B) {
			for range b.N {
				f, tables, lists := New(program, nodeport.IPv4), new(nodeport.Tables), new(service.Lists)
				sync := func(f *Firewall, services []*service.Resolved) (took, used time.Duration, changes int) {
					began, before := time.Now(), cpuTime(b)
					lines, err := f.Sync(b.Context(), Services, tables.Rules(host, nodeport.IPv4, lists.Of(services, service.Network{}), nil))
					if err != nil {
						b.Fatal(err)
					}
					return time.Since(began), cpuTime(b) - before, len(lines)
				}
				services := many(n, 100)
				took, _, _ := sync(f, services)
				b.ReportMetric(took.Seconds(), "s/made")
				f, tables, lists = New(program, nodeport.IPv4), new(nodeport.Tables), new(service.Lists)
				took, used, changes := sync(f, services)
				if changes > 0 {
					b.Fatalf("%d changes of nothing", changes)
				}
				b.ReportMetric(took.Seconds(), "s/start")
				for i, kind := range []string{"affinity", "local", "ovn"} {
					for _, endpoints := range []int{99, 100} {
						s := *services[i]
						s.Endpoints = many(1, endpoints)[0].Endpoints
						services[i] = &s
						took, used, changes = sync(f, services)
					}
					b.ReportMetric(float64(took.Microseconds())/1000, "ms/"+kind)
					b.ReportMetric(float64(used.Microseconds())/1000, "cpu-ms/"+kind)
					b.ReportMetric(float64(changes), "changes/"+kind)
				}
				if _, err := f.Sync(b.Context(), Services, nil); err != nil {
					b.Fatal(err)
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
