# Prints an archive of what the Debian package $1 adds to this machine's root file
# system, with what it depends on. This machine is left as it is.
set -e
exec 3>&1 >&2
mount --make-rprivate /
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
for f in resolv.conf hosts; do # which containers mount over
	rm -f "/mnt/root/etc/$f"
	cat "/etc/$f" >"/mnt/root/etc/$f"
done
mount -t proc proc /mnt/root/proc
mount --rbind /dev /mnt/root/dev
mount -t tmpfs tmpfs /mnt/root/run
mount -t tmpfs tmpfs /mnt/root/tmp
printf '#!/bin/sh\nexit 101\n' >/mnt/root/usr/sbin/policy-rc.d # nothing is started
chmod 755 /mnt/root/usr/sbin/policy-rc.d
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
chroot /mnt/root apt-get -q update
chroot /mnt/root apt-get -q install -y --no-install-recommends "$1"
cd /mnt/upper
rm -rf usr/sbin/policy-rc.d etc/resolv.conf etc/hosts var/cache/apt var/lib/apt var/log run tmp proc dev usr/share/doc usr/share/man usr/share/locale mnt
tar -cf - . >&3
