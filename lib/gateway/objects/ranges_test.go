package objects

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

func nodeAt(name, address string, labels ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	for _, l := range labels {
		n.Labels[l] = ""
	}
	return n
}

func cidrs(ranges ...string) kube.Event {
	all := []any{}
	for i, r := range ranges {
		all = append(all, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("c", i)}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{r}}})
	}
	return kube.Event{Kind: kube.KindOf(&networkingv1.ServiceCIDR{}), Replace: true, Objects: slices.Values(all)}
}

func nodes(all ...any) kube.Event {
	return kube.Event{Kind: kube.KindOf(&corev1.Node{}), Replace: true, Objects: slices.Values(all)}
}

// No host routes to a ServiceCIDR with the control plane, or with two nodes, as in the watcher: it would lose the way there.
func TestServiceCIDRsWithHosts(t *testing.T) {
	control := func(address string) *corev1.Node { return nodeAt("master", address, names.LabelControlPlane) }
	for name, tt := range map[string]struct {
		cidrs   []string
		nodes   []any
		servers []string
		want    []string
	}{
		"none there":                   {[]string{"172.30.0.0/16", "10.7.0.0/16"}, []any{nodeAt("n1", "192.0.2.1"), control("192.0.2.9")}, []string{"192.0.2.9:6443"}, []string{"10.7.0.0/16", "172.30.0.0/16"}},
		"one node":                     {[]string{"10.7.0.0/16"}, []any{nodeAt("n1", "10.7.0.5"), nodeAt("n2", "192.0.2.2")}, nil, []string{"10.7.0.0/16"}},
		"two nodes":                    {[]string{"172.30.0.0/16", "10.7.0.0/16"}, []any{nodeAt("n1", "10.7.0.5"), nodeAt("n2", "10.7.0.6")}, nil, []string{"172.30.0.0/16"}},
		"the control plane":            {[]string{"172.30.0.0/16", "10.7.0.0/16"}, []any{control("10.7.0.5")}, nil, []string{"172.30.0.0/16"}},
		"a server of the settings":     {[]string{"172.30.0.0/16", "10.7.0.0/16"}, nil, []string{"192.0.2.9:6443", "10.7.0.5:6641"}, []string{"172.30.0.0/16"}},
		"the Service kubernetes":       {[]string{"10.96.0.0/16"}, nil, []string{"10.96.0.1:443"}, []string{"10.96.0.0/16"}},
		"the cluster's own":            {[]string{"172.30.0.0/16", "10.128.0.0/9"}, nil, nil, []string{"172.30.0.0/16"}},
		"a good one within a bad one":  {[]string{"10.7.8.0/24", "10.7.0.0/16"}, []any{control("10.7.0.5")}, nil, []string{"10.7.8.0/24"}},
		"only bad ones":                {[]string{"10.7.0.0/16"}, []any{control("10.7.0.5")}, nil, nil},
		"an API server of another age": {nil, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := New(Parts{}, true)
			var servers []netip.AddrPort
			for _, s := range tt.servers {
				servers = append(servers, netip.MustParseAddrPort(s))
			}
			ranges := func() servicecidr.Ranges { return o.Ranges(prefixes("10.128.0.0/14"), servers) }
			o.takeCIDRs(cidrs(tt.cidrs...))
			if early := ranges(); early != nil || o.Routed(nil, early) != nil {
				t.Errorf("before the Nodes are known: %v", early)
			}
			o.takeNodes(nodes(tt.nodes...))
			got := ranges()
			if got == nil || !slices.Equal(got, prefixes(tt.want...)) {
				t.Errorf("%v, want %v", got, tt.want)
			}
			if routed := o.Routed(nil, got); (routed == nil) != (len(tt.cidrs) == 0) || !slices.Equal(routed, got) {
				t.Errorf("routed: %#v", routed)
			}
			if routed := o.Routed(prefixes("172.20.0.0/16"), got); !slices.Equal(routed, append(prefixes("172.20.0.0/16"), got...)) {
				t.Errorf("routed with a setting: %#v", routed)
			}
		})
	}
}

// The first list of Nodes, their addresses and the label of the control plane touch the routes.
func TestNodesTouchRoutes(t *testing.T) {
	o := New(Parts{Services: []string{"rules"}, Routes: "routes"}, true)
	for i, step := range []struct {
		event kube.Event
		want  []string
	}{
		{nodes(), []string{"routes", "rules"}},
		{nodes(), nil},
		{kube.Event{Object: nodeAt("n1", "192.0.2.1")}, []string{"routes", "rules"}},
		{kube.Event{Object: nodeAt("n1", "192.0.2.1")}, nil},
		{kube.Event{Object: nodeAt("n1", "192.0.2.1", names.LabelControlPlane)}, []string{"routes", "rules"}},
		{kube.Event{Object: nodeAt("n1", "192.0.2.1"), Gone: true}, []string{"routes", "rules"}},
	} {
		if got := o.takeNodes(step.event); !slices.Equal(got, step.want) {
			t.Errorf("step %d touches %v, want %v", i, got, step.want)
		}
	}
}

// Rules wait for the lists of all kinds, in any order, and not for Nodes that must not be read. The last list touches them.
func TestTheLastListTouchesServices(t *testing.T) {
	for last := range 5 {
		for _, refused := range []bool{false, true} {
			o := New(Parts{Services: []string{"rules"}, Routes: "routes"}, true)
			inputs := o.Inputs()
			for i := range inputs {
				in := inputs[(last+1+i)%5]
				if o.Complete() {
					t.Fatalf("complete without %s", inputs[last].kind().Name)
				}
				var touched []string
				if refused && in.refused != nil {
					touched = in.refused()
				} else {
					touched = in.record(kube.Event{Kind: in.kind(), Replace: true, Objects: slices.Values([]any{})})
				}
				if i == len(inputs)-1 && !slices.Contains(touched, "rules") {
					t.Errorf("%s, refused %v, touches %v", in.kind().Name, refused, touched)
				}
			}
			if !o.Complete() {
				t.Errorf("not complete, refused %v", refused)
			}
			if touched := o.refuseNodes(); len(touched) != 0 {
				t.Errorf("a later refusal touches %v", touched)
			}
			if o.takeCIDRs(cidrs("172.30.0.0/16")); refused != (o.Ranges(nil, nil) == nil) {
				t.Errorf("refused %v: routes to %v", refused, o.Ranges(nil, nil))
			}
			if touched := o.takeNodes(nodes()); refused && !slices.Equal(touched, []string{"routes", "rules"}) {
				t.Errorf("Nodes that may be read again touch %v", touched)
			}
		}
	}
}
