package docs_test

import (
	"strings"
	"testing"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/platform"
)

// TestTablesOfDistributions compares distributions.md with the tables of package platform.
func TestTablesOfDistributions(t *testing.T) {
	page := readFile(t, "docs/distributions.md")
	linux, managers, clusters := platform.Markdown()
	for _, table := range []string{linux, managers, clusters} {
		if !strings.Contains(page, table) {
			t.Errorf("docs/distributions.md does not have this table:\n%s", table)
		}
	}
	for _, k := range platform.Clusters() {
		if !strings.Contains(page, "\n**"+k.Name+"**") {
			t.Errorf("docs/distributions.md says nothing about %s", k.Name)
		}
		if k.Name == "k3s" || k.Name == "RKE2" {
			if k.ConfDir != platform.Kubeadm.ConfDir || k.BinDir != platform.Kubeadm.BinDir || !strings.Contains(page, "\novs-vsctl set Open_vSwitch . external_ids:ovn-k8s-service-cidr="+k.ServiceCIDR+"\n") {
				t.Errorf("docs/distributions.md does not have the settings for %+v", k)
			}
		}
	}
}

// TestPackagesOfInstallation checks that the commands of the other pages install the packages of Debian.
func TestPackagesOfInstallation(t *testing.T) {
	d := platform.Of("ID=debian")
	hosts := "\n" + d.Install + " " + d.Packages[platform.OpenVSwitch] + " " + d.Packages[platform.OVNHost] + "\n"
	for _, page := range []string{"docs/install.md", "docs/ovnkube.md"} {
		if text := readFile(t, page); !strings.Contains(text, hosts) || !strings.Contains(text, d.Packages[platform.OVNCentral]) {
			t.Errorf("%s does not have the command%s", page, hosts)
		}
	}
}

// TestSettingsOfDistributions checks the settings in the table of Kubernetes' distributions.
func TestSettingsOfDistributions(t *testing.T) {
	_, _, clusters := platform.Markdown()
	found := 0
	for _, s := range config.Settings() {
		if s.ExternalID != "" && strings.Contains(clusters, "`"+s.ExternalID+"`") {
			found++
		}
	}
	if n := strings.Count(clusters, "(`ovn-k8s-"); found != n || n == 0 {
		t.Errorf("%d of the %d settings in this table exist:\n%s", found, n, clusters)
	}
}
