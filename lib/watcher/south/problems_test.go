package south

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// P2: --check names hosts with tunnels too small for packets of pods.
func TestDescribeTunnels(t *testing.T) {
	says := func(reports ...string) map[string]map[string]string {
		out := map[string]map[string]string{}
		for i, r := range reports {
			out[string(rune('a'+i))] = map[string]string{"enable-chassis-as-gw": "", "ovn-k8s-mtu": r}
		}
		return out
	}
	for _, c := range []struct {
		options map[string]map[string]string
		want    []string
	}{
		{says("1400/1458/1500", "1400/1458/9000", ""), nil},
		{says("1400/1458/1500", "1400/1458/1450"), []string{"! Chassis b: mtu 1400 of pods is too large for tunnels: packets have 1458 bytes with headers, the NIC takes 1450: set ovn-k8s-mtu to 1392 or less on all hosts"}},
		{says("1400/1458/0", "1400/0/0"), []string{
			"! Chassis a: ovn-encap-ip is not set or is no address of that host, so that no tunnel works: set external_ids:ovn-encap-ip of Open_vSwitch there",
			"! Chassis b: ovn-encap-ip is not set or is no address of that host, so that no tunnel works: set external_ids:ovn-encap-ip of Open_vSwitch there",
		}},
		{says("1400/1458/1500", "1300/1358/1500"), []string{"! hosts have different MTUs of pods: 1300 (1 hosts, such as b), 1400 (1 hosts, such as a): set the same ovn-k8s-mtu on all"}},
	} {
		if diff := cmp.Diff(c.want, describeTunnels(c.options)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.options, diff)
		}
	}
}

// P2: --check names hosts with pods created under a larger MTU.
func TestDescribeLargerPods(t *testing.T) {
	options := map[string]map[string]string{"a": {"ovn-k8s-mtu": "1300/1358/1500"}, "b": {"ovn-k8s-larger-pods": "3"}}
	want := []string{"! Chassis b: pods with a larger MTU than ovn-k8s-mtu: 3: the Event PodMTUTooLarge on the Node names the first; delete these pods to recreate them"}
	if diff := cmp.Diff(want, describeLargerPods(options)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// --check reports a database not read by ovn-northd.
func TestDescribeUnbound(t *testing.T) {
	if got := describeUnbound([]string{"a_1", "a_2"}, map[string]bool{"a_1": true, "a_2": true}); got != nil {
		t.Errorf("%q", got)
	}
	want := []string{"! logical ports of pods without a Port_Binding in the Southbound database: 2, a_1 first: check ovn-northd"}
	if diff := cmp.Diff(want, describeUnbound([]string{"a_1", "a_2", "a_3"}, map[string]bool{"a_3": true})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
