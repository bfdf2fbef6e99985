package ovnkube

import (
	_ "embed"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
)

//go:embed testdata/era-rows.sh
var eraRows string

//go:embed testdata/era-host.sh
var eraHost string

//go:embed testdata/era-plugin.sh
var eraPlugin string

// An era is a cluster as ovnkube made it in July 2019, with a gateway on minion1.
type era struct{ takeover }

// ovnkube takes over a cluster of the early Go era: pods keep their addresses and sessions, and lose no packet.
func TestTakeOverOfTheEarlyGoEra(t *testing.T) {
	c := newHosts(t, world.Options{Minions: 1})
	e := era{takeover{c}}
	e.build()
	c.must(c.StartKubelets(c.ctx))
	e.annotate()
	nodes := map[string]string{"a": "master", "a2": "master", "b": "minion1", "b2": "minion1"}
	for name, node := range nodes {
		e.pod(name, node)
	}
	s := c.gather(nodes)
	pods := []string{"a", "a2", "b", "b2"}
	s.ring(pods...)
	s.countPackets(pods...)
	vip := e.service("b", s.pods["b"])
	for name, pod := range s.pods {
		s.open(pod, name+" to the Service", vip)
	}
	s.goOn("the start")
	before := e.addresses(nodes)

	bin, err := programs()
	c.must(err)
	c.must(c.PrepareOVNKube(c.ctx, bin))
	for _, n := range c.Nodes {
		args := []string{"-cluster-subnets=10.128.0.0/14/24", "-k8s-service-cidr=172.30.0.0/16"}
		if n == c.Master() {
			e.refuses(n, args)
			args = append(args, "-adopt")
		} else {
			args = append(args, world.GatewayOptions(n, world.Shared)...)
		}
		c.must(os.Remove(n.Path("/opt/cni/bin/ovn-k8s-cni-overlay")))
		c.must(c.TakeOver(c.ctx, n, args...))
		s.goOn("the start of ovnkube on " + n.Name)
	}
	e.removeBalancers()
	for _, n := range c.Nodes {
		c.eventually("a complete "+n.Name, func() error { return c.CheckOVNKube(c.ctx, n) })
	}
	s.goOn("the end")
	if diff := cmp.Diff(before, e.addresses(nodes)); diff != "" {
		t.Errorf("addresses of pods (-before +after)\n%s", diff)
	}
	e.sameSubnets()
	e.changes(s)
}

// build makes the rows and the hosts.
func (e era) build() {
	e.Helper()
	e.write("cluster")
	for i, n := range e.Nodes {
		prefix, mac, gateway := fmt.Sprintf("10.128.%d", i), fmt.Sprintf("00:00:00:aa:bb:%02x", i), ""
		n.Subnets = prefix + ".0/24"
		if n != e.Master() {
			gateway = "yes"
			bridge, err := n.Script(e.ctx, "cat /sys/class/net/breth0/address")
			e.must(err)
			e.write("gateway", n.Name, prefix, strings.TrimSpace(bridge), n.Addresses[0].String(), n.Gateways()[0].String())
		}
		port, err := n.Script(e.ctx, eraHost, n.Name, prefix, mac, gateway)
		e.must(err)
		e.write("node", n.Name, prefix, mac, strings.TrimSpace(port))
		e.must(os.WriteFile(n.Path("/opt/cni/bin/ovn-k8s-cni-overlay"), []byte(eraPlugin), 0o755))
		e.must(os.WriteFile(n.Path("/etc/cni/net.d/10-ovn-kubernetes.conf"), []byte(`{"cniVersion":"0.3.1","name":"ovn-kubernetes","type":"ovn-k8s-cni-overlay","ipam":{},"dns":{}}`), 0o644))
		e.must(os.Mkdir(n.Path("/run/pods"), 0o755))
	}
}

// write runs a command of eraRows.
func (e era) write(command ...string) string {
	e.Helper()
	out, err := e.Master().Script(e.ctx, eraRows, append([]string{e.Central.NB}, command...)...)
	e.must(err)
	return strings.TrimSpace(out)
}

// annotate writes the subnets of Nodes.
func (e era) annotate() {
	e.Helper()
	for _, n := range e.Nodes {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, names.HostSubnetAnnotation, n.Subnets)
		_, err := e.Kube.Client().CoreV1().Nodes().Patch(e.ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		e.must(err)
	}
}

// pod creates a pod, its logical port and its annotation.
func (e era) pod(name, node string) {
	e.Helper()
	_, err := e.Kube.CreatePod(e.ctx, "default", name, node, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: name} })
	e.must(err)
	mac, ip, _ := strings.Cut(e.write("pod", name, node), " ")
	gateway := ip[:strings.LastIndex(ip, ".")] + ".1"
	value := fmt.Sprintf(`{"ip_address":%q,"mac_address":%q,"gateway_ip":%q}`, ip+"/24", mac, gateway)
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, names.Annotation, value)
	_, err = e.Kube.Client().CoreV1().Pods("default").Patch(e.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	e.must(err)
	e.must(os.WriteFile(e.Node(node).Path("/run/pods/"+name), []byte(strings.Join([]string{mac, ip + "/24", gateway}, " ")+"\n"), 0o644))
}

// service makes a Service of a pod, and its frontend in the load balancer.
func (e era) service(name string, backend world.Endpoint) netip.AddrPort {
	e.Helper()
	made, err := e.Kube.Client().CoreV1().Services("default").Create(e.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{world.AppLabel: name},
			Ports:    []corev1.ServicePort{{Port: world.ServicePort, TargetPort: intstr.FromInt32(kubelet.DefaultPort)}},
		},
	}, metav1.CreateOptions{})
	e.must(err)
	vip := probe.Address(netip.MustParseAddr(made.Spec.ClusterIP), world.ServicePort)
	e.write("service", vip.String(), probe.Address(backend.Addresses[0], kubelet.DefaultPort).String())
	return vip
}

// refuses starts ovnkube without --adopt in vain.
func (e era) refuses(n *world.Node, args []string) {
	e.Helper()
	const want = "ovnkube: the nodes of this cluster were made by an older release: master, minion1: give --adopt to take them over, with their subnets; those that Kubernetes does not have are removed"
	err := e.RestartOVNKube(e.ctx, n, args...)
	if err == nil || !strings.HasSuffix(err.Error(), "exit status 1: "+want) {
		e.Errorf("without --adopt: %v", err)
	}
}

// removeBalancers runs the commands of ovnkube check to remove the load balancers of the era.
func (e era) removeBalancers() {
	e.Helper()
	remedy := regexp.MustCompile(`remove it with "(ovn-nbctl) (lb-del) (\S+)"`)
	removed := false
	e.eventually("the load balancers of the era are gone", func() error {
		err := e.CheckOVNKube(e.ctx, e.Master())
		if err == nil && !removed {
			return errors.New("no load balancer was found")
		}
		for _, words := range remedy.FindAllStringSubmatch(fmt.Sprint(err), -1) {
			removed = true
			if _, err := e.Central.NBCtl(words[2:]...); err != nil {
				return err
			}
		}
		return err
	})
}

// addresses are those of pods, with MACs, in the API and on their ports.
func (e era) addresses(nodes map[string]string) map[string]string {
	e.Helper()
	all := map[string]string{}
	for name := range nodes {
		p, err := e.Kube.Client().CoreV1().Pods("default").Get(e.ctx, name, metav1.GetOptions{})
		e.must(err)
		port, err := e.Central.NBCtl("--bare", "--columns=addresses,dynamic_addresses", "find", "Logical_Switch_Port", "name=default_"+name)
		e.must(err)
		all[name] = fmt.Sprint(p.Status.PodIPs, p.Annotations[names.Annotation], strings.TrimSpace(strings.TrimPrefix(port, "dynamic")))
	}
	return all
}
