package ovnkube

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/lib/config"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/world"
)

// repairWithin bounds the time in which running processes repair a damage.
const repairWithin = 30 * time.Second

// everyDamage is a variable: if it is set, TestCheckNamesDamage tries all damages, for minutes, and not one of some.
const (
	everyDamage = "OVNK8S_TEST_EVERY_DAMAGE"
	some        = 5
)

// A checker damages a cluster with a gateway on each host, a pod and a Service.
type checker struct {
	*cluster
	node    *world.Node // with the pod
	standby bool        // node is a master, too
	service world.Service
}

// A setup is a cluster to check.
type setup struct {
	firewall     string            // the setting of all hosts
	modes        map[string]string // of gateways, by node
	apart        bool              // the master's roles are two processes
	standby      bool              // minion1 is a master, too
	kindsOfHosts map[string]kind   // damages of hosts, by node
}

// ovnkube check finds nothing in a complete cluster, and names each damage, whoever did it. It changes nothing. Running
// processes repair the damage within 30 s.
func TestCheckNamesDamage(t *testing.T) {
	for name, s := range map[string]setup{
		"nftables": {
			firewall: config.NFTables, modes: map[string]string{"master": world.Local, "minion1": world.Shared},
			kindsOfHosts: map[string]kind{"master": localGateway, "minion1": sharedGateway},
		},
		"iptables, roles apart": {
			firewall: config.IPTables, modes: map[string]string{"master": world.Local, "minion1": world.Shared}, apart: true,
			kindsOfHosts: map[string]kind{"master": localGateway, "minion1": rules},
		},
		"two masters, spare gateways": {
			firewall: config.AnyFirewall, modes: map[string]string{"master": world.Dedicated, "minion1": world.Dedicated}, standby: true,
			kindsOfHosts: map[string]kind{"master": database, "minion1": spareGateway},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if s.firewall == config.IPTables {
				host.NeedIPTables(t)
			}
			t.Setenv("OVNK8S_FIREWALL", s.firewall)
			c := newChecker(t, s)
			for node, kindOf := range s.kindsOfHosts {
				for i, d := range kindOf(c, c.Node(node)) {
					if i%some == 0 || os.Getenv(everyDamage) != "" {
						c.try(d)
					}
				}
			}
		})
	}
}

// newChecker makes the cluster of a setup.
func newChecker(t *testing.T, s setup) *checker {
	t.Helper()
	c := &checker{cluster: newCluster(t, world.Options{Minions: 1}), standby: s.standby}
	c.run()
	c.node = c.Node("minion1")
	_, err := c.Kube.CreatePod(c.ctx, "default", "web", c.node.Name, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: "web"} })
	c.must(err)
	backend := c.await("web")
	for name, mode := range s.modes {
		_, err := c.AddGateway(c.ctx, c.Node(name), mode)
		c.must(err)
	}
	if s.standby {
		c.joinMasters(c.node)
	}
	if s.apart {
		c.must(world.RestartApart(c.ctx, c.World, c.Master()))
	}
	c.service, err = c.CreateService(c.ctx, "web", kubelet.DefaultPort, 1, nil)
	c.must(err)
	c.service.Backends = []world.Endpoint{backend}
	c.must(c.AwaitServices(c.ctx, []world.Service{c.service}))
	c.must(c.Kube.Apply(c.ctx, []byte(ingressOfWeb)))
	c.repaired("at first")
	return c
}

const ingressOfWeb = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: default}
spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: 8080}]}]}
`

// joinMasters makes a node a second master, with the account of the first one.
func (c *checker) joinMasters(n *world.Node) {
	c.Helper()
	token, err := c.Master().Script(c.ctx, "cat /etc/openvswitch/ovnkube.token")
	c.must(err)
	_, err = n.Script(c.ctx, `printf %s "$1" > /etc/openvswitch/ovnkube.token`, token)
	c.must(err)
	c.must(c.RestartOVNKube(c.ctx, n, append(n.Arguments(), "-init-master="+n.Name)...))
}

// Without ovnkube on its host, check names that, and all damages at once. A start repairs them.
func TestCheckWithoutOVNKube(t *testing.T) {
	c := newChecker(t, setup{modes: map[string]string{"master": world.Local, "minion1": world.Shared}})
	for _, n := range c.Nodes {
		c.must(n.Kill(c.ctx, world.OVNKubePidfile))
		if lines := c.found(n); len(lines) != 1 || lines[0] != "! nothing serves CNI requests of this host: start ovnkube" {
			t.Errorf("%s without ovnkube: %q", n.Name, lines)
		}
	}
	all := together(c)
	for _, d := range all {
		d.do(c)
	}
	for _, n := range c.Nodes {
		lines := strings.Join(c.found(n), "\n")
		for _, d := range all {
			if d.host == n.Name && !strings.Contains(lines, d.says) {
				t.Errorf("%s on %s: no %q in\n%s", d.what, n.Name, d.says, lines)
			}
		}
	}
	for _, n := range c.Nodes {
		c.must(c.RestartOVNKube(c.ctx, n, n.Arguments()...))
	}
	for _, n := range c.Nodes {
		c.eventually("repaired", func() error { return c.CheckOVNKube(c.ctx, n) })
	}
}

// try does a damage while the processes are frozen: they would repair it at once. Then it lets them repair it.
func (c *checker) try(d damage) {
	c.Helper()
	c.freeze()
	d.do(c)
	before := c.state(d.host)
	lines := c.found(c.Node(d.host))
	if d.host == c.Master().Name && c.standby {
		if other := c.found(c.node); !slices.Equal(other, lines) {
			c.Errorf("%s: the master finds %q, the one that stands by %q", d.what, lines, other)
		}
	}
	if diff := difference(before, c.state(d.host)); diff != "" {
		c.Errorf("%s: the check changed (-before +after)\n%s", d.what, diff)
	}
	c.thaw()
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, d.says) }) {
		c.Errorf("%s on %s: no %q in\n%s", d.what, d.host, d.says, strings.Join(lines, "\n"))
	}
	c.repaired(d.what)
}

// repaired waits until no host has a difference.
func (c *checker) repaired(what string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.ctx, limit.Of(repairWithin))
	defer cancel()
	for _, n := range c.Nodes {
		if err := poll.Until(ctx, func() error { return c.CheckOVNKube(c.ctx, n) }); err != nil {
			c.Fatalf("%s is not repaired within %v: %v", what, repairWithin, err)
		}
	}
}

// pidfiles are those of the processes of ovnkube on a host.
const pidfiles = "/var/run/openvswitch/ovnkube*.pid"

// freeze stops all processes of ovnkube.
func (c *checker) freeze() {
	c.Helper()
	for _, n := range c.Nodes {
		c.must(n.Freeze(c.ctx, pidfiles))
	}
}

// thaw continues them.
func (c *checker) thaw() {
	c.Helper()
	for _, n := range c.Nodes {
		c.must(n.Thaw(c.ctx, pidfiles))
	}
}

// state is what a check on a host could change: the database, the host, and annotations.
func (c *checker) state(host string) (lines []string) {
	c.Helper()
	for _, row := range c.rows() {
		lines = append(lines, upColumn.ReplaceAllString(row, ""))
	}
	lines = append(lines, c.snapshot(c.Node(host))...)
	api := c.Kube.Client().CoreV1()
	node, err := api.Nodes().Get(c.ctx, host, metav1.GetOptions{})
	c.must(err)
	pod, err := api.Pods("default").Get(c.ctx, "web", metav1.GetOptions{})
	c.must(err)
	return append(lines, fmt.Sprint(node.Annotations), fmt.Sprint(pod.Annotations))
}

// upColumn is that of logical ports: ovn-northd writes it after a damage.
var upColumn = regexp.MustCompile(`,(true|false)$`)

// found are the lines of ovnkube check on a node.
func (c *checker) found(n *world.Node) []string {
	c.Helper()
	err := c.CheckOVNKube(c.ctx, n)
	if err == nil {
		c.Errorf("%s: nothing differs", n.Name)
		return nil
	}
	_, text, _ := strings.Cut(err.Error(), ": exit status 1: ")
	lines := strings.Split(strings.TrimPrefix(text, ": "), "\n")
	if !slices.ContainsFunc([]string{"+", "-", "~", "!"}, func(mark string) bool { return strings.HasPrefix(lines[0], mark) }) {
		c.Fatal(err)
	}
	return lines
}

// removeAnnotation removes an annotation of a Node, or of a pod.
func (c *checker) removeAnnotation(kind, name, annotation string) {
	c.Helper()
	patch, api := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, annotation), c.Kube.Client().CoreV1()
	var err error
	if kind == "Node" {
		_, err = api.Nodes().Patch(c.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = api.Pods("default").Patch(c.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	c.must(err)
}
