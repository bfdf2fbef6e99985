package main

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
)

// The Lease has the duration of the master's configuration, by default and after changes.
func TestTimesOfTheLease(t *testing.T) {
	kubernetes := startCluster(t)
	h := newHost(t)
	central := h.startCentral()
	p := h.start(strings.Fields(fmt.Sprintf("-init-master=n1 -ovn-config-namespace=times -nb-address=%s -sb-address=%s -k8s-kubeconfig=%s", central.NBTCP, central.SBTCP, kubernetes.Kubeconfig)))
	p.says("leads with term 1")
	for _, tt := range []struct {
		file string
		want int32
	}{
		{"", 10},
		{"election-lease-duration=20\nelection-renew-deadline=9\nelection-retry-period=2", 20},
		{"election-retry-period=3", 60},
	} {
		h.write("etc/openvswitch/ovn_k8s.conf", "[masterha]\n"+tt.file+"\n")
		h.eventually(fmt.Sprintf("the Lease lasts %d s", tt.want), func() bool {
			l, err := kubernetes.Client().CoordinationV1().Leases("times").Get(t.Context(), names.WatcherLease, metav1.GetOptions{})
			return err == nil && *l.Spec.LeaseDurationSeconds == tt.want
		})
	}
	h.write("etc/openvswitch/ovn_k8s.conf", "[masterha]\nelection-lease-duration=5\n")
	p.says(`keeping the former configuration: bad ha-election-lease-duration "5" (from ` + h.path("etc/openvswitch/ovn_k8s.conf") + `: [masterha] election-lease-duration): want more than ha-election-renew-deadline, 30`)
}
