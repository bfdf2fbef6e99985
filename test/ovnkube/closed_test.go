package ovnkube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/world"
)

// AC-75: without -nodeport, a gateway with a NIC of its own takes no connections to NodePorts and external IPs, and pods still leave
// by it. A warning says so once there is a Service that wants them.
func TestAGatewayWithoutNodePorts(t *testing.T) {
	c := newCluster(t, world.Options{Minions: 1})
	c.run()
	node := c.Node("minion1")
	gateway, err := c.AddGateway(c.ctx, node, world.Dedicated)
	c.must(err)
	servers, err := c.ServeHosts()
	c.must(err)
	t.Cleanup(servers.Close)
	_, err = c.Kube.CreatePod(c.ctx, "default", "web", node.Name, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: "web"} })
	c.must(err)
	service, err := c.CreateService(c.ctx, "web", kubelet.DefaultPort, 1, nil)
	c.must(err)
	service.Backends = []world.Endpoint{c.await("web")}
	c.must(c.AwaitServices(c.ctx, []world.Service{service}))
	withdraw, err := c.RouteServices([]world.Service{service}, gateway)
	c.must(err)
	t.Cleanup(withdraw)
	var in []world.Frontend
	for _, f := range c.Frontends(service, gateway) {
		if f.Outside || f.Name == "externalIP" {
			in = append(in, f)
		}
	}
	attempts := func() []world.Attempt {
		return c.ServiceAttempts(service, in, []world.Client{c.OutsideClient()})
	}
	for _, a := range world.Try(c.ctx, attempts()) {
		t.Errorf("open: %v: %v", a, a.Err)
	}
	_, hops := node.Second()
	c.must(c.RestartOVNKube(c.ctx, node, "-gateway-mode=spare", "-gateway-interface=eth1", "-gateway-nexthop="+fmt.Sprintf("%v,%v", hops[0], hops[1]), "-nodeport=false"))
	c.eventually("the gateway router without load balancers", func() error {
		got, err := c.Central.NBCtl("--bare", "--columns=load_balancer_group", "find", "Logical_Router", "name=GR_"+node.Name)
		if err == nil && strings.TrimSpace(got) != "" {
			err = errors.New(got)
		}
		return err
	})
	c.saysLine(node, "service default/web", "closed on this host")
	_, err = c.Central.NBCtl("--wait=hv", "sync")
	c.must(err)
	all := attempts()
	if failed := world.Try(c.ctx, all); len(failed) != len(all) {
		t.Errorf("closed: only %d of %d connections failed", len(failed), len(all))
	}
	for _, a := range world.Try(c.ctx, world.Attempts(service.Backends[0], servers.Outside, gateway)) {
		t.Errorf("to the outside: %v: %v", a, a.Err)
	}
}
