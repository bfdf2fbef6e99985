package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/names"
)

// A directory of the container runtime that cannot be written, and a CNI server that cannot serve, are named in one line, until
// that changes; the host has all else, and no part of a file.
func TestCNIFails(t *testing.T) {
	for name, d := range map[string]struct{ damage, says, mend string }{
		"read-only": {
			"mount --bind /etc/cni/net.d /etc/cni/net.d && mount -o remount,ro,bind /etc/cni/net.d",
			"trying again: trying to write /etc/cni/net.d/10-ovn-kubernetes.conflist: read-only file system",
			"umount /etc/cni/net.d",
		},
		"full": {
			"mount -t tmpfs -o size=64k tmpfs /opt/cni/bin",
			"trying again: trying to copy /usr/local/bin/ovn-k8s-cni-shim to /opt/cni/bin/ovn-k8s-cni-overlay: no space left on device",
			`test -z "$(ls -A /opt/cni/bin)" && umount /opt/cni/bin`,
		},
		"no-directory": {
			"touch /opt/file && ovs-vsctl set Open_vSwitch . external_ids:ovn-k8s-cni-link-path=/opt/file/bin",
			"trying again: looking at /opt/file/bin/ovn-k8s-cni-overlay: lstat /opt/file/bin/ovn-k8s-cni-overlay: not a directory",
			"ovs-vsctl remove Open_vSwitch . external_ids ovn-k8s-cni-link-path",
		},
		"server": {
			"printf 'CNI server: not my directory' >/etc/server-fails",
			"trying again: CNI server: not my directory",
			"rm /etc/server-fails",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newNode(t, "d-"+name, "10.128.2.0/23")
			w.script(d.damage)
			w.start()
			w.says(d.says)
			w.twoPasses()
			for text, most := range map[string]int{d.says: 1, "recovered": 0, "write /etc/cni/net.d/": 1, "copy /usr/local/bin/": 1} {
				if n := strings.Count(w.role.Output(), "|INFO|"+text) + strings.Count(w.role.Output(), "|WARN|"+text); n > most {
					t.Errorf("%d lines with %q:\n%s", n, text, w.role.Output())
				}
			}
			w.script(d.mend)
			w.complete()
		})
	}
}

// twoPasses waits for two more passes.
func (w *world) twoPasses() {
	w.t.Helper()
	port := names.ManagementInterface(w.Name)
	for range 2 {
		w.script("ip address flush dev " + port + " scope global")
		w.await("ip address show dev " + port + " | grep 10.128.2.2/23")
	}
}

// A NIC is not moved while the disk of the journal is full; one line says so.
func TestFullDiskOfTheJournal(t *testing.T) {
	w := newNode(t, "n24", "10.128.2.0/23")
	const dir = "/etc/openvswitch/ovn-k8s-util"
	w.script("mkdir -p " + dir + " && mount -t tmpfs -o size=64k tmpfs " + dir + " && dd if=/dev/zero of=" + dir + "/x bs=4k count=16")
	w.start("gateway-mode=shared")
	full := "trying again: writing the journal of a move in " + dir + ": no space left on device"
	w.says(full)
	w.twoPasses()
	for _, text := range []string{full, "moving eth0 "} {
		if n := strings.Count(w.role.Output(), text); n != 1 {
			t.Errorf("%d lines with %q:\n%s", n, text, w.role.Output())
		}
	}
	has(t, w.script("ip route; ip address show dev eth0"), "default via 198.18.0.1 dev eth0", "198.18.0.11/24")
	w.script("rm " + dir + "/x")
	w.complete()
	has(t, w.script("ip route"), "default via 198.18.0.1 dev breth0")
}

// A host started with other options of the gateway has the gateway of these, and no flows of the former one, without another
// start.
func TestOtherGateway(t *testing.T) {
	w := newShared(t, "n21")
	_, hops := w.Second()
	for bridge, options := range map[string][]string{
		"breth0": {"gateway-mode=shared", "gateway-interface=breth0"},
		"breth1": {"gateway-mode=shared", "gateway-interface=eth1", "gateway-nexthop=" + hops[0].String()},
		"br-int": {"gateway-mode=local"},
		"none":   nil,
	} {
		w.stop()
		w.start(options...)
		w.complete()
		for _, b := range []string{"breth0", "breth1"} {
			ours := "ovs-ofctl dump-flows " + b + " | grep -q cookie=0x6b38736777"
			if b != bridge {
				ours = "! { " + ours + "; }"
			}
			w.await(ours)
		}
		w.until("check", func() error { return w.check(options...) })
	}
}

// A clean-up of another node than that of the host changes nothing.
func TestCleanUpOfAnotherNode(t *testing.T) {
	w := newNode(t, "n22", "10.128.2.0/23")
	w.start("gateway-mode=local")
	w.complete()
	w.stop()
	before := w.settled()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, log, err := w.Run(w.ctx, self, append(w.args("clean"), "cleanup-node=n23")...)
	if err == nil || !strings.Contains(err.Error(), "this host is node n22, not n23: give --cleanup-node=n22") {
		t.Errorf("%v: %s", err, log)
	}
	if after := w.settled(); after != before {
		t.Errorf("the host changed (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// A clean-up without --cni-conf-dir finds the configuration in the directory that the role had.
func TestCleanUpOfAnotherCNIDirectory(t *testing.T) {
	w := newNode(t, "n25", "10.128.2.0/23")
	before := w.settled()
	w.start("cni-conf-dir=/etc/cni/other")
	w.says("host is complete")
	w.await("test -e /etc/cni/other/10-ovn-kubernetes.conflist")
	w.stop()
	w.clean()
	w.becomes("a clean-up", before)
}

// A host with another name for its plugin, or another directory, has no file of the former one, but a plugin stays while there
// are pods. A clean-up without these options finds all files.
func TestCleanUpOfAnotherCNIPlugin(t *testing.T) {
	w := newNode(t, "n48", "10.128.2.0/23")
	before := w.settled()
	w.start("cni-plugin=second")
	w.complete()
	w.script(`test -x /opt/cni/bin/second`)
	w.script(`ovs-vsctl add-port br-int pod1 -- set Interface pod1 type=internal external_ids:sandbox=c1 external_ids:iface-id=default_pod1 external_ids:ip_address=10.128.2.7`)
	w.stop()
	w.start("cni-plugin=third", "cni-conf-dir=/etc/cni/other")
	w.await(`grep -q '"third"' /etc/cni/other/10-ovn-kubernetes.conflist && ! test -e /etc/cni/net.d/10-ovn-kubernetes.conflist`)
	w.says("host is complete")
	w.script(`test -x /opt/cni/bin/second && test -x /opt/cni/bin/third && ovs-vsctl del-port pod1`)
	w.await(`! test -e /opt/cni/bin/second && ! ovs-vsctl get Open_vSwitch . external_ids | grep bin/second`)
	w.stop()
	w.start()
	w.complete()
	w.await(`! test -e /opt/cni/bin/third && ! test -e /etc/cni/other/10-ovn-kubernetes.conflist && ! ovs-vsctl get Open_vSwitch . external_ids | grep cni-files`)
	w.until("check", func() error { return w.check() })
	w.stop()
	w.start("cni-plugin=fourth")
	w.await(`grep -q '"fourth"' /etc/cni/net.d/10-ovn-kubernetes.conflist`)
	w.stop()
	w.clean()
	w.becomes("a clean-up", before)
}

// A route of the host to the subnets of pods stops a new host before the role changes anything, with one line. When it is gone,
// the host goes on. A host that is the node already keeps the rest in spite of such a route.
func TestRouteInTheWay(t *testing.T) {
	w := newNode(t, "n49", "10.128.2.0/23")
	const line = "trying again: this host has a route 10.128.0.0/14 dev %s already: delete it, or choose another subnet for pods"
	const changes = `ip address show dev eth0 scope global; ovs-vsctl list-br; ovs-vsctl list SSL; ovs-vsctl --columns=external_ids list Open_vSwitch | grep -o -e ovn-remote -e ovn-encap -e ovn-nb -e former-ids || true`
	w.script("ip route add 10.128.0.0/14 via 198.18.0.1")
	before := w.script(changes)
	w.start("gateway-mode=shared")
	w.says(fmt.Sprintf(line, "eth0"))
	w.settled() // with the rules of the gateway helper
	if after := w.script(changes); after != before || strings.Contains(w.role.Output(), "set external_ids:") {
		t.Errorf("the host changed (-before +after):\n%s\n%s", cmp.Diff(before, after), w.role.Output())
	}
	w.script("ip route del 10.128.0.0/14")
	w.complete()
	if n := strings.Count(w.role.Output(), "this host has a route"); n != 1 {
		t.Errorf("%d lines about the route", n)
	}

	complete := w.settled()
	w.stop()
	w.script("ip route add 10.128.0.0/14 via 198.18.0.1 metric 5; ovs-vsctl remove Open_vSwitch . external_ids ovn-remote")
	w.start("gateway-mode=shared")
	w.says(fmt.Sprintf(line, "breth0"))
	w.await("ovs-vsctl get Open_vSwitch . external_ids:ovn-remote")
	w.script("ip route del 10.128.0.0/14 metric 5")
	w.says("host is complete")
	w.becomes("without the route", complete)
}

// A clean-up killed at any moment does not cut the host off, and the next one gives the host back.
func TestCleanUpKilledAtAnyMoment(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv(killsVariable))
	if err != nil {
		kills = 1
	}
	for _, mode := range []string{"shared", "spare", "local"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			k := newKilled(t, mode, "46", []string{"10.128.2.0/23", "fd01:0:0:2::/64"}, kills)
			for range kills {
				k.start(k.options...)
				k.complete()
				k.stop()
				k.answers(k.killClean())
				k.takeBack()
			}
		})
	}
}

// killClean starts a clean-up and kills it at a drawn time, which it returns.
func (k *killed) killClean() string {
	k.t.Helper()
	self, err := os.Executable()
	if err != nil {
		k.t.Fatal(err)
	}
	p, err := k.Start(self, k.args("clean", k.options...)...)
	if err != nil {
		k.t.Fatal(err)
	}
	late := rand.N(1500 * time.Millisecond).Seconds()
	k.script(fmt.Sprintf(`for i in $(seq 1000); do process=$(pgrep -f '^/[^ ]*[.]test clean cleanup-node=') && break; done
		sleep %f
		[ -z "$process" ] || kill -9 $process 2>/dev/null || true # it may have ended`, late))
	p.Stop()
	k.log.WriteString(p.Output() + "--- killed\n")
	return fmt.Sprintf("a kill of the clean-up after %.3fs", late)
}

// A firewall beside a local gateway may drop answers of pods that come by another interface than the host's route to them uses.
func TestReversePathFilter(t *testing.T) {
	w := newNode(t, "n17", "10.128.2.0/23", "fd01:0:0:2::/64")
	w.script(`nft 'table inet firewalld { chain filter_PREROUTING { type filter hook prerouting priority 10; policy accept; meta nfproto ipv6 fib saddr . mark . iif oif missing drop; }; }'`)
	w.start("gateway-mode=local")
	const what = "chain filter_PREROUTING of table inet firewalld drops at hook prerouting packets of IPv6 whose route back uses another interface"
	w.says(what)
	w.event("FirewallDrops", what)
}
