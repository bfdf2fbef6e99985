package ovnkube

import (
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
)

// A new process uses the addresses that a former one found and recorded, until the API server answers. Then those of the
// Service count, or the command line's if there is none.
func TestAddressesAfterAStart(t *testing.T) {
	const given, former, found = "tcp:192.0.2.1:6642", "tcp:192.0.2.2:6642", "tcp:192.0.2.3:6642"
	own := `{"ovn-remote":{"set":"` + former + `"}}`
	none, empty, full := []*discoveryv1.EndpointSlice{}, slice(), slice("192.0.2.3")
	for name, c := range map[string]struct {
		flag, remote, record string
		listed               []*discoveryv1.EndpointSlice // nil: the API server has not answered
		want                 string
	}{
		"a first start":                       {given, "", "", nil, given},
		"a restart":                           {given, former, own, nil, former},
		"an operator's value":                 {given, former, "", nil, given},
		"ours, changed by an operator":        {given, "tcp:192.0.2.9:6642", own, nil, given},
		"another scheme":                      {"unix:/run/sb.sock", former, own, nil, "unix:/run/sb.sock"},
		"no Service: a changed command line":  {given, former, own, none, given},
		"a Service without endpoints":         {given, former, own, []*discoveryv1.EndpointSlice{empty}, former},
		"a Service":                           {given, former, own, []*discoveryv1.EndpointSlice{full}, found},
		"a Service, without a former process": {given, "", "", []*discoveryv1.EndpointSlice{full}, found},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLocator(Options{}, nil)
			ids := map[string]string{}
			if c.remote != "" {
				ids["ovn-remote"] = c.remote
			}
			if c.record != "" {
				ids[names.FormerIDs] = c.record
			}
			if c.listed != nil {
				f := &following{locator: l, log: logrus.NewEntry(logrus.New()), namespace: "ovn-kubernetes", slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}}
				f.record(kube.Event{Replace: true, Objects: objects(c.listed)})
			}
			cfg, err := l.resolve(config.Sources{Flags: map[string]string{"init-node": "n1", "sb-address": c.flag}, ExternalIDs: ids})
			if err != nil || cfg.OVNRemote != c.want {
				t.Errorf("got %q, %v; want %q", cfg.OVNRemote, err, c.want)
			}
			if changed := len(l.reload) == 1; changed != (c.want == found || c.listed != nil && c.want == given) {
				t.Errorf("the settings are resolved again: %v", changed)
			}
		})
	}
}

// The settings count as well when the Service without endpoints is deleted after the start.
func TestServiceDeletedAfterAStart(t *testing.T) {
	const given, former = "tcp:192.0.2.1:6642", "tcp:192.0.2.2:6642"
	l, empty := newLocator(Options{}, nil), slice()
	f := &following{locator: l, log: logrus.NewEntry(logrus.New()), namespace: "ovn-kubernetes", slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}}
	remote := func(want string, again bool) {
		t.Helper()
		ids := map[string]string{"ovn-remote": former, names.FormerIDs: `{"ovn-remote":{"set":"` + former + `"}}`}
		cfg, err := l.resolve(config.Sources{Flags: map[string]string{"init-node": "n1", "sb-address": given}, ExternalIDs: ids})
		if err != nil || cfg.OVNRemote != want {
			t.Errorf("got %q, %v; want %q", cfg.OVNRemote, err, want)
		}
		if got := len(l.reload) == 1; got != again {
			t.Errorf("the settings are resolved again: %v", got)
		}
	}
	f.record(kube.Event{Replace: true, Objects: objects([]*discoveryv1.EndpointSlice{empty})})
	remote(former, false)
	f.record(kube.Event{Object: empty, Gone: true})
	remote(given, true)
}

// slice is an EndpointSlice of the Service of the databases.
func slice(ips ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ovn-kubernetes", Name: "db-" + strings.Join(ips, "-"), Labels: map[string]string{discoveryv1.LabelServiceName: databaseService},
	}}
	for name, number := range map[string]int32{"north": 6641, "south": 6642} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
	}
	for _, ip := range ips {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}})
	}
	return s
}

// objects are the objects of a list.
func objects(all []*discoveryv1.EndpointSlice) iter.Seq[any] {
	return func(yield func(any) bool) {
		for s := range slices.Values(all) {
			if !yield(s) {
				return
			}
		}
	}
}
