package boot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// units returns an error if one of systemd's units has failed or was restarted.
func (n *bootedNode) units() error {
	out, err := n.m.Script(n.ctx, "systemctl --failed --no-legend --plain | grep -v 'ifup@'; systemctl show -p Id,NRestarts ovn-k8s-node ovn-k8s-gateway ovn-k8s-gateway-helper | grep -B1 'NRestarts=[1-9]' || :")
	if err == nil && strings.TrimSpace(out) != "" {
		err = fmt.Errorf("failed or restarted: %s\n%s", out, n.report())
	}
	return err
}

// flowsBefore is the file with the flows of a shared bridge at the start of ovn-controller.
const flowsBefore = "/run/flows-before-ovn"

// flowsFirst returns an error unless a shared bridge had its flows before ovn-controller started. Otherwise the host
// routes packets to pods, and OVN takes the answers for connections of the pods' own (P1).
func (n *bootedNode) flowsFirst() error {
	if n.mode != world.Shared {
		return nil
	}
	if err := n.shell(fmt.Sprintf("grep -q cookie=%#x %s", uint64(bridgeflows.Cookie), flowsBefore)); err != nil {
		return fmt.Errorf("ovn-controller started before the bridge had its flows: %w\n%s", err, n.report())
	}
	return nil
}

// back returns the error of the first check that fails.
func (n *bootedNode) back() error {
	for _, check := range []func() error{n.active, n.network, n.neighbours, n.managementPort, n.addPod, n.pods, n.services, n.egress} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// active checks the state and status of our units.
func (n *bootedNode) active() error {
	units := "ovn-k8s-node ovn-k8s-gateway-helper"
	if n.mode != "" {
		units += " ovn-k8s-gateway"
	}
	if err := n.shell(active(units) + " && ! ls /etc/openvswitch/ovn-k8s-util/*.json 2>/dev/null"); err != nil {
		return fmt.Errorf("units: %w", err)
	}
	return nil
}

// network checks the NIC in its bridge, the routes and the name server.
func (n *bootedNode) network() error {
	script := `set -e
		ip route show default | grep -q 'dev breth0'
		[ -z "$(ip -o address show dev eth0 scope global)" ]
		for i in breth0 eth0; do [ $(cat /proc/sys/net/ipv6/conf/$i/accept_ra) != 1 ] || [ $(cat /proc/sys/net/ipv6/conf/$i/forwarding) = 0 ]; done
		ip -6 route show default | grep -q 'dev breth0'
`
	switch {
	case n.dynamic:
		script += "ip -6 -o address show dev breth0 scope global | grep -q ' fd00:77:'; ip -4 -o address show dev breth0 | grep -q dynamic\n"
	case n.manager.Name != "":
		script += "[ $(ip route show 172.32.0.0/16 | grep -c 'nexthop via .* dev breth0') = 2 ]\n"
	}
	if n.manager.Name == "NetworkManager" || n.manager.Name == "ifupdown" && n.dynamic {
		script += "grep -q 'nameserver 198.18.0.1' /etc/resolv.conf\n"
	}
	if err := n.shell(script); err != nil {
		out, _ := n.m.Try("ip -o address show dev breth0; ip -o address show dev eth0; ip route; ip -6 route show default; cat /etc/resolv.conf")
		return fmt.Errorf("the network: %w: %s", err, out.Out)
	}
	return nil
}

// neighbours checks that the NIC and the router reach each other.
func (n *bootedNode) neighbours() error {
	if err := n.shell("ping -c1 -W1 198.18.0.1 >/dev/null && ping -c1 -W1 fd00:198:18::1 >/dev/null"); err != nil {
		return fmt.Errorf("the NIC to its router: %w", err)
	}
	if err := n.ask(n.c.Fabric.Netns(), "icmp", n.address(), 0, nil); err != nil {
		return fmt.Errorf("outside to the NIC: %w", err)
	}
	return nil
}

// managementPort checks the addresses and routes of the management port.
func (n *bootedNode) managementPort() error {
	port := "k8s-" + n.name
	err := n.shell(fmt.Sprintf(`set -e
		ip -4 addr show %[1]s | grep -q ' 10.128.%[2]d.2/24 '; ip -6 addr show %[1]s | grep -q ' fd01:0:0:%[2]x::2/64 '
		ip route | grep -q '^10.128.0.0/14 via 10.128.%[2]d.1 dev %[1]s'; ip route | grep -q '^100.64.0.0/16 via 10.128.%[2]d.1'
		ip -6 route | grep -q '^fd01::/48 via fd01:0:0:%[2]x::1 dev %[1]s'`, port, n.number))
	if err != nil {
		return fmt.Errorf("the management port: %w", err)
	}
	return nil
}

// leavePod forgets the pod's sandbox, which ends with the machine.
func (n *bootedNode) leavePod() {
	if n.server != nil {
		n.server.Close()
	}
	n.pod, n.server = "", nil
}

// addPod makes the pod's sandbox if there is none since the boot, as a kubelet would.
func (n *bootedNode) addPod() error {
	if n.pod != "" {
		return nil
	}
	out, err := n.m.Script(n.ctx, fmt.Sprintf(`[ -e /run/netns/pod ] || ip netns add pod; ip -n pod link set lo up
		echo '{"cniVersion":"1.0.0","name":"ovn-k8s","type":"ovn-k8s-cni-overlay"}' |
		CNI_COMMAND=ADD CNI_CONTAINERID=%[1]s%[2]s CNI_NETNS=/run/netns/pod CNI_IFNAME=eth0 CNI_PATH=/opt/cni/bin \
		CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=%[1]s;K8S_POD_INFRA_CONTAINER_ID=%[1]s' /opt/cni/bin/ovn-k8s-cni-overlay || { ip netns del pod; exit 1; }`,
		n.name, strconv.FormatInt(time.Now().UnixNano(), 36)))
	if err != nil {
		return fmt.Errorf("ADD: %w: %s", err, out)
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return err
	}
	n.pod, n.podIPs = n.m.Path("/run/netns/pod"), nil
	for _, ip := range result.IPs {
		n.podIPs = append(n.podIPs, ip.Address.Addr())
	}
	n.server, err = probe.Serve(n.pod, "default/"+n.name, kubelet.DefaultPort)
	return err
}

// ask sends one request from a namespace, and checks the source address seen by the server, if seen is not nil.
func (n *bootedNode) ask(netns, network string, a netip.Addr, port int, seen []netip.Addr) error {
	ctx, cancel := context.WithTimeout(n.ctx, 3*time.Second)
	defer cancel()
	answer, err := probe.Probe{Netns: netns, Network: network, Address: probe.Address(a, port)}.Once(ctx)
	if err != nil || seen == nil {
		return err
	}
	_, client, err := probe.Answer(answer)
	if err == nil && !slices.Contains(seen, client.Addr()) {
		err = fmt.Errorf("%s to %v: seen as %v, not as one of %v", network, a, client.Addr(), seen)
	}
	return err
}

// pods checks connections between the machine, its pod and a pod on another node.
func (n *bootedNode) pods() error {
	for _, a := range n.c.far.Addresses {
		if err := n.ask(n.pod, "tcp", a, kubelet.DefaultPort, n.podIPs); err != nil {
			return fmt.Errorf("pod to pod: %w", err)
		}
		if err := n.ask(n.m.Netns(), "tcp", a, kubelet.DefaultPort, nil); err != nil {
			return fmt.Errorf("host to pod: %w", err)
		}
	}
	for _, a := range n.podIPs {
		if err := n.ask(n.c.far.Netns, "tcp", a, kubelet.DefaultPort, n.c.far.Addresses); err != nil {
			return fmt.Errorf("other node's pod to pod: %w", err)
		}
	}
	return nil
}

// services checks a ClusterIP from the host and from its pod, and the NodePort from outside.
func (n *bootedNode) services() error {
	for _, a := range n.c.service.ClusterIPs {
		if err := n.ask(n.m.Netns(), "tcp", a, world.ServicePort, nil); err != nil {
			return fmt.Errorf("host to ClusterIP: %w", err)
		}
		if err := n.ask(n.pod, "tcp", a, world.ServicePort, nil); err != nil {
			return fmt.Errorf("pod to ClusterIP: %w", err)
		}
	}
	if err := n.ask(n.c.Outside.Netns(), "tcp", n.address(), n.c.service.NodePorts["tcp"], nil); err != nil {
		return fmt.Errorf("outside to NodePort: %w", err)
	}
	return nil
}

// egress checks that the pod leaves by its own node's gateway.
func (n *bootedNode) egress() error {
	if n.mode == "" {
		return nil
	}
	port := n.m.Port
	if n.mode == world.Dedicated {
		port = n.m.Second
	}
	for i, to := range []netip.Addr{n.c.Outside.IPv4(), n.c.Outside.IPv6()} {
		if i == 1 && n.dynamic {
			continue // this gateway has IPv4 only
		}
		if err := n.ask(n.pod, "tcp", to, kubelet.DefaultPort, []netip.Addr{port.Addresses[i].Addr()}); err != nil {
			return fmt.Errorf("egress: %w", err)
		}
	}
	return nil
}

// watchAdvertisements checks for several lifetimes that the settings advertised by the router
// stay, on a rebooted machine.
func (n *bootedNode) watchAdvertisements() {
	n.Helper()
	seconds, err := strconv.Atoi(os.Getenv("OVNK8S_TEST_RA_SECONDS"))
	if err != nil {
		seconds = 30
	}
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		if err := n.network(); err != nil {
			n.Errorf("while routers advertise: %v\n%s", err, n.report())
			return
		}
	}
	n.await("everything while routers advertise", n.back)
}
