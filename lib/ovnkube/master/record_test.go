package master_test

import (
	"fmt"
	"testing"

	"ovn-k8s/lib/names"
)

// A record damaged by hand while a master runs is made right again, and no node gets other subnets meanwhile.
func TestADamagedRecord(t *testing.T) {
	n := newNetwork(t)
	n.start("10.0.0.0/16/24", false)
	n.node("a", nil)
	n.node("b", nil)
	subnets := map[string]string{"a": n.awaitSubnet("a", ""), "b": n.awaitSubnet("b", "")}
	for i, key := range []string{names.ClusterSubnets, names.NodePrefix + "a"} {
		get := []string{"get", "Logical_Router", names.ClusterRouter, "external_ids:" + key}
		right := n.nbctl(get...)
		n.nbctl("set", "Logical_Router", names.ClusterRouter, "external_ids:"+key+"=garbage")
		late := fmt.Sprint("late", i)
		n.node(late, nil)
		subnets[late] = n.awaitSubnet(late, "")
		eventually(t, key+" is right again", func() bool { return n.nbctl(get...) == right })
		given := map[string]string{}
		for name, subnet := range subnets {
			if now := n.subnet(name); now != subnet || given[now] != "" {
				t.Errorf("%s is damaged: %s had %s, and has %s like %q", key, name, subnet, now, given[now])
			}
			given[subnet] = name
			eventually(t, key+" was damaged: the switch of "+name+" has "+subnet, func() bool {
				return n.find("Logical_Switch", "other_config", "name="+name) == "subnet="+subnet
			})
		}
	}
}
