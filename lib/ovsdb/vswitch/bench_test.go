package vswitch_test

import (
	"fmt"
	"testing"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// BenchmarkConnect is the cost of each call of the CNI plugin before its own work, on a node with the given number
// of ports.
func BenchmarkConnect(b *testing.B) {
	for _, ports := range []int{0, 100, 250} {
		b.Run(fmt.Sprint(ports), func(b *testing.B) {
			n := newNode(b)
			n.bridge("br-int")
			s := n.connect()
			for i := range ports {
				p := vswitch.PodPort{Bridge: "br-int", Name: fmt.Sprint("p", i), ExternalIDs: map[string]string{names.IfaceID: fmt.Sprint("ns_pod", i)}}
				if err := s.AttachPort(b.Context(), p); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				s, err := vswitch.Connect(b.Context(), n.dir, nil)
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// tunnels stops ovs-vswitchd, and gives br-int the rows of tunnels to so many hosts.
func (n *node) tunnels(hosts int) {
	n.t.Helper()
	n.bridge("br-int")
	stop(&n.daemon)
	args := []string{"--no-wait"}
	for i := range hosts {
		name := fmt.Sprintf("ovn-%06d", i)
		args = append(args, "--", "add-port", "br-int", name, "--", "set", "Interface", name, "type=geneve", fmt.Sprintf("options:remote_ip=10.%d.%d.1", i/250, i%250))
		if i%100 == 99 || i == hosts-1 { // its time grows with the square
			n.vsctl(args...)
			args = args[:1]
		}
	}
}

// nobody is a condition for DetachWhere as in ADD of a pod without an earlier sandbox.
func nobody(i vswitch.Interface) bool { return i.ExternalIDs[names.IfaceID] == "default_web" }

// BenchmarkHost is the cost of calls on a host of a large cluster, with the given number of tunnels.
func BenchmarkHost(b *testing.B) {
	n := newNode(b)
	const hosts = 1000
	n.tunnels(hosts)
	s := n.connect()
	for name, f := range map[string]func() error{
		"detach": func() error { _, err := s.DetachWhere(b.Context(), nobody); return err },
		"list":   func() error { _, err := s.Interfaces(b.Context()); return err },
		"select": func() error {
			_, err := s.InterfacesWhere(b.Context(), func(i vswitch.Interface) bool { return !i.IsTunnel() })
			return err
		},
		"refresh": func() error { return s.Refresh(b.Context()) },
	} {
		b.Run(fmt.Sprintf("%s/%d", name, hosts), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
