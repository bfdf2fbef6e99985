# The effects of a reboot on a host: no processes, an empty /run, and no
# namespaces, mounts and links of pods. Files on disk stay.
kill -9 -1 # all of this process namespace but its first process and this one
while [ "$(ls -d /proc/[0-9]* | wc -l)" -gt 5 ]; do :; done # the first, this, and three of the pipeline
for dir in /run/containerd /run/netns /run/ipcns /run/utsns /var/lib/kubelet; do
	grep -o " $dir/[^ ]*" /proc/self/mountinfo | sort -r | while read -r point; do
		umount -l "$point"
	done
done
rm -rf /run/containerd /run/netns/* /run/openvswitch/* /run/ovn/*
