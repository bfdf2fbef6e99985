# Completes the virtual machine's root file system; $1 has the kernel's modules, if it
# has any.
set -e
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /tmp
mkdir -p /run/lock /run/netns /lib/modules
nic=vec0
ln -sfn /proc/self/fd /dev/fd
hostname vm
if [ -d "$1" ]; then
	nic=eth0
	mount --bind "$1" /lib/modules
	modprobe -a openvswitch vport-geneve sctp 8021q bonding veth tun dummy virtio_net
fi
ip link set lo up
ip link set "$nic" up
ip address add 10.0.2.15/24 dev "$nic"
echo "the virtual machine is up after $(cut -d' ' -f1 /proc/uptime) s of its time"
# ovs-vswitchd 3.1 counts no CPU in the first 10 s after the machine's start, and then
# forwards nothing on the kernel's datapath (docs/debugging.md).
while [ "$(cut -d. -f1 /proc/uptime)" -lt 11 ]; do sleep 0.2; done
