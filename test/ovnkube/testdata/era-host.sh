# Sets up a host as ovnkube did in July 2019: $1 is the node, $2 the prefix of its subnet, $3 its router's MAC, $4 is set for
# a shared gateway on breth0. It prints the MAC of the management port.
set -e
port="k8s-$1"
ovs-vsctl add-port br-int "$port" -- set Interface "$port" type=internal mtu_request=1400 external_ids:iface-id="$port"
ip link set "$port" up
ip address add "$2.2/24" dev "$port"
ip route add 10.128.0.0/14 via "$2.1"
ip route add 172.30.0.0/16 via "$2.1"
ip neigh replace "$2.1" dev "$port" lladdr "$3" nud permanent
cat /sys/class/net/"$port"/address
[ -n "$4" ] || exit 0
patch="patch-breth0_$1-to-br-int"
ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-mappings=physnet:breth0
ovs-vsctl --timeout=60 wait-until Interface "$patch" 'ofport>0'
number=$(ovs-vsctl get Interface "$patch" ofport)
ovs-ofctl add-flows breth0 - <<FLOWS
table=0,priority=100,in_port=$number,ip,actions=ct(commit,zone=64000),output:eth0
table=0,priority=50,in_port=eth0,ip,actions=ct(zone=64000,table=1)
table=1,priority=100,ct_state=+trk+est,actions=output:$number
table=1,priority=100,ct_state=+trk+rel,actions=output:$number
table=1,priority=0,actions=LOCAL
FLOWS
