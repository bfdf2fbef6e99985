# Completes the virtual machine's root file system; $1 has the kernel's modules.
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
ln -sfn /proc/self/fd /dev/fd
mount --bind "$1" /lib/modules
hostname vm
modprobe -a openvswitch vport-geneve sctp 8021q bonding veth tun dummy virtio_net
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0
echo "the virtual machine is up after $(cut -d' ' -f1 /proc/uptime) s of its time"
