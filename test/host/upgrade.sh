# Replaces the programs of a host by those of the root file system $1, as a package
# manager does: running daemons stay until they start again. /usr/local stays.
set -e
mkdir /run/local
mount --bind /usr/local /run/local
mount --bind "$1/usr" /usr
mount --bind /run/local /usr/local
umount /run/local
rmdir /run/local
