# The first process of a machine that boots, in fresh namespaces: $1 is its name. It
# prints its process ID, waits for a line, before which NICs are plugged in, and
# becomes systemd.
set -e
root=/run/root
read -r pid rest </proc/self/stat # still the outer /proc
hostname "$1"
mount --make-rprivate /
mount -t proc proc $root/proc
# Read-only, as in containers: without udev, programs take links for initialized.
mount -t sysfs -o ro sysfs $root/sys
mount -t cgroup2 cgroup2 $root/sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs $root/run
mount -t tmpfs -o mode=1777 tmpfs $root/tmp
mount -t tmpfs -o mode=755 tmpfs $root/dev
mkdir $root/dev/net $root/dev/pts $root/dev/shm $root/run/old $root/run/lock
for device in null zero full random urandom tty net/tun; do
	: >$root/dev/$device
	mount --bind /dev/$device $root/dev/$device
done
# The kernel has one for all machines.
cat /proc/sys/kernel/random/uuid >$root/run/boot_id
mount --bind $root/run/boot_id $root/proc/sys/kernel/random/boot_id
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts $root/dev/pts
mount -t tmpfs -o mode=1777 tmpfs $root/dev/shm
ln -s pts/ptmx $root/dev/ptmx
ln -s /proc/self/fd $root/dev/fd
for n in 0 1 2; do ln -s /proc/self/fd/$n $root/dev/$(echo stdin stdout stderr | cut -d' ' -f$((n + 1))); done
echo "$pid"
read -r plugged
cd $root
pivot_root . run/old
umount -l /run/old
rmdir /run/old
exec env -i container=unshare PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
	/lib/systemd/systemd --system --log-target=journal --show-status=0 --unit=multi-user.target </dev/null >/dev/null 2>&1
