# Makes a fresh disk, whose root is $1, that of a machine with the name $2 and the datapath $3: nothing
# that the machine underneath has enabled, configured or recorded, and no hardware.
set -e
cd "$1"
rm -rf etc/systemd/system/*.wants etc/systemd/system/*.requires etc/rc?.d/* etc/netplan/* \
	etc/openvswitch etc/ovn etc/cni etc/kubernetes etc/default/ovn-* etc/default/openvswitch-switch \
	opt/cni var/lib/openvswitch var/lib/ovn var/lib/cni var/lib/kubelet var/log/openvswitch var/log/ovn var/log/journal
mkdir -p etc/openvswitch etc/systemd/system/ovs-vswitchd.service.d var/lib/openvswitch var/log/openvswitch var/log/ovn var/log/journal
ln -sfn ../run var/run
echo "$2" >etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$2" >etc/hosts
rm -f etc/resolv.conf
: >etc/resolv.conf
: >etc/fstab
tr -d - </proc/sys/kernel/random/uuid >etc/machine-id
for unit in getty@tty1 console-getty systemd-logind systemd-udevd systemd-modules-load systemd-remount-fs ifupdown-pre; do
	ln -sf /dev/null "etc/systemd/system/$unit.service"
done
# Open vSwitch without the kernel's module, unless $3 is "system". Bridges need datapath_type=$3.
[ "$3" = netdev ] || exit 0
cat >etc/systemd/system/ovs-vswitchd.service.d/userspace.conf <<END
[Service]
ExecStart=
ExecStart=/usr/sbin/ovs-vswitchd unix:/var/run/openvswitch/db.sock --disable-system --pidfile --detach --log-file -vconsole:off
ExecStop=
END
