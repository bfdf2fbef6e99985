package main

import (
	"fmt"
	"strings"
	"testing"

	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// AC-01, AC-02: the historical command line of a master makes the cluster, and with two dashes or spaces the same rows. With a
// token in place of the kubeconfig, too: that is in no row, no Event and no log (AC-20).
func TestHistoricalMaster(t *testing.T) {
	kubernetes := startCluster(t)
	require.Nothing(t, require.Central, ovntest.Missing())
	var first string
	for name, edit := range map[string]func(string) string{
		"one dash":   func(line string) string { return line },
		"two dashes": func(line string) string { return strings.ReplaceAll(" "+line, " -", " --") },
		"spaces":     func(line string) string { return strings.ReplaceAll(line, "=", " ") },
		"token": func(line string) string {
			return strings.Replace(line, "-k8s-kubeconfig kubeconfig.yaml", "-k8s-cacert="+kubernetes.CAFile+" -k8s-token="+kubernetes.Token, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			central, err := ovntest.Start(ovntest.Options{Listen: "127.0.0.1"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(central.Close)
			h.write("kubeconfig.yaml", h.read(kubernetes.Kubeconfig))
			address := func(remote string) string { return strings.Replace(remote, "tcp:", "tcp://", 1) }
			line := fmt.Sprintf("-k8s-kubeconfig kubeconfig.yaml -net-controller -loglevel=4 -k8s-apiserver=%s -logfile=%s -init-master=n1 -cluster-subnet=10.128.0.0/14 -service-cluster-ip-range=10.96.0.0/16 -nodeport -nb-address=%s -sb-address=%s",
				kubernetes.URL, h.path("log/new/ovnkube.log"), address(central.NBTCP), address(central.SBTCP))
			line = edit(line)
			if name == "spaces" {
				line = strings.Replace(line, " -nodeport", " -nodeport=true", 1)
			}
			p := h.start(strings.Fields(line))
			router := func() string {
				out, err := central.NBCtl("--bare", "--columns=name,external_ids", "find", "Logical_Router", "name=ovn_cluster_router")
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			h.eventually("the router is complete", func() bool {
				return strings.Contains(router(), "k8s-cluster-router=yes") && strings.Contains(router(), "ovn-k8s-kubernetes-uid=")
			})
			if first == "" {
				first = router()
			}
			if router() != first {
				t.Errorf("the router is\n%s\nand was\n%s", router(), first)
			}
			if !strings.Contains(h.read(h.path("log/new/ovnkube.log")), "|INFO|") {
				t.Error("no log")
			}
			if name == "token" {
				events := h.tool("kubectl", "--kubeconfig="+kubernetes.Kubeconfig, "get", "events", "-A", "-o", "yaml")
				for what, text := range map[string]string{"output": p.out.String(), "log": h.read(h.path("log/new/ovnkube.log")), "Events": events, "NB": h.dump(central.NBTCP, "OVN_Northbound"), "command line": h.read(fmt.Sprintf("/proc/%d/cmdline", p.cmd.Process.Pid))} {
					if strings.Contains(text, kubernetes.Token) {
						t.Errorf("the token is in the %s", what)
					}
				}
			}
			if status := p.stop(); status != 0 {
				t.Errorf("status %d", status)
			}
		})
	}
}
