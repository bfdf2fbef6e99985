#!/bin/sh
# A CNI plugin: every ADD gets the next addresses. It fails as often as /run/fail
# says.
config=$(cat)
valid=$(echo "$config" | tr -d '"\n ' | sed -n 's/.*attachments:\[\(.*\)\].*/\1/p' | sed 's/containerID://g')
case $CNI_COMMAND in
GC) echo "GC [$(echo "$valid" | tr -d '{}')]" ;;
*) echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_ARGS" ;;
esac >>/run/plugin.log
case $CNI_COMMAND in
ADD)
	fail=$(cat /run/fail 2>/dev/null || echo 0)
	if [ "$fail" -gt 0 ]; then
		echo $((fail - 1)) >/run/fail
		echo '{"cniVersion": "1.1.0", "code": 11, "msg": "out of luck", "details": "as planned"}'
		exit 1
	fi
	n=$(grep -c ADD /run/plugin.log)
	netns=$(basename "$CNI_NETNS")
	ip -n "$netns" addr add "127.1.0.$n/8" dev lo
	ip -n "$netns" addr add "fd00::$n/64" dev lo nodad
	echo '{"cniVersion": "1.1.0", "ips": [{"address": "127.1.0.'$n'/8"}, {"address": "fd00::'$n'/64"}]}'
	;;
VERSION) echo '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}' ;;
esac
