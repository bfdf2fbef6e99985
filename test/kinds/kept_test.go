package kinds

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ovn-k8s/lib/desired"
	"ovn-k8s/lib/desired/bridgeflows"
	"ovn-k8s/lib/desired/hostport"
	"ovn-k8s/lib/desired/nodeport"
	"ovn-k8s/lib/desired/nodes"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/desired/pod"
	"ovn-k8s/lib/desired/service"
	"ovn-k8s/lib/desired/servicecidr"
	"ovn-k8s/lib/desired/topology"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/names"
)

// worldsTried is the number of random worlds, of four objects of each kind.
const worldsTried = 150

// A state is all objects of a random world, by kind.
type state map[string][]runtime.Object

func randomState(seed uint64) state {
	g := generator{rand.New(rand.NewPCG(seed, 1))}
	s := state{}
	for _, k := range kube.Kinds() {
		s[k.Name] = g.objects(k)
	}
	return s
}

// with returns a copy with the objects of one kind changed by edit, or of all kinds if kind is "".
func (s state) with(kind string, edit func(kube.Kind, runtime.Object)) state {
	out := state{}
	for _, k := range kube.Kinds() {
		for _, o := range s[k.Name] {
			o = o.DeepCopyObject()
			if kind == "" || kind == k.Name {
				edit(k, o)
			}
			out[k.Name] = append(out[k.Name], o)
		}
	}
	return out
}

func trim(k kube.Kind, o runtime.Object) {
	if err := k.Trim(o); err != nil {
		panic(err)
	}
}

// Fields read by features are kept: full and trimmed objects make the same rows, problems, Events, flows and rules.
func TestFieldsThatAreReadAreKept(t *testing.T) {
	for seed := range uint64(worldsTried) {
		full := randomState(seed)
		trimmed := full.with("", trim)
		if diff := cmp.Diff(output(full), output(trimmed)); diff != "" {
			t.Fatalf("seed %d: a feature reads a field that the table of kinds does not keep (-full +trimmed)\n%s", seed, diff)
		}
	}
}

// readElsewhere are the kept fields without effect on rows, and their readers.
var readElsewhere = map[string]string{
	"ObjectMeta.ResourceVersion":   "the annotator compares versions of pods; informers need it",
	"ObjectMeta.UID":               "Events name it",
	"ObjectMeta.CreationTimestamp": "common to all kinds",

	"Spec.Containers.RestartPolicy": "it is read of init containers",
	"Spec.PublishNotReadyAddresses": "service.Service has it",
}

// Kept fields are read: without one of them the output of some world differs. So the worlds of
// TestFieldsThatAreReadAreKept notice each field.
func TestFieldsThatAreKeptAreRead(t *testing.T) {
	var worlds []state
	var outputs []map[string]string
	for seed := range uint64(worldsTried) {
		s := randomState(seed).with("", trim)
		worlds, outputs = append(worlds, s), append(outputs, output(s))
	}
	for _, k := range kube.Kinds() {
		fields := map[string]bool{}
		for _, s := range worlds {
			for _, o := range s[k.Name] {
				setFields(reflect.ValueOf(o).Elem(), "", fields)
			}
		}
		for _, f := range slices.Sorted(maps.Keys(fields)) {
			if readElsewhere[f] != "" {
				continue
			}
			noticed := slices.ContainsFunc(slices.Collect(seq(len(worlds))), func(i int) bool {
				without := worlds[i].with(k.Name, func(_ kube.Kind, o runtime.Object) { clearField(reflect.ValueOf(o).Elem(), strings.Split(f, ".")) })
				return !maps.Equal(output(without), outputs[i])
			})
			if !noticed {
				t.Errorf("%s: no output depends on the field %s, which is kept", k.Name, f)
			}
		}
	}
}

func seq(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// setFields adds the paths of fields with a value. Fields of the elements of slices have one path.
func setFields(v reflect.Value, path string, out map[string]bool) {
	switch {
	case v.IsZero():
	case v.Kind() == reflect.Pointer:
		setFields(v.Elem(), path, out)
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[metav1.Time]() && v.Type() != reflect.TypeFor[intstr.IntOrString]():
		for i := range v.NumField() {
			setFields(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), out)
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct:
		for i := range v.Len() {
			setFields(v.Index(i), path, out)
		}
	default:
		out[path] = true
	}
}

// clearField empties a field, in all elements of slices.
func clearField(v reflect.Value, path []string) {
	switch {
	case v.Kind() == reflect.Pointer:
		if !v.IsNil() {
			clearField(v.Elem(), path)
		}
	case v.Kind() == reflect.Slice && len(path) > 0:
		for i := range v.Len() {
			clearField(v.Index(i), path)
		}
	case len(path) == 0:
		v.SetZero()
	case len(path) == 1 && v.FieldByName(path[0]).Kind() != reflect.Slice:
		v.FieldByName(path[0]).SetZero()
	default:
		clearField(v.FieldByName(path[0]), path[1:])
	}
}

// output is the results of all features for a world: rows and problems by unit, flows, rules and health checks.
func output(s state) map[string]string {
	out := map[string]string{}
	w := desired.NewWorld()
	w.Put(randomTopology())
	for _, k := range kube.Kinds() {
		for _, o := range s[k.Name] {
			w.Put(o)
		}
	}
	w.Allocate()
	var services []*service.Resolved
	for _, u := range slices.Sorted(slices.Values(w.Units())) {
		rows, err := w.Rows(u)
		text := fmt.Sprint(err)
		for _, r := range rows {
			columns, _ := json.Marshal(r.Model) // follows pointers
			text += fmt.Sprintf("\n%s %s %s %v %v", r.Table, r.ID, columns, r.In, r.Has)
		}
		out[string(u)] = text
		if a, ok := w.Pods.Annotation(u); ok {
			out["annotation of "+string(u)] = fmt.Sprint(a.Values(), a.Written())
		}
		if p := w.Pods.Mismatch(u); p != nil {
			out["mismatch of "+string(u)] = p.Message
		}
		if r, ok := w.Services.Service(u); ok && r.Ours {
			services = append(services, &r)
		}
	}
	out["cluster"] = w.Facts().UID
	masterOutput(s, out)
	helperOutput(s, services, out)
	return out
}

// masterOutput adds the record of the topology and the annotations of Nodes.
func masterOutput(s state, out map[string]string) {
	ranges := nodesubnet.Ranges{{CIDR: netip.MustParsePrefix("10.0.0.0/16"), Length: 24}, {CIDR: netip.MustParsePrefix("fd00::/48"), Length: 64}}
	x := nodes.New(ranges, randomTopology(), nil)
	step := x.Next(x.Replace(func(yield func(any) bool) {
		for _, o := range s["nodes"] {
			if !yield(o) {
				return
			}
		}
	}), nil)
	out["record"], out["annotations of nodes"], out["problems of nodes"] = fmt.Sprint(step.Record.Registry()), fmt.Sprint(step.Patches), fmt.Sprint(step.Problems)
}

// helperOutput adds flows and rules of the node n1.
func helperOutput(s state, services []*service.Resolved, out map[string]string) {
	nodes := nodeport.Nodes{}
	for _, o := range s["nodes"] {
		nodes.Put(o)
	}
	var ranges servicecidr.Ranges
	for _, o := range s["servicecidrs"] {
		ranges = append(ranges, servicecidr.Of(o.(*networkingv1.ServiceCIDR))...)
	}
	var pods []hostport.Pod
	for _, o := range s["pods"] {
		if p := pod.New(o.(*corev1.Pod)); p.Node == "n1" && len(p.HostPorts) > 0 && len(p.StatusIPs) > 0 {
			pods = append(pods, hostport.Pod{Pod: p, Addrs: p.StatusIPs})
		}
	}
	h := nodeport.Host{
		Node: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Nodes: nodes, Routed: ranges, Management: "k8s-n1",
		Pods: []netip.Prefix{netip.MustParsePrefix("10.0.1.0/24"), netip.MustParsePrefix("fd00:0:0:1::/64")}, Shared: "brens3", Gateway: true,
	}
	frontends := service.AllFrontends(services, service.Network{Inside: h.Pods})
	for _, family := range []netip.Addr{nodeport.IPv4, nodeport.IPv6} {
		out["chains "+family.String()] = fmt.Sprintf("%+v", nodeport.NewRules(h, family, frontends, pods).Chains(true))
	}
	out["flows"] = fmt.Sprint(bridgeflows.Flows(bridgeflows.Bridge{MAC: "0a:00:00:00:00:01", Addrs: h.Addrs, Router: h.Addrs, NodePorts: h.Addrs}, frontends, pods))
	out["health"] = fmt.Sprint(nodeport.HealthChecks("n1", services))
}

// randomTopology is the topology of all worlds.
func randomTopology() topology.Cluster {
	parse := func(all ...string) (out []netip.Prefix) {
		for _, s := range all {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	c, err := topology.New(names.ClusterRouter, parse("10.0.0.0/16", "fd00::/48"), parse("100.64.0.0/16", "fd98::/64"))
	for i := range 3 {
		if err == nil {
			c, err = c.WithNode(fmt.Sprintf("n%d", i), parse(fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("fd00:0:0:%d::/64", i)))
		}
	}
	c = c.WithChassis("n1", "chassis1").WithChassis("n2", "chassis2")
	if err == nil {
		c, err = c.WithGateway("g", topology.Gateway{
			Mode: topology.Physical, Interface: "eth1", Chassis: "chassis1", MAC: "02:00:00:00:00:01",
			IPs: parse("192.0.2.9/24"), NextHops: []netip.Addr{netip.MustParseAddr("192.0.2.254")},
		})
	}
	if err != nil {
		panic(err)
	}
	return c
}
