// Package hosts has the figures measured on hosts with all programs.
package hosts

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ovn-k8s/lib/names"
	"ovn-k8s/test/bench/field"
	"ovn-k8s/test/bench/programs"
	"ovn-k8s/test/bench/report"
	"ovn-k8s/test/bench/run"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/world"
)

const (
	// cniPods is the number of pods of a node, created one at a time and at once.
	cniPods = 100
	// cniLog is the default path of our plugin's log.
	cniLog = "/var/log/openvswitch/ovn-k8s-cni-overlay.log"
)

// A plugin is a CNI plugin to measure.
type plugin struct {
	name, program string
	config        map[string]any
}

// plugins are ours and the yardstick, in this order. Both make a veth pair and give it an address; ptp asks
// host-local for the address and does no more, ours asks the API server, and waits for the flows of OVN. With -beside
// the yardstick is our plugin of another build.
func plugins(b *run.Bench) [2]plugin {
	const program = "ovn-k8s-cni-overlay"
	config := map[string]any{"cniVersion": "1.0.0", "name": "ovn-k8s", "type": program}
	ours := plugin{"ours", b.Programs.Path(program), config}
	if b.Beside != "" {
		return [2]plugin{ours, {"yardstick", filepath.Join(b.Beside, program), config}}
	}
	return [2]plugin{
		ours,
		{"yardstick", b.Programs.Path("ptp"), map[string]any{"cniVersion": "1.0.0", "name": "ptp", "type": "ptp", "mtu": 1400, "ipam": map[string]any{
			"type": "host-local", "ranges": [][]map[string]string{{{"subnet": "10.200.0.0/16"}}}, "routes": []map[string]string{{"dst": "0.0.0.0/0"}},
		}}},
	}
}

// MeasureCNI calls the plugins on a node of a whole cluster. Its pods have their addresses already.
func MeasureCNI(ctx context.Context, b *run.Bench) error {
	b.Say("cni: building the reference plugins")
	if err := b.Programs.BuildReference(ctx); err != nil {
		return err
	}
	w, end, err := b.World(ctx, "cni", world.Options{})
	if err != nil {
		return err
	}
	defer end()
	n := newCNINode(b, w.Nodes[1].Host, plugins(b), b.Beside != "")
	if err := n.pods(ctx, w.Kube); err != nil {
		return err
	}
	if err := n.compare(ctx); err != nil {
		return err
	}
	return n.tell(ctx)
}

// newCNINode returns the node for the calls of two plugins. apart: both make the same port for a pod.
func newCNINode(b *run.Bench, h *host.Host, pair [2]plugin, apart bool) *cniNode {
	return &cniNode{Bench: b, host: h, pair: pair, together: !apart, took: map[string][]map[string][]float64{}, used: map[string][]float64{}}
}

// compare calls both plugins for all pods, round by round.
func (n *cniNode) compare(ctx context.Context) error {
	if err := n.warm(ctx); err != nil {
		return err
	}
	for round := range n.Rounds {
		n.Say("cni: %s and %s, round %d of %d", filepath.Base(n.pair[0].program), filepath.Base(n.pair[1].program), round+1, n.Rounds)
		if err := n.oneAtATime(ctx); err != nil {
			return err
		}
		if err := n.atOnce(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A cniNode is the node for calls of plugins.
type cniNode struct {
	*run.Bench
	host     *host.Host
	pair     [2]plugin // "ours" and "yardstick"
	together bool      // both may have an interface of a pod at the same time
	all      []*corev1.Pod
	// took has the milliseconds of each ADD and of its stages: by the kind of calls, the round, and "ours", "yardstick"
	// or "stage NAME".
	took map[string][]map[string][]float64
	// used has the milliseconds of CPU time of each ADD, one at a time, by "ours" and "yardstick".
	used map[string][]float64
}

// pods makes pods on the node and waits for their addresses.
func (n *cniNode) pods(ctx context.Context, kube *kubetest.Cluster) error {
	if _, err := kube.CreateNode(ctx, n.host.Name); err != nil {
		return err
	}
	for i := range cniPods {
		p := field.NewPod(1, i)
		p.Namespace, p.Spec.NodeName = metav1.NamespaceDefault, n.host.Name
		if _, err := kube.Client().CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
		n.all = append(n.all, p)
	}
	for i, p := range n.all {
		var err error
		n.all[i], err = kube.AwaitPod(ctx, p.Namespace, p.Name, func(p *corev1.Pod) bool { return p.Annotations[names.Annotation] != "" })
		if err != nil {
			return err
		}
	}
	return nil
}

// A sandbox is the network namespace of a pod, and its plugin.
type sandbox struct {
	pod    *corev1.Pod
	plugin plugin
	id     string
}

// sandboxes makes a namespace for each pod.
func (n *cniNode) sandboxes(ctx context.Context, p plugin, pods []*corev1.Pod) ([]sandbox, error) {
	var made []sandbox
	var lines strings.Builder
	for _, pod := range pods {
		id := make([]byte, 32)
		_, _ = rand.Read(id) // never fails
		s := sandbox{pod, p, hex.EncodeToString(id)}
		made = append(made, s)
		fmt.Fprintf(&lines, "netns add %s\n", s.netns())
	}
	return made, n.ip(ctx, lines.String())
}

// remove calls DEL for sandboxes and removes their namespaces.
func (n *cniNode) remove(ctx context.Context, all []sandbox) error {
	g, deleting := errgroup.WithContext(ctx)
	g.SetLimit(4)
	var lines strings.Builder
	for _, s := range all {
		g.Go(func() error { _, err := n.call(deleting, s, "DEL"); return err })
		fmt.Fprintf(&lines, "netns del %s\n", s.netns())
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return n.ip(ctx, lines.String())
}

func (n *cniNode) ip(ctx context.Context, lines string) error {
	cmd := n.host.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(lines)
	_, _, err := host.RunCommand(ctx, cmd)
	return err
}

func (s sandbox) netns() string { return "bench-" + s.id[:16] }

// call calls the plugin as a container runtime does.
func (n *cniNode) call(ctx context.Context, s sandbox, command string) (cniCall, error) {
	config, err := json.Marshal(s.plugin.config)
	if err != nil {
		return cniCall{}, err
	}
	cmd := n.host.Command(s.plugin.program)
	cmd.Env = append(host.Environment(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+s.id, "CNI_NETNS=/var/run/netns/"+s.netns(), "CNI_IFNAME=eth0",
		"CNI_PATH="+n.Programs.Dir, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+s.pod.Namespace+";K8S_POD_NAME="+s.pod.Name+
			";K8S_POD_INFRA_CONTAINER_ID="+s.id+";K8S_POD_UID="+string(s.pod.UID))
	cmd.Stdin = bytes.NewReader(config)
	began := time.Now()
	stdout, _, err := host.RunCommand(ctx, cmd)
	took := time.Since(began)
	if err != nil {
		return cniCall{}, fmt.Errorf("%s of %s: %w: %s", command, s.plugin.program, err, stdout)
	}
	return cniCall{float64(took.Microseconds()) / 1000, cpuOf(cmd)}, nil
}

// A cniCall has the time of a call and its CPU time, in milliseconds.
type cniCall struct{ took, cpu float64 }

// cpuOf is the CPU time of a command that has ended, in milliseconds.
func cpuOf(cmd *exec.Cmd) float64 {
	return float64((cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Microseconds()) / 1000
}

// warm calls each plugin a few times without counting.
func (n *cniNode) warm(ctx context.Context) error {
	for _, p := range n.pair {
		boxes, err := n.sandboxes(ctx, p, n.all[:5])
		if err != nil {
			return err
		}
		for _, s := range boxes {
			if _, err := n.call(ctx, s, "ADD"); err != nil {
				return err
			}
		}
		if err := n.remove(ctx, boxes); err != nil {
			return err
		}
	}
	return nil
}

// The kinds of calls.
const (
	oneByOne = "one at a time"
	together = "100 at once"
)

// oneAtATime calls ours and the yardstick in turn for each pod. Both plugins of -beside make the same port for a pod, so
// one is called for all pods, and then the other.
func (n *cniNode) oneAtATime(ctx context.Context) error {
	if !n.together {
		return n.apart(ctx)
	}
	both := n.pair
	var boxes [2][]sandbox
	var err error
	for i, p := range both {
		if boxes[i], err = n.sandboxes(ctx, p, n.all); err != nil {
			return err
		}
	}
	values := map[string][]float64{}
	logged, err := n.logSize()
	if err != nil {
		return err
	}
	for k := range n.all {
		for i, p := range both {
			call, err := n.call(ctx, boxes[i][k], "ADD")
			if err != nil {
				return err
			}
			values[p.name] = append(values[p.name], call.took)
		}
	}
	if err := n.stages(logged, values); err != nil {
		return err
	}
	for i, total := range values["stage total"] { // in the order of the calls, one at a time
		values["stage start"] = append(values["stage start"], values["ours"][i]-total)
	}
	n.took[oneByOne] = append(n.took[oneByOne], values)
	return n.remove(ctx, slices.Concat(boxes[0], boxes[1]))
}

// apart calls one plugin for all pods, one at a time, then the other.
func (n *cniNode) apart(ctx context.Context) error {
	values := map[string][]float64{}
	for _, p := range n.pair {
		boxes, err := n.sandboxes(ctx, p, n.all)
		if err != nil {
			return err
		}
		for _, s := range boxes {
			call, err := n.call(ctx, s, "ADD")
			if err != nil {
				return err
			}
			values[p.name] = append(values[p.name], call.took)
			n.used[p.name] = append(n.used[p.name], call.cpu)
		}
		if err := n.remove(ctx, boxes); err != nil {
			return err
		}
	}
	n.took[oneByOne] = append(n.took[oneByOne], values)
	return nil
}

// atOnce calls one plugin for all pods at once, then the other.
func (n *cniNode) atOnce(ctx context.Context) error {
	values := map[string][]float64{}
	for _, p := range n.pair {
		boxes, err := n.sandboxes(ctx, p, n.all)
		if err != nil {
			return err
		}
		logged, err := n.logSize()
		if err != nil {
			return err
		}
		each := make([]float64, len(boxes))
		g, adding := errgroup.WithContext(ctx)
		began := time.Now()
		for i, s := range boxes {
			g.Go(func() error {
				call, err := n.call(adding, s, "ADD")
				each[i] = call.took
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		values[p.name] = each
		values["all "+p.name] = []float64{time.Since(began).Seconds()}
		if p.program == n.Programs.Path("ovn-k8s-cni-overlay") && p.name == "ours" {
			if err := n.stages(logged, values); err != nil {
				return err
			}
		}
		if err := n.remove(ctx, boxes); err != nil {
			return err
		}
	}
	n.took[together] = append(n.took[together], values)
	return nil
}

func (n *cniNode) logSize() (int64, error) {
	info, err := os.Stat(n.host.Path(cniLog))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// stages adds the stages in our plugin's log from the offset from.
func (n *cniNode) stages(from int64, values map[string][]float64) error {
	text, err := os.ReadFile(n.host.Path(cniLog))
	if err != nil {
		return err
	}
	for l := range strings.Lines(string(text[from:])) {
		_, fields, ok := strings.Cut(l, "ADD took")
		if !ok {
			continue
		}
		for f := range strings.FieldsSeq(fields) {
			stage, took, _ := strings.Cut(f, "=")
			d, err := time.ParseDuration(took)
			if err != nil {
				return fmt.Errorf("reading %s: %q: %w", cniLog, l, err)
			}
			values["stage "+stage] = append(values["stage "+stage], float64(d.Microseconds())/1000)
		}
	}
	return nil
}

// tell adds the results to the report.
func (n *cniNode) tell(ctx context.Context) error {
	var enter []float64
	for range 20 {
		began := time.Now()
		if _, _, err := n.host.Run(ctx, "true"); err != nil {
			return err
		}
		enter = append(enter, float64(time.Since(began).Microseconds())/1000)
	}
	entering := report.Median(enter)
	for _, way := range []string{oneByOne, together} {
		rounds := n.took[way]
		of := func(key string, p float64) []float64 {
			var out []float64
			for _, r := range rounds {
				out = append(out, report.Percentile(r[key], p))
			}
			return out
		}
		name := "CNI ADD, " + way
		n.Report.Beside(name+", p50", "ms", 0, of("ours", 50), of("yardstick", 50)).Explain("yardstick without -beside: ptp %s with host-local; both include %s ms of nsenter", programs.ReferenceVersion, report.Number(&entering))
		n.Report.Beside(name+", p99", "ms", 0, of("ours", 99), of("yardstick", 99))
		if way == together {
			n.Report.Beside(name+", until the last has ended", "s", 0, of("all ours", 50), of("all yardstick", 50))
		}
		for _, stage := range stageOrder(rounds[0]) {
			p99 := report.Median(of("stage "+stage, 99))
			n.Report.Alone(name+", our stage "+stage+", p50", "ms", 0, of("stage "+stage, 50)...).Explain("p99 %s ms%s", report.Number(&p99), explained(stage))
		}
	}
	return nil
}

// stageNames are the stages of our plugin in their order, with descriptions.
func stageNames() [][2]string {
	return [][2]string{
		{"start", "process start and end: all that the plugin does not see"},
		{"config", "local Open vSwitch, configuration"},
		{"annotation", "API server"},
		{"veth", "kernel: the veth pair"},
		{"container", "kernel: addresses and routes; meanwhile ovsdb"},
		{"ovsdb", "local Open vSwitch: the port; with container"},
		{"installed", "ovn-controller and ovs-vswitchd"},
		{"total", "config to installed"},
	}
}

// stageOrder lists the stages with values, unknown ones last.
func stageOrder(values map[string][]float64) []string {
	var known, all []string
	for _, s := range stageNames() {
		known = append(known, s[0])
		if values["stage "+s[0]] != nil {
			all = append(all, s[0])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if s, ok := strings.CutPrefix(key, "stage "); ok && !slices.Contains(known, s) {
			all = append(all, s)
		}
	}
	return all
}

func explained(stage string) string {
	for _, s := range stageNames() {
		if s[0] == stage {
			return "; " + s[1]
		}
	}
	return ""
}
