package ovnkube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

// pod creates a pod of an application, and waits until it runs.
func (g *gateways) pod(name, app string, n *world.Node, ports ...corev1.ContainerPort) world.Endpoint {
	g.Helper()
	_, err := g.Kube.CreatePod(g.ctx, "default", name, n.Name, func(p *corev1.Pod) {
		p.Labels = map[string]string{world.AppLabel: app}
		p.Spec.Containers[0].Ports = ports
	})
	g.must(err)
	return g.await(name)
}

// balancers are the frontends and backends of a Service in the database.
func (g *gateways) balancers(service string) string {
	g.Helper()
	vips, err := g.Central.NBCtl("--bare", "--columns=vips", "find", "Load_Balancer", "external_ids:ovn-k8s-owner=service/default/"+service)
	g.must(err)
	return vips
}

// namedPorts makes a Service with a named port, another number in each of its pods.
func (g *gateways) namedPorts() {
	s, err := g.CreateService(g.ctx, "named", kubelet.DefaultPort, 4, func(s *corev1.Service) {
		s.Spec.Ports = s.Spec.Ports[:1]
		s.Spec.Ports[0].TargetPort = intstr.FromString("http")
	})
	g.must(err)
	want := map[string]bool{}
	for i, n := range []*world.Node{g.shared, g.local} {
		port := int32(8081 + i)
		p := g.pod(fmt.Sprint("named-", i), "named", n, corev1.ContainerPort{Name: "http", ContainerPort: port})
		s.Backends = append(s.Backends, p)
		want[p.Name] = true
		for _, a := range p.Addresses {
			backend := probe.Address(a, int(port)).String()
			g.eventually("the backend "+backend, func() error {
				if vips := g.balancers("named"); !strings.Contains(vips, backend) {
					return errors.New(vips)
				}
				return nil
			})
		}
	}
	g.must(g.AwaitServices(g.ctx, []world.Service{s}))
	p := probe.Probe{Netns: g.pods[0].Netns, Network: "tcp", Address: probe.Address(s.ClusterIPs[0], world.ServicePort)}
	g.eventually("both pods answer", func() error {
		answer, err := p.Until(g.ctx)
		g.must(err)
		name, _, err := probe.Answer(answer)
		g.must(err)
		if delete(want, name); len(want) > 0 {
			return fmt.Errorf("no answer of %v", want)
		}
		return nil
	})
}

// headless makes a Service without address: it has no rows.
func (g *gateways) headless() {
	_, err := g.Kube.Client().CoreV1().Services("default").Create(g.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "headless"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{world.AppLabel: "web"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	g.must(err)
	g.serve("later", 5)
	if vips := g.balancers("headless"); vips != "" {
		g.Errorf("it has %s", vips)
	}
	if vips := g.balancers("later"); vips == "" {
		g.Error("a later Service has no rows")
	}
}

// lastEndpoint deletes the only pod of a Service: connections are refused from then on, inside and outside.
func (g *gateways) lastEndpoint() {
	s, err := g.CreateService(g.ctx, "last", kubelet.DefaultPort, 6, nil)
	g.must(err)
	s.Backends = []world.Endpoint{g.pod("last", "last", g.local)}
	g.must(g.AwaitServices(g.ctx, []world.Service{s}))
	g.reach(s)
	g.must(g.Kube.DeletePod(g.ctx, "default", "last"))
	for _, a := range s.ClusterIPs {
		g.refused(g.pods[0].Netns, probe.Address(a, world.ServicePort))
		g.refused(g.shared.Netns(), probe.Address(a, world.ServicePort))
	}
	for _, a := range g.addresses {
		g.refused(g.hosts.Outside.Netns, probe.Address(a, s.NodePorts["tcp"]))
	}
}

// refused waits until TCP connections to an address are refused.
func (g *gateways) refused(netns string, to netip.AddrPort) {
	g.Helper()
	p := probe.Probe{Netns: netns, Network: "tcp", Address: to}
	g.eventually(fmt.Sprintf("%v is refused", p), func() error {
		ctx, cancel := context.WithTimeout(g.ctx, limit.Of(5*time.Second))
		defer cancel()
		answer, err := p.Once(ctx)
		if err == nil || !strings.Contains(err.Error(), "refused") {
			return fmt.Errorf("answer %q, %w", answer, err)
		}
		return nil
	})
}

// healthChecks asks both nodes for the endpoints of a Service with one pod.
func (g *gateways) healthChecks() {
	one := corev1.IPFamilyPolicySingleStack // the number is that of addresses
	_, err := g.CreateService(g.ctx, "health", kubelet.DefaultPort, 7, func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy, s.Spec.IPFamilyPolicy, s.Spec.ExternalIPs = corev1.ServiceExternalTrafficPolicyLocal, &one, nil
	})
	g.must(err)
	g.pod("health", "health", g.local)
	s, err := g.Kube.Client().CoreV1().Services("default").Get(g.ctx, "health", metav1.GetOptions{})
	g.must(err)
	const answer = `%d {"service":{"namespace":"default","name":"health"},"localEndpoints":%d,"serviceProxyHealthy":true}`
	for n, want := range map[*world.Node]string{g.shared: fmt.Sprintf(answer, 503, 0), g.local: fmt.Sprintf(answer, 200, 1)} {
		at := netip.AddrPortFrom(n.IPv4(), uint16(s.Spec.HealthCheckNodePort))
		g.eventually("the health check of "+n.Name, func() error {
			got, err := get(g.hosts.Outside.Netns, at)
			if err == nil && got != want {
				err = errors.New(got)
			}
			return err
		})
	}
}

// get returns the status and the body of an HTTP server's answer.
func get(netns string, server netip.AddrPort) (string, error) {
	dial := func(ctx context.Context, network, address string) (c net.Conn, err error) {
		failed := probe.In(netns, func() error {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, failed
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}, Timeout: limit.Of(5 * time.Second)}
	answer, err := client.Get("http://" + server.String() + "/healthz")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body))), err
}

// anotherNode adds a node with a gateway: it has the NodePorts of Services that were there before.
func (g *gateways) anotherNode() {
	n := g.Node("minion3")
	seen, err := g.AddGateway(g.ctx, n, world.Shared)
	g.must(err)
	g.must(world.Rejoin(g.ctx, g.World, n))
	g.must(g.AwaitServices(g.ctx, []world.Service{g.service}))
	g.succeed(g.fromOutside(g.service, seen))
}
