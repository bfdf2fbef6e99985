# Starts Open vSwitch in a host: $1 is the host's name, $2 the setting
# ovn-k8s-firewall, empty for none. Run again after its daemons died, or one of
# them, it continues with the same database.
set -e
db=/etc/openvswitch/conf.db
schema=/usr/share/openvswitch/vswitch.ovsschema
[ -e $db ] || ovsdb-tool create $db $schema
runs() { kill -0 "$(cat "/var/run/openvswitch/$1.pid")"; } 2>/dev/null
if ! runs ovsdb-server; then
	[ "$(ovsdb-tool needs-conversion $db $schema)" = no ] || ovsdb-tool convert $db $schema # as ovs-ctl(8)
	ovsdb-server $db --remote=punix:/var/run/openvswitch/db.sock \
		--detach --no-chdir --pidfile --log-file -vconsole:off
fi
ovs-vsctl --no-wait -- init -- set Open_vSwitch . \
	external_ids:system-id="$1" external_ids:hostname="$1" ${2:+external_ids:ovn-k8s-firewall=$2}
options=
if [ "$OVNK8S_TEST_DATAPATH" = netdev ]; then
	ovs-vsctl --no-wait set Open_vSwitch . external_ids:ovn-bridge-datapath-type=netdev
	options=--disable-system
fi
runs ovs-vswitchd || ovs-vswitchd $options --detach --no-chdir --pidfile --log-file -vconsole:off
