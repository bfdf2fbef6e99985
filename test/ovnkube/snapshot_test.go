package ovnkube

import (
	"strings"

	"ovn-k8s/test/world"
)

// snapshotScript prints the state of a host's network but for br-int, pods and forwarding, and its files but for logs and
// databases. Go's own files are left out: in the virtual machine of "make test-kernel", each file seen is held open outside.
const snapshotScript = `
for i in $(seq 600); do ip -6 -o address show tentative | grep -q . || break; sleep 0.05; done
pods=$(ovs-vsctl --bare --columns=name find Interface 'external_ids:sandbox!=""')
is_pod() { case " $(echo $pods) " in *" $1 "*) ;; *) false ;; esac; }
for d in $(ls /sys/class/net); do
	[ $d != br-int ] && ! is_pod $d || continue
	ip -o link show dev $d | sed 's/^[0-9]*: /link /; s/qlen [0-9]*//'
	ip -o address show dev $d | sed 's/^[0-9]*: /address /; s/[0-9]*sec/TIME/g'
	for s in ipv4/conf/$d/arp_ignore ipv4/conf/$d/arp_announce ipv4/conf/$d/rp_filter ipv6/conf/$d/disable_ipv6 ipv4/conf/$d/accept_local ipv4/conf/$d/route_localnet; do
		echo "$s $(cat /proc/sys/net/$s)"
	done
done
{ ip route show table all; ip -6 route show table all; } | grep -v -e ^anycast -e ' dev [0-9a-f]*_[0-9]* ' | sed 's/^/route /' | sort
{ ip rule; ip -6 rule; } | sed 's/^/rule /'
ip neigh show nud permanent | sed 's/^/neighbour /'
for i in iptables-save ip6tables-save; do ! command -v $i >/dev/null || $i; done | grep -v -e '^#' -e '^:[A-Z]* ' -e '^[*]' -e COMMIT
nft -s list ruleset
for p in $(ovs-vsctl list-br); do
	[ $p != br-int ] || continue
	echo "bridge $p: $(ovs-vsctl get Bridge $p external_ids other_config fail_mode datapath_type | tr '\n' ' ')"
	for port in $(ovs-vsctl list-ports $p); do
		echo "port $port of $p: $(ovs-vsctl get Port $port tag external_ids other_config qos | tr '\n' ' ') $(ovs-vsctl --columns=type,options,external_ids,mac,mtu_request,ingress_policing_rate --format=csv --no-headings find Interface name=$port)"
	done
	ovs-ofctl --no-stats dump-flows $p | sed "s/^/flow of $p/"
done
ovs-vsctl get Open_vSwitch . external_ids other_config ssl
[ -e /run/first-snapshot ] || touch /run/first-snapshot
{
	find /etc/cni /etc/network /etc/openvswitch /opt/cni /var/run/ovn-kubernetes -type f ! -name '*conf.db*' 2>/dev/null
	find /etc /opt /usr/local /var/lib -path /etc/openvswitch -prune -o -path /var/lib/cni -prune -o -path /usr/local/go -prune -o -type f -newer /run/first-snapshot -print
} | sort -u | while read -r f; do echo "file $f $(stat -c %a "$f") $(md5sum <"$f")"; done
`

// snapshot is the state of a host that the node role changes.
func (c *cluster) snapshot(n *world.Node) []string {
	c.Helper()
	out, err := n.Script(c.ctx, snapshotScript)
	c.must(err)
	return strings.Split(out, "\n")
}

// difference lists the lines that were lost or added, in any order.
func difference(before, after []string) string {
	count, lines := map[string]int{}, []string(nil)
	for _, l := range after {
		count[l]++
	}
	for _, l := range before {
		if count[l]--; count[l] < 0 {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range after {
		if count[l]--; count[l] >= 0 {
			lines = append(lines, "+ "+l)
		}
	}
	return strings.Join(lines, "\n")
}
