package health

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/names"
	"ovn-k8s/lib/nb"
)

// threeGateways is a cluster with gateways a, b and c on hosts of the same names.
func threeGateways(t *testing.T) topology.Cluster {
	t.Helper()
	c, err := topology.New(names.ClusterRouter, []netip.Prefix{netip.MustParsePrefix("10.128.0.0/14")}, []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16")})
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		g := topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: name, MAC: fmt.Sprintf("02:00:00:00:00:%02x", i),
			IPs: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", i+10))}, NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
		}
		if c, err = c.WithGateway(name, g); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// The Southbound database is emptied or replaced, and hosts register again one after another: the first one does not get all
// packets.
func TestHostsComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := desired.NewWorld()
		w.Put(threeGateways(t))
		log := logrus.New()
		log.Out = io.Discard
		sent := make(chan func() []nb.Unit, 9)
		h := New(w, logrus.NewEntry(log), func(f func() []nb.Unit) { sent <- f }, nil, nil)
		defer h.forget.Stop()
		for _, tt := range []struct{ what, rows, down string }{
			{"all are registered", "a1 b1 c1", ""},
			{"one ends", "a1 b1", "c"},
			{"emptied", "", "c"},
			{"one registers", "a2", "c"},
			{"another one", "a2 b2", "c"},
			{"that one ends", "a2", "b c"},
			{"all are registered again", "a2 b3 c3", ""},
			{"another database with one", "b4", ""},
			{"emptied again", "", ""},
			{"one registers again", "c5", ""},
			{"then another one", "c5 a5", ""},
			{"not the third one", "", "b"},
			{"at last", "a5 b6 c5", ""},
		} {
			if tt.what == "not the third one" {
				time.Sleep(patience)
				synctest.Wait()
			} else {
				time.Sleep(patience / 2)
				rows := map[string]string{}
				for _, row := range strings.Fields(tt.rows) {
					rows[row[:1]] = row
				}
				h.SetChassis(rows)
			}
			for len(sent) > 0 {
				(<-sent)()
			}
			if got := strings.Join(w.Facts().DeadGateways(), " "); got != tt.down {
				t.Errorf("%s: %q are down, want %q", tt.what, got, tt.down)
			}
		}
	})
}
