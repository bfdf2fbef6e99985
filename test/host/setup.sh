# The first process of a host, in fresh mount, network, UTS and process
# namespaces: $1 is its name, $2 is set for a host without iptables. It prints its process ID as seen from outside when
# all is ready, and ends when its standard input does. The kernel then kills
# everything in the host and drops its namespaces, mounts and links.
set -e
read -r pid rest </proc/self/stat # still the outer /proc
mount --make-rprivate /
mount -t proc proc /proc
mount -t sysfs sysfs /sys
hostname "$1"

# What the host writes stays in memory. The tmpfs moves out of sight at the end.
mount -t tmpfs tmpfs /run
for dir in /etc /opt /var /usr/local; do
	mkdir -p "/run/upper$dir" "/run/work$dir"
	mount -t overlay overlay -o "lowerdir=$dir,upperdir=/run/upper$dir,workdir=/run/work$dir" "$dir"
done
for dir in /etc/openvswitch /etc/ovn /etc/cni /etc/network /opt/cni/bin \
	/var/lib/openvswitch /var/lib/ovn /var/lib/cni /var/log; do
	mkdir -p "$dir" "/run/empty$dir"
	mount --bind "/run/empty$dir" "$dir"
done
if [ -n "$2" ]; then # a program that nobody may execute is found by no PATH
	for program in xtables-nft-multi xtables-legacy-multi; do
		path=$(command -v $program) && mount --bind /dev/null "$path"
	done
fi
ln -sfn ../run /var/run # relative, so it also works from outside
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock /run/openvswitch /run/ovn \
	/etc/cni/net.d /var/log/openvswitch /var/log/ovn

ip link set lo up
echo "$pid"
# Orphans become children of this process: ignoring SIGCHLD reaps them.
exec env --ignore-signal=CHLD cat >/dev/null
