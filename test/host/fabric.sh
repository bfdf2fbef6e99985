# The holder process of a fabric, in a new network namespace, with a bridge for
# each argument. It prints its process ID when ready, and ends at the end of its
# standard input.
set -e
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
number=0
for bridge; do
	number=$((number + 1))
	# A fixed MAC: otherwise a bridge takes that of a port, and the router's MAC changes whenever a machine reboots.
	# No snooping: it drops IPv6 neighbour discovery until a querier is known.
	ip link add "$bridge" address "02:00:00:00:ff:0$number" type bridge forward_delay 0 mcast_snooping 0
	# The userspace datapath does not complete checksums, as a NIC would.
	[ "$OVNK8S_TEST_DATAPATH" != netdev ] || ethtool -K "$bridge" tx off >/dev/null
done
echo $$
exec cat >/dev/null
