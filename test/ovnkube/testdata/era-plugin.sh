#!/bin/sh
# A CNI plugin that does what the one of July 2019 did to a host. Instead of its pod's annotation it reads the file
# /run/pods/NAME, with MAC, address and gateway.
set -e
name=$(echo "$CNI_ARGS" | sed 's/.*K8S_POD_NAME=\([^;]*\).*/\1/')
port=$(echo "$CNI_CONTAINERID" | cut -c1-15)
case $CNI_COMMAND in
ADD)
	read -r mac ip gateway <"/run/pods/$name"
	netns=$(basename "$CNI_NETNS")
	exec 3>&1 >&2
	ip link add "$port" mtu 1400 type veth peer name "$CNI_IFNAME" address "$mac" mtu 1400 netns "$netns"
	ip -n "$netns" address add "$ip" dev "$CNI_IFNAME"
	ip -n "$netns" link set "$CNI_IFNAME" up
	ip -n "$netns" route add default via "$gateway"
	ip netns exec "$netns" ethtool -K "$CNI_IFNAME" tx off # for the userspace datapath of Open vSwitch
	ip link set "$port" up
	ovs-vsctl add-port br-int "$port" -- set Interface "$port" external_ids:attached_mac="\"$mac\"" \
		external_ids:iface-id="default_$name" external_ids:ip_address="\"$ip\"" external_ids:sandbox="$CNI_CONTAINERID"
	cat >&3 <<-RESULT
		{"cniVersion": "0.3.1", "interfaces": [{"name": "$port"}, {"name": "$CNI_IFNAME", "sandbox": "$CNI_NETNS"}],
		"ips": [{"version": "4", "interface": 1, "address": "$ip", "gateway": "$gateway"}]}
	RESULT
	;;
DEL) ovs-vsctl --if-exists del-port br-int "$port" ;;
VERSION) echo '{"cniVersion": "0.3.1", "supportedVersions": ["0.3.0", "0.3.1"]}' ;;
esac
