# Makes the bridge breth0 of eth0, or does nothing if it is there.
set -e
mac=$(cat /sys/class/net/eth0/address)
ovs-vsctl --timeout=60 -- --may-exist add-br breth0 \
	-- set Bridge breth0 datapath_type="$OVNK8S_TEST_DATAPATH" other_config:hwaddr="\"$mac\"" \
	-- --may-exist add-port breth0 eth0
