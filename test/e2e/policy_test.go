package e2e

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// A policyCase is a case of testdata/policies.yaml: see there.
type policyCase struct {
	Name string
	policyStep
	Then []policyStep
}

// A policyStep is a change and the packets allowed and denied after it.
type policyStep struct {
	Drop        []string // namespaces to delete all policies of
	Policies    string
	Label       map[string]map[string]*string // by pod "x/a" or namespace "x"
	Allow, Deny []string
}

//go:embed testdata/policies.yaml
var policyCases []byte

// A yard is the set of pods for policy tests, described in testdata/policies.yaml,
// each with a Service of the same name.
type yard struct {
	pods     map[string]world.Endpoint
	services map[string]*corev1.Service
}

// places maps the pods of the yard to nodes.
var places = map[string]string{
	"x/a": "master", "x/b": "minion1", "x/c": "minion1", "w/a": "minion1", "w/b": "master", "w/c": "minion2", "z/a": "minion2", "z/h": "minion2",
}

// containers returns the containers of a pod of the yard.
func containers(pod string, template corev1.Container) []corev1.Container {
	tcp := func(name string, port int32) corev1.ContainerPort {
		return corev1.ContainerPort{Name: name, ContainerPort: port}
	}
	dns := corev1.ContainerPort{Name: "dns", ContainerPort: 80, Protocol: corev1.ProtocolUDP}
	template.Ports = []corev1.ContainerPort{tcp("http", 80), tcp("", 81), dns}
	switch {
	case pod == "x/c":
		template.Ports = []corev1.ContainerPort{tcp("http", 81), tcp("", 80), dns}
	case pod == "z/h":
		template.Ports = []corev1.ContainerPort{{ContainerPort: hostPort, HostPort: hostPort}}
	case pod == "z/a":
		template.Ports[1].Name = "web"
		side := template // port names are unique within a container
		side.Name = "side"
		side.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 80, Protocol: corev1.ProtocolUDP}}
		return []corev1.Container{template, side}
	case strings.HasPrefix(pod, "w/"):
		template.Ports = []corev1.ContainerPort{tcp("http", 8080), tcp("", 80), tcp("", 81)}
	}
	return []corev1.Container{template}
}

func newYard(t *testing.T) *yard {
	t.Helper()
	require.Nothing(t, require.Cluster, world.Missing())
	ctx := t.Context()
	y := &yard{map[string]world.Endpoint{}, map[string]*corev1.Service{}}
	api := cluster.Kube.Client().CoreV1()
	for _, ns := range []string{"w", "x", "z"} {
		if err := cluster.Kube.CreateNamespace(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		t.Cleanup(func() { clearNamespace(t, ns) })
	}
	for key, node := range places {
		ns, name, _ := strings.Cut(key, "/")
		if _, err := cluster.Kube.CreatePod(ctx, ns, name, node, func(p *corev1.Pod) {
			p.Labels = map[string]string{"pod": name}
			p.Spec.HostNetwork = name == "h"
			p.Spec.Containers = containers(key, p.Spec.Containers[0])
		}); err != nil {
			t.Fatal(err)
		}
		both := corev1.IPFamilyPolicyRequireDualStack
		s, err := api.Services(ns).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeNodePort, IPFamilyPolicy: &both, Selector: map[string]string{"pod": name},
				Ports: []corev1.ServicePort{{Name: "tcp", Port: 8000, TargetPort: intstr.FromInt32(80)}, {Name: "udp", Protocol: corev1.ProtocolUDP, Port: 8000, TargetPort: intstr.FromInt32(80)}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		y.services[key] = s
	}
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for key := range places {
		ns, name, _ := strings.Cut(key, "/")
		e, err := cluster.AwaitPod(wait, ns, name)
		if err != nil {
			t.Fatal(err)
		}
		y.pods[key] = e
	}
	return y
}

// clearNamespace deletes the yard's objects in a namespace, but not the namespace.
func clearNamespace(t *testing.T, ns string) {
	ctx := context.Background()
	client := cluster.Kube.Client()
	dropPolicies(t, ns)
	for key := range places {
		if space, name, _ := strings.Cut(key, "/"); space == ns {
			if err := client.CoreV1().Services(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
			if err := client.CoreV1().Pods(ns).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	eventually(t, "the pods of "+ns+" are gone", func() bool {
		list, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

func dropPolicies(t *testing.T, ns string) {
	t.Helper()
	if err := cluster.Kube.Client().NetworkingV1().NetworkPolicies(ns).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

// label changes labels of a pod "x/a" or a namespace "x"; null removes one.
func label(t *testing.T, who string, labels map[string]*string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		t.Fatal(err)
	}
	api, ctx := cluster.Kube.Client().CoreV1(), context.Background()
	if ns, name, isPod := strings.Cut(who, "/"); isPod {
		_, err = api.Pods(ns).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	} else {
		_, err = api.Namespaces().Patch(ctx, who, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A packet is one line of a case: FROM -> TO:PORT/NETWORK.
type packet struct {
	text  string
	probe probe.Probe
	query []string // for policy/check
}

var packetLine = regexp.MustCompile(`^(\S+) -> (\S+?)(?::([0-9]+))?/(tcp|udp|icmp)([46]?)$`)

// packets reads a line: one packet for each family.
func (y *yard) packets(t *testing.T, line string) (out []packet) {
	t.Helper()
	m := packetLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("%q is not like x/a -> w/b:80/tcp", line)
	}
	from, to := y.find(t, m[1]), y.find(t, m[2])
	port, _ := strconv.Atoi(m[3])
	for i, a := range to.addresses {
		if m[5] == "4" && !a.Is4() || m[5] == "6" && a.Is4() {
			continue
		}
		p := packet{text: line, probe: probe.Probe{Netns: from.netns, Network: m[4], Address: probe.Address(a, port)}}
		target := a.String()
		if port > 0 {
			target = p.probe.Address.String() + "/" + m[4]
		}
		p.query = []string{cmp.Or(from.pod, from.from[i].String()), target}
		out = append(out, p)
	}
	return out
}

// A party is one end of a line.
type party struct {
	netns     string
	addresses []netip.Addr // destinations, IPv4 and IPv6
	from      []netip.Addr // source addresses seen by the receiver
	pod       string       // its name, if it has a logical port
}

// find returns a party of a line: a pod, svc:x/a, node:NAME (its management port),
// or host:NAME (its own addresses).
func (y *yard) find(t *testing.T, who string) party {
	t.Helper()
	kind, name, other := strings.Cut(who, ":")
	if kind == "svc" {
		return party{addresses: addrs(y.services[name].Spec.ClusterIPs)}
	}
	if !other {
		e, ok := y.pods[who]
		if !ok {
			t.Fatalf("there is no pod %s", who)
		}
		if strings.HasSuffix(who, "/h") {
			return y.find(t, "host:"+places[who])
		}
		return party{netns: e.Netns, addresses: e.Addresses, from: e.Addresses, pod: who}
	}
	n := cluster.Node(name)
	if n == nil {
		t.Fatalf("there is no node %s", name)
	}
	p := party{netns: n.Netns(), addresses: n.Management, from: n.Management}
	if kind == "host" {
		p.addresses = nil
		for _, a := range n.Addresses {
			p.addresses = append(p.addresses, a.Addr())
		}
	}
	return p
}

// judge tries packets until those of deny are dropped (policies are in force then),
// and then until those of allow pass. policy/check must agree.
func (y *yard) judge(t *testing.T, s policyStep) {
	t.Helper()
	y.pass(t, s.Deny, false)
	y.pass(t, s.Allow, true)
}

// pass tries packets until all of them pass, or until none does.
func (y *yard) pass(t *testing.T, lines []string, want bool) {
	t.Helper()
	var wg sync.WaitGroup
	for _, line := range lines {
		for _, p := range y.packets(t, line) {
			wg.Go(func() {
				err := p.becomes(want)
				if err != nil && want {
					t.Logf("%s (%v): %v: trying again with an empty cache of flows", p.text, p.probe, err)
					err = errors.Join(cluster.ForgetFlows(t.Context()), p.becomes(want))
				}
				if err != nil {
					t.Errorf("%s (%v): %v", p.text, p.probe, err)
				}
				p.explained(t, want)
			})
		}
	}
	wg.Wait()
}

var (
	// effect bounds the time until a policy is in force.
	effect = limit.Of(10 * time.Second)
	// hush is the time without an answer that counts as dropped. Answers take a few
	// milliseconds.
	hush = limit.Of(300 * time.Millisecond)
)

func (p packet) becomes(want bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), effect)
	defer cancel()
	for {
		var err error
		if want {
			err = p.answered(ctx)
		} else {
			err = p.silence(ctx)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// answered sends one request, without retries.
func (p packet) answered(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hush)
	defer cancel()
	_, err := p.probe.Once(ctx)
	return err
}

// silence sends one request, and returns an error if there is an answer or a
// refusal: policies drop packets.
func (p packet) silence(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hush)
	defer cancel()
	answer, err := p.probe.Once(ctx)
	var late net.Error
	switch {
	case err == nil:
		return fmt.Errorf("answered %q", answer)
	case errors.As(err, &late) && late.Timeout():
		return nil
	}
	return err
}

// explained waits until policy/check agrees with the result: a packet may also be
// lost before the watcher knows the policy.
func (p packet) explained(t *testing.T, want bool) {
	var out string
	var err error
	agrees := func() bool {
		out, err = control("policy/check", p.query...)
		return err == nil && strings.HasPrefix(out, "allow") == want
	}
	for end := time.Now().Add(effect); !agrees(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Errorf("%s: passes is %t, but policy/check %v says %s (%v)", p.text, want, p.query, out, err)
			return
		}
	}
}

// appctl runs a control command of the watcher.
func appctl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, _, err := cluster.Master().Run(ctx, "ovs-appctl", append([]string{"-t", watcher()}, args...)...)
	return out, err
}

// control is like appctl, without starting a process.
func control(command string, args ...string) (string, error) {
	run := "/var/run/openvswitch/" + watcher() + "."
	pid, err := os.ReadFile(cluster.Master().Path(run + "pid"))
	if err != nil {
		return "", err
	}
	conn, err := net.DialTimeout("unix", cluster.Master().Path(run+strings.TrimSpace(string(pid))+".ctl"), patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if err := json.NewEncoder(conn).Encode(map[string]any{"id": 0, "method": command, "params": args}); err != nil {
		return "", err
	}
	var answer struct {
		Result string
		Error  any
	}
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return "", err
	}
	if answer.Error != nil {
		return "", fmt.Errorf("%s: %v", command, answer.Error)
	}
	return answer.Result, nil
}

// TestPolicies applies the policies of each case and sends its packets. Cases with the
// number of a check name it.
func TestPolicies(t *testing.T) {
	y := newYard(t)
	var cases []policyCase
	if err := yaml.UnmarshalStrict(policyCases, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Cleanup(func() {
				for _, ns := range []string{"w", "x", "z"} {
					dropPolicies(t, ns)
				}
			})
			for _, s := range append([]policyStep{c.policyStep}, c.Then...) {
				y.step(t, s)
			}
		})
	}
}

// step applies s until the end of the test and sends its packets.
func (y *yard) step(t *testing.T, s policyStep) {
	t.Helper()
	for _, ns := range s.Drop {
		dropPolicies(t, ns)
	}
	if err := cluster.Kube.Apply(t.Context(), []byte(y.expand(t, s.Policies))); err != nil {
		t.Fatal(err)
	}
	for who, labels := range s.Label {
		t.Cleanup(func() { label(t, who, undone(who, labels)) })
		label(t, who, labels)
	}
	y.judge(t, s)
	if t.Failed() {
		t.Logf("the watcher:\n%s", sh(t, cluster.Master(), "tail -n 40 "+logOf(watcher())))
		for key := range places {
			out, _ := appctl("policy/show", key)
			t.Logf("%s:\n%s", key, out)
		}
	}
}

// undone returns the former values of the labels changed by a case.
func undone(who string, labels map[string]*string) map[string]*string {
	out := map[string]*string{}
	for k := range labels {
		out[k] = nil
	}
	if _, name, isPod := strings.Cut(who, "/"); isPod {
		out["pod"] = &name
	}
	return out
}

// expand fills in addresses of parties: {{ip4 "x/a"}} and {{ip6 "node:master"}}.
func (y *yard) expand(t *testing.T, text string) string {
	t.Helper()
	tmpl, err := template.New("").Funcs(template.FuncMap{
		"ip4": func(who string) string { return y.find(t, who).addresses[0].String() },
		"ip6": func(who string) string { return y.find(t, who).addresses[1].String() },
		// host bits must be 0 since Kubernetes 1.36
		"net4": func(who string, bits int) netip.Prefix {
			return netip.PrefixFrom(y.find(t, who).addresses[0], bits).Masked()
		},
		"net6": func(who string, bits int) netip.Prefix {
			return netip.PrefixFrom(y.find(t, who).addresses[1], bits).Masked()
		},
	}).Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tmpl.Execute(&b, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
