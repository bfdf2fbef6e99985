package ovnkube

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/world"
)

// Command lines of former releases, for a shell that has the variables.
const (
	allInOne = `ovnkube -k8s-kubeconfig kubeconfig.yaml -loglevel=4 -k8s-apiserver="http://$CENTRAL_IP:8080" -logfile="/var/log/ovn-kubernetes/ovnkube.log" -init-master=$NODE_NAME -init-node=$NODE_NAME -cluster-subnets="$CLUSTER_IP_SUBNET" -k8s-service-cidr=$SERVICE_IP_SUBNET -nodeport -init-gateways -gateway-local -k8s-token="$TOKEN" -nb-address="tcp:$CENTRAL_IP:6641" -sb-address="tcp:$CENTRAL_IP:6642"`

	masterOnly = `ovnkube -k8s-kubeconfig kubeconfig.yaml -net-controller -loglevel=4 -k8s-apiserver="http://$CENTRAL_IP:8080" -logfile="/var/log/openvswitch/ovnkube.log" -init-master=$NODE_NAME -cluster-subnet="$CLUSTER_IP_SUBNET" -service-cluster-ip-range=$SERVICE_IP_SUBNET -nodeport -nb-address="tcp://$CENTRAL_IP:6631" -sb-address="tcp://$CENTRAL_IP:6632"`

	nodeOnly = `ovnkube -k8s-kubeconfig kubeconfig.yaml -loglevel=4 -logfile="/var/log/openvswitch/ovnkube.log" -k8s-apiserver="http://$CENTRAL_IP:8080" -init-node="$NODE_NAME" -nodeport -nb-address="tcp://$CENTRAL_IP:6631" -sb-address="tcp://$CENTRAL_IP:6632" -k8s-token="$TOKEN" -init-gateways -service-cluster-ip-range=$SERVICE_IP_SUBNET -cluster-subnet=$CLUSTER_IP_SUBNET`

	ofNIC = nodeOnly + ` -gateway-interface=enp0s9 -gateway-nexthop="$NEXTHOP"`
)

// apiPort is the insecure port of the API server. Servers of tests have 8080.
const apiPort = "8081"

// A historical cluster has hosts with command lines of former releases.
type historical struct {
	*cluster
	families int // 1: IPv4, 2: both
	lines    map[string][]string
	running  []*reaper.Process
	pods     []world.Endpoint
}

// Command lines of former releases make a cluster in which everything reaches everything: with a master that is a node, and
// with a master for itself; with gateways of a local bridge, of the default route's NIC and of another NIC; IPv4 and both
// families. With the old spellings of subnets in place of the new ones, and the other way round, nothing changes. AC-41: the
// outside sees the address of the gateway on the pod's node (AC-51). AC-43: NodePorts of all nodes. AC-52: pods reach their
// host's addresses, and hosts their NodePorts.
func TestHistoricalLines(t *testing.T) {
	for name, lines := range map[string]map[string][]string{
		"all in one": {"master": {allInOne}, "minion1": {nodeOnly}},
		"separate":   {"master": {masterOnly, nodeOnly}, "minion1": {nodeOnly}, "minion2": {ofNIC}},
	} {
		for families, title := range map[int]string{1: "IPv4", 2: "dual stack"} {
			t.Run(name+", "+title, func(t *testing.T) {
				h := &historical{cluster: newCluster(t, world.Options{Minions: len(lines) - 1}), families: families, lines: lines}
				h.prepare()
				h.start(func(line string) string { return line })
				h.must(h.StartKubelets(h.ctx))
				h.logged()
				h.green()
				before := h.rows()
				h.stop()
				h.start(otherSpelling)
				h.complete(otherSpelling)
				if diff := cmp.Diff(before, h.rows()); diff != "" {
					t.Errorf("other spellings changed rows (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// prepare makes all that the command lines need.
func (h *historical) prepare() {
	h.Helper()
	bin, err := programs()
	h.must(err)
	h.must(h.InstallPrograms(bin))
	for db, ctl := range map[string]func(...string) (string, error){"6631": h.Central.NBCtl, "6632": h.Central.SBCtl} {
		_, err := ctl("set-connection", "ptcp:"+db)
		h.must(err)
	}
	h.serveAPI()
	const kubeconfig = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "http://%v:%s"}}]}`
	for _, n := range h.Nodes {
		h.must(os.WriteFile(n.Path(etc+"/kubeconfig.yaml"), fmt.Appendf(nil, kubeconfig, h.Master().IPv4(), apiPort), 0o600))
		if strings.Contains(strings.Join(h.lines[n.Name], ""), "enp0s9") {
			addresses, _ := n.Second()
			_, err := n.Script(h.ctx, `ip link set eth1 down && ip link set eth1 name enp0s9 up && ip address add $1 dev enp0s9 nodad`, addresses[1].String())
			h.must(err)
		}
	}
	h.Cleanup(h.stop)
}

// serveAPI serves the insecure port of the API server on the master.
func (h *historical) serveAPI() {
	h.Helper()
	handler, err := h.Kube.Insecure()
	h.must(err)
	var l net.Listener
	h.must(probe.In(h.Master().Netns(), func() (err error) {
		l, err = net.Listen("tcp", ":"+apiPort)
		return err
	}))
	server := &http.Server{Handler: handler}
	h.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }()
}

// command returns a command that runs a line on a node.
func (h *historical) command(n *world.Node, line string) []string {
	_, hops := n.Second()
	nextHops := []string{hops[0].String(), hops[1].String()}
	first := func(both string) string { return strings.Join(strings.Split(both, ",")[:h.families], ",") }
	return []string{
		"env", "CENTRAL_IP=" + h.Master().IPv4().String(), "NODE_NAME=" + n.Name, "TOKEN=" + h.Kube.Token,
		"CLUSTER_IP_SUBNET=" + first("10.128.0.0/14/23,fd01::/48/64"), "SERVICE_IP_SUBNET=" + first(world.ServiceSubnets), "NEXTHOP=" + first(strings.Join(nextHops, ",")),
		"sh", "-c", "cd " + etc + " && exec " + strings.ReplaceAll(line, ":8080", ":"+apiPort),
	}
}

// start starts the edited lines of all nodes.
func (h *historical) start(edit func(line string) string) {
	h.Helper()
	for _, n := range h.Nodes {
		for _, line := range h.lines[n.Name] {
			h.Logf("%s# %s", n.Name, edit(line))
			command := h.command(n, edit(line))
			p, err := n.Start(command[0], command[1:]...)
			h.must(err)
			h.running = append(h.running, p)
		}
	}
}

// stop kills all processes of start.
func (h *historical) stop() {
	for _, p := range h.running {
		if p.Stop(); h.Failed() {
			h.Logf("output:\n%s", p.Output())
		}
	}
	h.running = nil
}

// complete waits until check finds nothing with the edited lines, and all hosts have what the database has.
func (h *historical) complete(edit func(line string) string) {
	h.Helper()
	for _, n := range h.Nodes {
		for _, line := range h.lines[n.Name] {
			command := h.command(n, strings.Replace(edit(line), "ovnkube ", "ovnkube check ", 1))
			h.eventually("check of "+n.Name, func() error {
				out, _, err := n.Run(h.ctx, command[0], command[1:]...)
				if err != nil {
					err = errors.New(out + err.Error())
				}
				return err
			})
		}
	}
	_, err := h.Central.NBCtl("--wait=hv", "sync")
	h.must(err)
}

// otherSpelling edits a line: old names of options become new ones, new ones old.
func otherSpelling(line string) string {
	pairs := []string{"-cluster-subnets=", "-cluster-subnet=", "-k8s-service-cidr=", "-service-cluster-ip-range="}
	return strings.NewReplacer(pairs[0], pairs[1], pairs[1], pairs[0], pairs[2], pairs[3], pairs[3], pairs[2]).Replace(line)
}

var logFile = regexp.MustCompile(`-logfile="([^"]+)"`)

// logged fails unless each log file has lines.
func (h *historical) logged() {
	h.Helper()
	for _, n := range h.Nodes {
		for _, line := range h.lines[n.Name] {
			name := logFile.FindStringSubmatch(line)[1]
			if text, err := os.ReadFile(n.Path(name)); err != nil || !strings.Contains(string(text), "|INFO|") {
				h.Errorf("%s: %s has %q, %v", n.Name, name, text, err)
			}
		}
	}
}

// gateway are the addresses of pods of a node, as seen outside.
func (h *historical) gateway(n *world.Node) (addresses []netip.Addr) {
	prefixes := n.Addresses
	if strings.Contains(strings.Join(h.lines[n.Name], ""), "enp0s9") {
		prefixes, _ = n.Second()
	}
	for _, p := range prefixes {
		addresses = append(addresses, p.Addr())
	}
	return addresses
}

// green fails unless pods, hosts, Services and the outside reach each other.
func (h *historical) green() {
	h.Helper()
	hosts, err := h.ServeHosts()
	h.must(err)
	h.Cleanup(hosts.Close)
	for _, n := range h.Nodes {
		_, err := h.Kube.CreatePod(h.ctx, "default", "on-"+n.Name, n.Name, func(p *corev1.Pod) { p.Labels = map[string]string{world.AppLabel: p.Name} })
		h.must(err)
	}
	var attempts []world.Attempt
	for _, n := range h.Nodes {
		pod := h.await("on-" + n.Name)
		h.pods = append(h.pods, pod)
		attempts = append(attempts, world.Attempts(pod, hosts.Outside, h.gateway(n))...)
	}
	all := slices.Concat(h.pods, hosts.Management)
	attempts = slices.Concat(attempts, world.Matrix(all, all), world.Matrix(h.pods, hosts.Nodes), h.ofService())
	attempts = slices.DeleteFunc(attempts, func(a world.Attempt) bool { return h.families == 1 && !a.Address.Addr().Is4() })
	h.must(h.Try(h.ctx, attempts))
	for _, a := range attempts {
		if a.Err != nil {
			h.Errorf("%v: %v", a, a.Err)
		}
	}
	h.Logf("%d attempts\n%s", len(attempts), world.Table(attempts))
}

// ofService makes a Service for the pod of minion1, and returns the attempts of all clients through all its frontends. Routes
// lead to the gateway of the last node.
func (h *historical) ofService() []world.Attempt {
	h.Helper()
	s, err := h.CreateService(h.ctx, "on-minion1", kubelet.DefaultPort, 1, h.single)
	h.must(err)
	s.Backends = h.pods[1:2]
	last := h.Nodes[len(h.Nodes)-1]
	withdraw, err := h.RouteServices([]world.Service{s}, h.gateway(last))
	h.must(err)
	h.Cleanup(withdraw)
	h.complete(func(line string) string { return line })
	near, err := h.Kube.CreatePod(h.ctx, "default", "near", h.Nodes[1].Name, nil)
	h.must(err)
	placement := world.Placement{Node: h.Nodes[1], OtherNode: h.Master(), Near: h.await(near.Name), Far: h.pods[0]}
	return h.ServiceAttempts(s, h.Frontends(s, h.gateway(last)), append(placement.InsideClients(s.Backends[0]), h.OutsideClient()))
}

// single makes a Service IPv4 in a cluster of IPv4.
func (h *historical) single(s *corev1.Service) {
	if h.families == 1 {
		*s.Spec.IPFamilyPolicy = corev1.IPFamilyPolicySingleStack
		s.Spec.ExternalIPs = s.Spec.ExternalIPs[:1]
	}
}
