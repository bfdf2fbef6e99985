package boot_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ovn-k8s/docs"
	"ovn-k8s/test/boot"
	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// ofOvnkube is the directory on the machine where the commands of ovnkube.md are run: the files they need are there.
const ofOvnkube = "/root/ovnkube"

// An ovnkubeWorld is a machine as master and node of ovnkube, with OVN's databases.
type ovnkubeWorld struct {
	*nodeWorld
	kube *kubetest.Cluster
	page string
}

// A host with the unit of ovnkube.md, set up by the commands of the page, waits for its Node, and has its network again after a
// reboot and a power cut: its management port, and on the bridge all that its NIC had.
func TestOvnkubeBoots(t *testing.T) {
	w := newOvnkube(t)
	var enable errgroup.Group // the command of the page waits until the host is complete
	enable.Go(func() error { return w.run("cat > /etc/default/ovnkube") })
	w.eventually("systemctl show -p ActiveState,StatusText --value ovnkube | grep -q 'waiting: there is no Node node1: does the kubelet run, with this name?'")
	_, err := w.kube.CreateNode(w.ctx, "node1", w.node.Port.Addresses[0].Addr())
	w.must(err)
	w.must(enable.Wait())
	w.complete()
	for _, again := range []func(context.Context) error{w.node.Reboot, w.node.PowerCycle} {
		w.must(again(w.ctx))
		w.complete()
		// P1: a shared bridge has its flows before OVN forwards packets.
		unit, controller := w.moment("ActiveEnterTimestampMonotonic ovnkube"), w.moment("InactiveExitTimestampMonotonic ovn-controller")
		if unit == 0 || controller < unit {
			t.Errorf("ovn-controller started at %d us, ovnkube was active at %d us", controller, unit)
		}
	}
	// The NIC stays on the bridge if the gateway changes, and the host's configuration still gives the NIC the addresses.
	w.script("sed -i s/--gateway-mode=shared/--gateway-mode=local/ /etc/default/ovnkube && systemctl restart ovnkube")
	w.complete()
	w.must(w.node.Reboot(w.ctx))
	w.complete()
}

// newOvnkube boots a machine with the packages of ovnkube.md, and all that the page demands of the cluster but for the Node.
func newOvnkube(t *testing.T) *ovnkubeWorld {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	require.Nothing(t, require.Node, boot.Missing())
	require.Nothing(t, require.Cluster, kubetest.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(6*time.Minute))
	t.Cleanup(cancel)
	w := &ovnkubeWorld{nodeWorld: &nodeWorld{T: t, ctx: ctx}}
	page, err := docs.Files.ReadFile("ovnkube.md")
	w.must(err)
	w.page = string(page)
	fabric, err := host.NewFabric()
	w.must(err)
	t.Cleanup(fabric.Close)
	o := world.KubeOptions()
	o.Without, o.Log = []string{"kube-scheduler", "kube-controller-manager"}, func(l string) { t.Log(l) }
	w.kube, err = kubetest.Start(ctx, o)
	w.must(err)
	t.Cleanup(w.kube.Close)
	_, err = fabric.Forward(6443, strings.TrimPrefix(w.kube.URL, "https://"))
	w.must(err)
	bin, err := world.Build(ctx, world.OVNKube()...)
	w.must(err)
	manager := boot.Managers()[0]
	w.node, err = boot.New(boot.Options{Name: "node1", Fabric: fabric, Packages: manager.Packages, Programs: []string{bin + "/ovnkube", bin + "/ovn-k8s-cni-shim"}})
	w.must(err)
	t.Cleanup(w.node.Close)
	w.must(manager.Install(w.node, false))
	w.files()
	w.must(w.node.Enable("openvswitch-switch", "ovn-host", "ovn-central"))
	w.must(w.node.Boot(ctx))
	w.must(w.node.Settle(ctx))
	w.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-bridge-datapath-type=" + host.Datapath())
	w.eventually("ovn-nbctl show && ovn-sbctl show") // their units are active before they listen
	w.must(w.run("ovn-nbctl set-connection"))
	w.must(w.run("install -m 600"))
	return w
}

// files writes the files for commands of the page: the unit, the master's token and the CA certificate.
func (w *ovnkubeWorld) files() {
	w.Helper()
	accounts, err := docs.Files.ReadFile("rbac-ovnkube.yaml")
	w.must(err)
	w.must(w.kube.Apply(w.ctx, accounts))
	token, err := w.kube.ServiceAccountToken(w.ctx, "ovn-kubernetes", "ovnkube-master")
	w.must(err)
	ca, err := os.ReadFile(w.kube.CAFile)
	w.must(err)
	unit, err := docs.Files.ReadFile("systemd/ovnkube.service")
	w.must(err)
	for name, text := range map[string]string{"ovnkube-master.token": token, "ca.crt": string(ca), "docs/systemd/ovnkube.service": string(unit)} {
		w.must(w.node.Write(ofOvnkube+"/"+name, text))
	}
}

// run runs the commands of the page in the block that begins with a text, with the addresses of this host and of its API server,
// and the token of this host.
func (w *ovnkubeWorld) run(begin string) error {
	_, block, found := strings.Cut(w.page, "\n```\n"+begin)
	if !found {
		return fmt.Errorf("ovnkube.md has no commands %q", begin)
	}
	block, _, _ = strings.Cut(begin+block, "\n```")
	block = strings.NewReplacer("https://192.0.2.10:", fmt.Sprintf("https://%v:", host.FabricIPv4()),
		"192.0.2.10", w.node.Port.Addresses[0].Addr().String(), "ovnkube-node2.token", "ovnkube-master.token").Replace(block)
	_, err := w.node.Script(w.ctx, "set -e; cd "+ofOvnkube+"\n"+block)
	return err
}

// complete waits until the unit runs, the host has its network, and ovnkube check finds nothing.
func (w *ovnkubeWorld) complete() {
	w.Helper()
	port := w.node.Port
	w.eventually(fmt.Sprintf(`set -e
		%v
		ip -4 address show dev k8s-node1 | grep -q ' 10.128.0.2/23 '
		ip route | grep -q '^10.128.0.0/14 via 10.128.0.1 dev k8s-node1'
		ip address show dev breth0 | grep -q ' %v '; ip address show dev breth0 | grep -q ' %v '
		[ -z "$(ip -o address show dev eth0 scope global)" ]
		ip route show default | grep -q ' dev breth0'; ip -6 route show default | grep -q ' dev breth0'
		[ $(ip route show 172.32.0.0/16 | grep -c 'nexthop via .* dev breth0') = 2 ]
		ping -c1 -W1 %v; ping -c1 -W1 %v
		. /etc/default/ovnkube
		ovnkube check --k8s-api-token-file=/etc/openvswitch/ovnkube.token $OVNKUBE_OPTIONS`, active("ovnkube ovn-controller"), port.Addresses[0], port.Addresses[1], port.Gateways[0], port.Gateways[1]))
	if got := w.script("systemctl --failed --no-legend; systemctl show -p NRestarts --value ovnkube"); got != "0" {
		w.Errorf("failed units, restarts of ovnkube: %s", got)
	}
}
