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
