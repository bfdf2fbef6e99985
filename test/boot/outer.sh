# Enters the machine's cgroup $1 and sees it as the root of all from then on. The
# other arguments are the program to go on with.
set -e
echo 0 >"/run/cgroup/$1/cgroup.procs"
shift
exec unshare --cgroup "$@"
