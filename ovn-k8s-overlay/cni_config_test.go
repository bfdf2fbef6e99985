package main

import (
	"strings"
	"testing"

	"ovn-k8s/lib/platform"
)

func TestCheck20_CNI(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	const old = `{"name": "net", "type": "ovn_cni"}`
	n.write("/etc/cni/net.d/10-net.conf", old)
	n.write("/etc/cni/net.d/99-bridge.conf", "{}")
	m.init(masterInitArgs)
	if text := m.file("/etc/cni/net.d/10-ovn-k8s.conflist"); text != "" {
		t.Errorf("master-init wrote a CNI configuration: %s", text)
	}
	r := n.init(minionInitArgs)
	if !strings.Contains(r.Err, "container runtimes will use /etc/cni/net.d/10-net.conf instead of /etc/cni/net.d/10-ovn-k8s.conflist") || strings.Contains(r.Err, "99-bridge") {
		t.Errorf("warnings: %s", r.Err)
	}
	same(t, "the old configuration", n.file("/etc/cni/net.d/10-net.conf"), old)
	// S10: a runtime in another mount namespace sees only the directory.
	isCopy := "test -L /opt/cni/bin/ovn-k8s-cni-overlay || cmp " + bin + "/ovn-k8s-cni-overlay /opt/cni/bin/ovn-k8s-cni-overlay; readlink /opt/cni/bin/ovn_cni; stat -c %a /opt/cni/bin/ovn-k8s-cni-overlay; ls -A /opt/cni/bin | wc -l"
	const copied = "ovn-k8s-cni-overlay\n755\n2"
	same(t, "the plugin", n.script(isCopy), copied)
	checkConflist(t, n.Path("/etc/cni/net.d/10-ovn-k8s.conflist"))

	// The links of an earlier release, and the copy of another version of the program, are replaced.
	for _, before := range []string{
		"ln -sf " + bin + "/ovn-k8s-cni-overlay /opt/cni/bin/ovn_cni; ln -sf " + bin + "/ovn-k8s-cni-overlay /opt/cni/bin/ovn-k8s-cni-overlay",
		"cp " + bin + "/ovn-k8s-cni-overlay /opt/cni/bin/; echo >>/opt/cni/bin/ovn-k8s-cni-overlay",
	} {
		n.script("rm /opt/cni/bin/*; " + before)
		n.init(minionInitArgs)
		same(t, "after "+before, n.script(isCopy), copied)
	}
	before := n.script("stat -c '%i %Z' /opt/cni/bin/*")
	n.init(minionInitArgs)
	same(t, "the same copy again", n.script("stat -c '%i %Z' /opt/cni/bin/*"), before)

	// Another program stays.
	n.script("rm /opt/cni/bin/*; echo '#!/bin/sh' >/opt/cni/bin/ovn-k8s-cni-overlay; ln -s /nowhere /opt/cni/bin/ovn_cni")
	if r := n.init(minionInitArgs); !strings.Contains(r.Err, "/opt/cni/bin/ovn-k8s-cni-overlay is a file of its own") {
		t.Errorf("%+v", r)
	}
	same(t, "another program", n.script("cat /opt/cni/bin/ovn-k8s-cni-overlay; readlink /opt/cni/bin/ovn_cni"), "#!/bin/sh\novn-k8s-cni-overlay")

	// A plugin installed only there stays.
	n.script("rm /opt/cni/bin/*; cp " + bin + "/ovn-k8s-cni-overlay /opt/cni/bin/; rm /etc/cni/net.d/*")
	if r := n.runIn("PATH=$PATH", minionInitArgs); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	same(t, "the plugin", n.script(isCopy), copied)
	same(t, "mode", n.script("stat -c %a /etc/cni/net.d/*; ls -a /etc/cni/net.d | wc -l"), "644\n3")
}

// The settings of docs/distributions.md for distributions of Kubernetes: both directories are made if they are missing.
func TestCNIDirectoriesOfDistributions(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	for _, k := range platform.Clusters() {
		n.setID("ovn-k8s-cni-conf-path", k.ConfDir)
		n.setID("ovn-k8s-cni-link-path", k.BinDir)
		n.script("rm -rf " + k.ConfDir + "/* " + k.BinDir + "/*") // mount points stay
		if r := n.init(minionInitArgs); strings.Contains(r.Err, "CNI") {
			t.Errorf("%s: %s", k.Name, r.Err)
		}
		checkConflist(t, n.Path(k.ConfDir+"/10-ovn-k8s.conflist"))
		same(t, k.Name+": the plugin", n.script("cmp "+bin+"/ovn-k8s-cni-overlay "+k.BinDir+"/ovn-k8s-cni-overlay; stat -c %a "+k.BinDir+"/ovn-k8s-cni-overlay"), "755")
	}
}

func TestCheck21_NoPlugin(t *testing.T) {
	w := newWorld(t, "master", "node2")
	m, n := w.nodes[0], w.nodes[1]
	m.init(masterInitArgs)
	host, writes := n.state(), w.transactions()
	r, err := n.Try("cp " + bin + "/ovn-k8s-overlay /usr/local/sbin && PATH=/usr/sbin:/usr/bin:/sbin:/bin exec /usr/local/sbin/ovn-k8s-overlay " + minionInitArgs)
	if err != nil || r.Status != 1 || r.Err != "ovn-k8s-overlay: No CNI plugin ovn-k8s-cni-overlay found in /usr/sbin, /usr/bin, /sbin, /bin, /usr/local/sbin, /opt/cni/bin: "+
		"install it, or set external_ids:ovn-k8s-cni-plugin to its path\n" {
		t.Errorf("%+v, %v", r, err)
	}
	same(t, "host", n.state(), host)
	if w.transactions() != writes || strings.Contains(w.nb("ls-list"), "node2") {
		t.Error("something was written")
	}
	// sudo may leave the directory of the programs out of PATH.
	if r := n.runIn("PATH=/usr/sbin:/usr/bin:/sbin:/bin", minionInitArgs); r.Status != 0 {
		t.Errorf("a plugin beside the program: %+v", r)
	}
}
