# Makes a host fit for a container runtime. The lines of standard input are the
# machine's control group hierarchies, as "MOUNTPOINT FSTYPE OPTIONS".
set -e
mount --make-rshared / # the kubelet's volumes must reach containers
# The new /sys hides the machine's control group mounts.
while read -r point type options; do
	[ "$point" = /sys/fs/cgroup ] || [ -n "$made" ] || mount -t tmpfs tmpfs /sys/fs/cgroup
	made=yes
	mkdir -p "$point"
	mount -t "$type" -o "$options" "$type" "$point"
done
# Images cannot be unpacked onto an overlay.
for dir in /var/lib/containerd /var/lib/kubelet; do
	mkdir -p $dir
	mount -t tmpfs tmpfs $dir
done
mkdir -p /var/log/pods /var/log/containers /etc/kubernetes/manifests
# containerd calls this plugin in addition to the configured ones.
for dir in /usr/lib/cni /usr/libexec/cni; do
	[ ! -x $dir/loopback ] || ln -sf $dir/loopback /opt/cni/bin/loopback
done
