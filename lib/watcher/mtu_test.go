package watcher

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// P2: --check names hosts whose tunnels are too narrow.
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
		{says("1400/1458/1500", "1300/1358/1500"), []string{"! hosts have different MTUs of pods: 1300 (1 hosts, such as b), 1400 (1 hosts, such as a): set the same ovn-k8s-mtu on all"}},
	} {
		if diff := cmp.Diff(c.want, describeTunnels(c.options)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.options, diff)
		}
	}
}
