package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ovn-k8s/docs"
)

// InstallPrograms installs the project's programs from the directory bin on all hosts, and starts none.
func (w *World) InstallPrograms(bin string) error {
	return each(w, func(n *Node) error { return Upgrade{w}.Install(n, bin) })
}

// An Upgrade replaces the project's programs of a running World, host by host.
type Upgrade struct{ *World }

// Install is InstallPrograms for one host. It replaces the programs of another directory.
func (w Upgrade) Install(n *Node, bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	var files []string
	for _, p := range installer(w).programs() {
		files = append(files, filepath.Join(bin, p))
	}
	return n.Install(files...)
}

// Install installs the project's programs from the directory bin on all hosts and
// sets up the network, in the steps of the documentation.
func (w *World) Install(ctx context.Context, bin string) error {
	if err := w.InstallPrograms(bin); err != nil {
		return err
	}
	if w.ovnkube {
		return ovnkube{w}.start(ctx)
	}
	if err := (installer{w}).introduce(ctx); err != nil {
		return err
	}
	return installer{w}.initialize(ctx)
}

// An installer installs the project's programs on the hosts of a World, and starts them.
type installer struct{ *World }

func (w installer) programs() []string {
	if w.ovnkube {
		return append(Programs(), OVNKube()...)
	}
	if w.together {
		return append(Programs(), filepath.Base(Roles))
	}
	return Programs()
}

// introduce configures the addresses of the database and of the API server on every
// host, and its credentials.
func (w installer) introduce(ctx context.Context) error {
	rbac, err := docs.Files.ReadFile("rbac.yaml")
	if err != nil {
		return err
	}
	if err := w.Kube.Apply(ctx, rbac); err != nil {
		return err
	}
	ca, err := os.ReadFile(w.Kube.CAFile)
	if err != nil {
		return err
	}
	helper, err := w.Kube.ServiceAccountToken(ctx, "kube-system", "ovn-k8s-gateway-helper")
	if err != nil {
		return err
	}
	for i, n := range w.Nodes {
		account := "ovn-k8s-cni"
		if i == 0 {
			account = "ovn-k8s-watcher"
		}
		token, err := w.Kube.ServiceAccountToken(ctx, "kube-system", account)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(n.Path(caFile), ca, 0o644), os.WriteFile(n.Path(helperTokenFile), []byte(helper), 0o600)); err != nil {
			return err
		}
		ids := []string{
			fmt.Sprintf("external_ids:ovn-nb=%q", w.Central.NBTCP),
			fmt.Sprintf("external_ids:k8s-api-server=%q", w.api),
			fmt.Sprintf("external_ids:ovn-k8s-service-cidr=%q", ServiceSubnets),
		}
		w.log("%s# ovs-vsctl set Open_vSwitch . %s external_ids:k8s-api-token=…", n.Name, strings.Join(ids, " "))
		args := append([]string{"set", "Open_vSwitch", "."}, ids...)
		if err := n.VSCtl(ctx, append(args, fmt.Sprintf("external_ids:k8s-api-token=%q", token))...); err != nil {
			return err
		}
	}
	return nil
}

// initialize runs the set-up commands of the network in the order of the
// documentation. The master also runs pods, so it is initialized as a minion too.
func (w installer) initialize(ctx context.Context) error {
	master := w.Master()
	if err := w.Do(ctx, master, "ovn-k8s-overlay", "master-init", "--cluster-ip-subnet="+ClusterSubnets,
		"--master-switch-subnet="+master.Subnets, "--node-name="+master.Name); err != nil {
		return err
	}
	for _, n := range w.Nodes {
		if err := w.minionInit(ctx, n); err != nil {
			return err
		}
	}
	if err := w.StartWatcher(ctx); err != nil {
		return err
	}
	return each(w.World, func(n *Node) error { return w.StartHelper(ctx, n) })
}

// minionInit runs minion-init on a host.
func (w installer) minionInit(ctx context.Context, n *Node) error {
	return w.Do(ctx, n, "ovn-k8s-overlay", "minion-init", "--cluster-ip-subnet="+ClusterSubnets, "--minion-switch-subnet="+n.Subnets, "--node-name="+n.Name)
}

// Restart restarts the programs of a host after Install, as in the upgrades of install.md and ovnkube.md: with the same arguments.
func (w Upgrade) Restart(ctx context.Context, n *Node) error {
	if w.ovnkube {
		return ovnkube(w).restart(ctx, n)
	}
	if err := n.Retire(ctx); err != nil {
		return err
	}
	if n == w.Master() {
		if err := w.StartWatcher(ctx); err != nil {
			return err
		}
	}
	if err := installer(w).minionInit(ctx, n); err != nil {
		return err
	}
	return w.StartHelper(ctx, n, n.helperArgs...)
}
