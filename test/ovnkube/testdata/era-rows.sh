# Writes rows into the Northbound database $1 as ovnkube did in July 2019. The command $2 is a function below, with its
# arguments.
set -e
export OVN_NB_DB="$1"
router=ovn_cluster_router

# cluster makes the cluster router, the join switch and the load balancers of cluster IPs.
cluster() {
	ovn-nbctl lr-add $router -- set Logical_Router $router external_ids:k8s-cluster-router=yes \
		-- create Load_Balancer protocol=tcp external_ids:k8s-cluster-lb-tcp=yes \
		-- create Load_Balancer protocol=udp external_ids:k8s-cluster-lb-udp=yes \
		-- ls-add join -- set Logical_Switch join other_config:subnet=100.64.0.0/16 other_config:exclude_ips=100.64.0.1 \
		-- lrp-add $router rtoj-$router 00:00:00:11:22:33 100.64.0.1/16
	to_router join jtor-$router rtoj-$router 00:00:00:11:22:33
}

# to_router SWITCH PORT PEER MAC connects a switch to a router's port.
to_router() {
	ovn-nbctl lsp-add "$1" "$2" -- set Logical_Switch_Port "$2" type=router options:router-port="$3" addresses="\"$4\""
}

balancer() { ovn-nbctl --bare --columns=_uuid find Load_Balancer external_ids:k8s-cluster-lb-$1=yes; }

# node NAME PREFIX MAC1 MAC2 makes a node with the subnet PREFIX.0/24: MAC1 is its router's, MAC2 its management port's.
node() {
	ovn-nbctl ls-add "$1" -- set Logical_Switch "$1" other_config:subnet="$2.0/24" other_config:exclude_ips="$2.2" external_ids:gateway_ip="$2.1/24" \
		-- ls-lb-add "$1" "$(balancer tcp)" -- ls-lb-add "$1" "$(balancer udp)" \
		-- lrp-add $router "rtos-$1" "$3" "$2.1/24" \
		-- lsp-add "$1" "k8s-$1" -- lsp-set-addresses "k8s-$1" "$4 $2.2" \
		-- acl-add "$1" to-lport 1001 "ip4.src==$2.2" allow-related
	to_router "$1" "stor-$1" "rtos-$1" "$3"
}

# gateway NAME PREFIX MAC IP NEXTHOP makes a shared gateway on breth0 of a node.
gateway() {
	gr="GR_$1" ip="${4%/*}" join=100.64.0.2
	ovn-nbctl lr-add "$gr" -- set Logical_Router "$gr" options:chassis="$1" options:lb_force_snat_ip=$join external_ids:physical_ip="$ip" \
		-- lrp-add "$gr" "rtoj-$gr" 00:00:00:44:55:66 $join/16 \
		-- lr-route-add "$gr" 10.128.0.0/14 100.64.0.1 \
		-- lr-route-add $router 0.0.0.0/0 $join \
		-- lr-route-add $router $join $join \
		-- --policy=src-ip lr-route-add $router "$2.0/24" $join \
		-- lr-route-add $router "$ip" "$2.2" \
		-- ls-add "ext_$1" -- lsp-add "ext_$1" "breth0_$1" \
		-- set Logical_Switch_Port "breth0_$1" type=localnet options:network_name=physnet addresses=unknown \
		-- lrp-add "$gr" "rtoe-$gr" "$3" "$4" -- set Logical_Router_Port "rtoe-$gr" external_ids:gateway-physical-ip=yes \
		-- lr-route-add "$gr" 0.0.0.0/0 "$5" "rtoe-$gr" \
		-- lr-nat-add "$gr" snat "$ip" 10.128.0.0/14
	to_router join "jtor-$gr" "rtoj-$gr" 00:00:00:44:55:66
	to_router "ext_$1" "etor-$gr" "rtoe-$gr" "$3"
}

# pod NAME NODE makes the logical port of a pod, and prints its MAC and address.
pod() {
	ovn-nbctl --wait=sb lsp-add "$2" "default_$1" -- lsp-set-addresses "default_$1" dynamic \
		-- set Logical_Switch_Port "default_$1" external_ids:namespace=default external_ids:logical_switch="$2" external_ids:pod=true
	ovn-nbctl get Logical_Switch_Port "default_$1" dynamic_addresses | tr -d '"'
}

# service VIP BACKEND adds a frontend of a Service.
service() { ovn-nbctl set Load_Balancer "$(balancer tcp)" "vips:\"$1\"=\"$2\""; }

shift
"$@"
