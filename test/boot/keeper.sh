# The process that a machine's disk and cgroup hang on, in a fresh mount namespace:
# $1 is the cgroup's name, the others are archives that the disk has on top of this
# machine's root file system. It prints its process ID when the disk is there. When
# its standard input ends, it ends all that runs on the machine, and itself.
set -e
read -r pid rest </proc/self/stat
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/cgroup /run/upper /run/work /run/root
mount -t cgroup2 cgroup2 /run/cgroup
cgroup=/run/cgroup/$1
shift
for archive; do tar -C /run/upper -xpf "$archive"; done
mount -t overlay overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work /run/root
mkdir "$cgroup"
echo "$pid"
cat >/dev/null
echo 1 >"$cgroup/cgroup.kill"
until find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || [ ! -e "$cgroup" ]; do sleep 0.1; done
