package main

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// The subnets of the cluster and of Services in the old and in the new spelling give the same rows, UUIDs apart: IPv4, and both
// families.
func TestSpellingsGiveTheSameRows(t *testing.T) {
	kubernetes := startCluster(t)
	require.Nothing(t, require.Central, ovntest.Missing())
	for subnets, services := range map[string]string{
		"10.128.0.0/14/23":                "10.96.0.0/16",
		"10.128.0.0/14,fd01::/48":         "10.96.0.0/16,fd02::/112",
		"10.128.0.0/14/23,192.168.0.0/16": "10.96.0.0/16",
	} {
		t.Run(subnets, func(t *testing.T) {
			var first []string
			for _, spelling := range [][2]string{
				{"-cluster-subnets", "-k8s-service-cidr"}, {"-cluster-subnet", "-service-cluster-ip-range"}, {"--cluster-subnets", "--k8s-service-cidrs"},
			} {
				rows := rowsOf(t, kubernetes.Kubeconfig, spelling[0]+"="+subnets, spelling[1]+" "+services)
				if first == nil {
					first = rows
				}
				if diff := cmp.Diff(first, rows); diff != "" {
					t.Errorf("%s (-first spelling +this):\n%s", spelling, diff)
				}
			}
			if !slices.ContainsFunc(first, func(row string) bool { return strings.Contains(row, "rtos-n2") }) {
				t.Errorf("no row of node n2:\n%s", strings.Join(first, "\n"))
			}
		})
	}
}

// rowsOf are the sorted rows of the Northbound database, UUIDs apart, that a master with these options makes of two Nodes.
func rowsOf(t *testing.T, kubeconfig string, options ...string) []string {
	t.Helper()
	h := newHost(t)
	kubernetes := startCluster(t)
	central, err := ovntest.Start(ovntest.Options{Listen: "127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	defer central.Close()
	nodes := kubernetes.Client().CoreV1().Nodes()
	defer func() {
		_ = nodes.DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{})
		forget(kubernetes)
	}()
	line := "-init-master=n1 -k8s-kubeconfig=" + kubeconfig + " -nb-address=" + central.NBTCP + " -sb-address=" + central.SBTCP + " " + strings.Join(options, " ")
	p := h.start(strings.Fields(line))
	for i, name := range []string{"n1", "n2"} { // one after the other: the first one has the first subnet
		if _, err := kubernetes.CreateNode(t.Context(), name, netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})); err != nil {
			t.Fatal(err)
		}
		h.eventually("node "+name+" has subnets", func() bool {
			n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
			return err == nil && n.Annotations[names.HostSubnetAnnotation] != ""
		})
	}
	h.eventually("a route to the host n2", func() bool { // it comes from the watcher, after the annotation
		rows := rowsIn(h.dump(central.NBTCP, "OVN_Northbound"))
		return slices.ContainsFunc(rows, func(r string) bool { return strings.Contains(r, `"192.0.2.2`) })
	})
	h.eventually("ovn-northd has reported whether each port is up", func() bool {
		out, err := central.NBCtl("--bare", "--columns=name", "find", "Logical_Switch_Port", "up=[]")
		return err == nil && strings.TrimSpace(out) == ""
	})
	if status := p.stop(); status != 0 {
		t.Errorf("status %d", status)
	}
	return rowsIn(h.dump(central.NBTCP, "OVN_Northbound"))
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// rowsIn are the sorted rows of a dump, without those that ovn-northd and each transaction change.
func rowsIn(dump string) (rows []string) {
	for table := range strings.SplitSeq(dump, "\n\n") {
		if !strings.HasPrefix(table, "NB_Global ") {
			rows = append(rows, strings.Split(uuid.ReplaceAllString(table, "UUID"), "\n")...)
		}
	}
	slices.Sort(rows)
	return rows
}
