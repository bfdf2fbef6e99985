package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const loopback = "auto lo\niface lo inet loopback\n"

func TestCheck22_Interfaces(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.write("/etc/network/interfaces", loopback)
	m.script("chmod 600 /etc/network/interfaces")
	r := m.init(masterInitArgs)
	if r.Err != "" {
		t.Errorf("warnings: %s", r.Err)
	}
	want := loopback + `
# begin ovn-k8s: written by ovn-k8s-overlay, do not edit: k8s-kube-master
allow-ovs br-int
iface br-int inet manual
    ovs_type OVSBridge
    ovs_ports k8s-kube-master
    ovs_extra set bridge br-int fail_mode=secure

allow-br-int k8s-kube-master
iface k8s-kube-master inet static
    address 192.168.1.2
    netmask 255.255.255.0
    up sysctl -q -w net/ipv4/conf/k8s-kube-master/arp_announce=2
    ovs_type OVSIntPort
    ovs_bridge br-int
    ovs_extra set interface k8s-kube-master mac=\"0a:58:c0:a8:01:02\" mtu_request=1400 external-ids:iface-id=k8s-kube-master
    up ip -4 route replace 192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46
    down ip -4 route del 192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46 || true
    up ip -4 route replace 100.64.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46
    down ip -4 route del 100.64.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46 || true
# end ovn-k8s: k8s-kube-master
`
	if diff := cmp.Diff(want, m.file("/etc/network/interfaces")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	m.init(masterInitArgs)
	if diff := cmp.Diff(want, m.file("/etc/network/interfaces")); diff != "" {
		t.Errorf("after a second run (-want +got)\n%s", diff)
	}
	same(t, "mode", m.script("stat -c %a /etc/network/interfaces; ls -a /etc/network | wc -l"), "600\n3")
	queryInterfaces(t, m)

	dual := "master-init --cluster-ip-subnet=192.168.0.0/16,fd01::/48 --master-switch-subnet=192.168.9.0/24,fd01:0:0:9::/64 --node-name=kube-master"
	m.init(dual)
	text := m.file("/etc/network/interfaces")
	for _, want := range []string{"    address 192.168.9.2\n", "    address fd01:0:0:9::2\n", "via fd01:0:0:9::1 dev k8s-kube-master proto 46\n", "0a:58:c0:a8:09:02"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "192.168.1.") || strings.Count(text, "iface br-int") != 1 || strings.Count(text, "iface k8s-kube-master") != 2 || !strings.HasPrefix(text, loopback+"\n#") {
		t.Errorf("not converged:\n%s", text)
	}
	queryInterfaces(t, m)
	bootByIfupdown(t, m)
	// The kernel's default for duplicate address detection is the only difference.
	if r := m.run(dual + " --dry-run"); r.Status != 0 || regexp.MustCompile(`(?m)^(add|remove|write|set [^s])`).MatchString(r.Out) {
		t.Errorf("after a boot something is to do: %+v", r)
	}
}

// queryInterfaces has ifupdown read the file.
func queryInterfaces(t *testing.T, n *node) {
	t.Helper()
	query, err := exec.LookPath("ifquery")
	if err != nil {
		t.Log("missing: ifquery")
		return
	}
	out := n.script(query + " -i /etc/network/interfaces --list --allow=ovs; " + query + " -i /etc/network/interfaces k8s-kube-master")
	if !strings.HasPrefix(out, "br-int\n") || !strings.Contains(out, "\novs_bridge: br-int\n") {
		t.Errorf("ifquery: %s", out)
	}
}

// bootByIfupdown deletes the port, and has ifupdown make it again.
func bootByIfupdown(t *testing.T, n *node) {
	t.Helper()
	if _, err := exec.LookPath("ifup"); err != nil {
		t.Log("missing: ifup")
		return
	}
	n.script(`ovs-vsctl del-port k8s-kube-master
		ovs-vsctl set Bridge br-int fail_mode=secure
		mkdir -p /run/network /etc/network/if-pre-up.d /etc/network/if-up.d
		ln -s /usr/share/openvswitch/scripts/ifupdown.sh /etc/network/if-pre-up.d/openvswitch
		ifup --allow=ovs br-int`)
}

// The stanzas appended by the suite of the Python era.
func TestInterfacesOfThePythonEra(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.write("/etc/network/interfaces", loopback+`
allow-ovs br-int
iface br-int inet manual
    ovs_type OVSBridge
    ovs_ports k8s-kube-master
    ovs_extra set bridge br-int fail_mode=secure

allow-br-int k8s-kube-master
iface k8s-kube-master inet static
    address 192.168.1.2
    netmask 255.255.255.0
    up sysctl -q -w net/ipv4/conf/k8s-kube-master/arp_announce=2
    ovs_type OVSIntPort
    ovs_bridge br-int
    ovs_extra set interface $IFACE mac="ae:11:22:33:44:55" external-ids:iface-id=k8s-kube-master
    up route add -net 192.168.0.0 netmask 255.255.0.0 gw 192.168.1.1
    down route del -net 192.168.0.0 netmask 255.255.0.0 gw 192.168.1.1

auto eth7
iface eth7 inet dhcp
`)
	m.init(masterInitArgs)
	text := m.file("/etc/network/interfaces")
	for want, n := range map[string]int{"iface br-int": 1, "allow-ovs br-int": 1, "iface k8s-kube-master": 1, "allow-br-int k8s-kube-master": 1, "ae:11": 0, "route add": 0, "iface eth7 inet dhcp": 1} {
		if strings.Count(text, want) != n {
			t.Errorf("%q is there %d times, want %d:\n%s", want, strings.Count(text, want), n, text)
		}
	}
}

// An operator's own stanza of br-int stays as it is.
func TestInterfacesWithAnOperatorsBridge(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	own := loopback + "\nauto br-int\nallow-ovs br-int br-ex\niface br-int inet manual\n    ovs_type OVSBridge\n    ovs_ports eth1\n"
	m.write("/etc/network/interfaces", own)
	r := m.init(masterInitArgs)
	if !strings.Contains(r.Err, "warning: /etc/network/interfaces has a stanza of its own for br-int: add k8s-kube-master to its ovs_ports") {
		t.Errorf("warnings: %s", r.Err)
	}
	text := m.file("/etc/network/interfaces")
	if !strings.HasPrefix(text, own+"\n#") || strings.Count(text, "iface br-int") != 1 {
		t.Error(text)
	}
	if r := m.run("node-remove --node-name=kube-master"); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	same(t, "after node-remove", strings.TrimRight(m.file("/etc/network/interfaces"), "\n")+"\n", own)
}

func TestRedHatScripts(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	const dir = "/etc/sysconfig/network-scripts/"
	m.write(dir+"ifup-ovs", "")
	m.write(dir+"ifcfg-br-int", "DEVICE=br-int\nONBOOT=yes\nDEVICETYPE=ovs\nTYPE=OVSBridge\nOVS_EXTRA=\"set bridge br-int fail_mode=secure\"\n") // the Python era's
	init := "master-init --cluster-ip-subnet=192.168.0.0/16,fd01::/48 --master-switch-subnet=192.168.1.0/24,fd01:0:0:1::/64 --node-name=kube-master"
	for range 2 {
		if r := m.init(init); r.Err != "" {
			t.Errorf("warnings: %s", r.Err)
		}
	}
	got := m.script(`. ` + dir + `ifcfg-k8s-kube-master; echo "$DEVICE $ONBOOT $TYPE $OVS_BRIDGE $IPADDR $NETMASK $IPV6INIT $IPV6ADDR"; echo "$OVS_EXTRA"
		. ` + dir + `ifcfg-br-int; echo "$DEVICE $ONBOOT $TYPE $OVS_EXTRA"; cat ` + dir + `route-* ` + dir + `route6-*`)
	same(t, "scripts", got, `k8s-kube-master yes OVSIntPort br-int 192.168.1.2 255.255.255.0 yes fd01:0:0:1::2/64
set interface k8s-kube-master mac="0a:58:c0:a8:01:02" mtu_request=1400 external-ids:iface-id=k8s-kube-master
br-int yes OVSBridge set bridge br-int fail_mode=secure
# Written by ovn-k8s-overlay: do not edit.
192.168.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46
100.64.0.0/16 via 192.168.1.1 dev k8s-kube-master proto 46
# Written by ovn-k8s-overlay: do not edit.
fd01::/48 via fd01:0:0:1::1 dev k8s-kube-master proto 46
fd98::/64 via fd01:0:0:1::1 dev k8s-kube-master proto 46`)
	if r := m.run("node-remove --node-name=kube-master"); r.Status != 0 {
		t.Fatalf("%+v", r)
	}
	same(t, "after node-remove", m.script("ls "+dir), "ifup-ovs")

	m.write(dir+"ifcfg-br-int", "DEVICE=br-int\nONBOOT=yes\nDEVICETYPE=ovs\nTYPE=OVSBridge\nVLAN=yes\n")
	if r := m.init(init); !strings.Contains(r.Err, "warning: "+dir+"ifcfg-br-int is not of this suite: it stays as it is") {
		t.Errorf("warnings: %s", r.Err)
	}
	same(t, "an operator's", m.script("grep -c VLAN=yes "+dir+"ifcfg-br-int"), "1")
}

// The next run removes temporary files of killed runs, but no file of a running one.
func TestLeftoversOfKilledRunsGo(t *testing.T) {
	w := newWorld(t, "master")
	m := w.nodes[0]
	m.init(masterInitArgs)
	leave := func() {
		m.script(`set -e
			mkdir -p /opt/cni/bin/.ovn-k8s-1 /etc/network /etc/cni/net.d
			ln -sfn /nowhere /opt/cni/bin/.ovn-k8s-1/link
			touch /etc/network/.ovn-k8s-2 /etc/cni/net.d/.ovn-k8s-3 /etc/cni/net.d/.ovn-k8s-4 /etc/cni/net.d/.other`)
	}
	left := func() string {
		return m.script("ls -d /opt/cni/bin/.o* /etc/network/.o* /etc/cni/net.d/.o* 2>/dev/null || true")
	}
	leave()
	m.script("nohup flock /etc/cni/net.d/.ovn-k8s-4 sleep 1000 >/dev/null 2>&1 & while flock -n /etc/cni/net.d/.ovn-k8s-4 true; do sleep 0.02; done")
	m.init(masterInitArgs)
	same(t, "after another init", left(), "/etc/cni/net.d/.other\n/etc/cni/net.d/.ovn-k8s-4")
	leave()
	if r := m.run("node-remove --node-name=kube-master"); r.Status != 0 {
		t.Errorf("%+v", r)
	}
	same(t, "after node-remove", left(), "/etc/cni/net.d/.other\n/etc/cni/net.d/.ovn-k8s-4")
}
