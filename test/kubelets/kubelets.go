// Package kubelets runs a cluster of package world with real kubelets and container
// runtimes. Its tests cover probes, exec, logs, restarts of a node, and leaked
// resources.
//
// No distribution packages all prerequisites, so environment variables locate them.
// make test skips these tests:
//
//	OVNK8S_KUBELET  the program kubelet, 1.29 or newer
//	OVNK8S_IMAGES   a directory with pause.tar and agnhost.tar, as docker save
//	                makes them, of the images PauseImage and AgnhostImage; all
//	                other archives in it are given to the nodes, too
//	OVNK8S_CONTAINERD  optional: a directory with containerd,
//	                containerd-shim-runc-v2 and ctr, if not those on PATH
//
// Other prerequisites: runc, kubectl, the CNI plugin loopback, and root on a
// machine with writable control groups.
package kubelets

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/world"
)

// The images of pods. Nothing is pulled: the archives must contain them under these
// names.
const (
	PauseImage   = "registry.k8s.io/pause:3.10"
	AgnhostImage = "registry.k8s.io/e2e-test-images/agnhost:2.56"
)

// archives are the required files in OVNK8S_IMAGES.
var archives = []string{"pause.tar", "agnhost.tar"}

// zones is the number of topology zones, if there are as many nodes.
const zones = 3

// loopbackPlugin lists the paths of the CNI plugin loopback in distributions.
var loopbackPlugin = []string{"/usr/lib/cni/loopback", "/usr/libexec/cni/loopback"}

// Missing names a prerequisite of Start missing on this machine, or is "".
func Missing() string {
	if missing := world.Missing(); missing != "" {
		return missing
	}
	for _, tool := range append([]string{"runc", "kubectl", "mount"}, containerd()...) {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	if firstFile(loopbackPlugin...) == "" {
		return "the CNI plugin loopback: one of " + strings.Join(loopbackPlugin, ", ")
	}
	if firstFile(os.Getenv("OVNK8S_KUBELET")) == "" {
		return "a kubelet: $OVNK8S_KUBELET must be its path"
	}
	for _, archive := range archives {
		if firstFile(filepath.Join(os.Getenv("OVNK8S_IMAGES"), archive)) == "" {
			return archive + ": $OVNK8S_IMAGES must be its directory"
		}
	}
	return ""
}

// containerd are the programs of the container runtime: names or paths.
func containerd() []string {
	programs := []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	if dir := os.Getenv("OVNK8S_CONTAINERD"); dir != "" {
		for i, p := range programs {
			programs[i] = filepath.Join(dir, p)
		}
	}
	return programs
}

// firstFile returns the first existing regular file of paths, or "".
func firstFile(paths ...string) string {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// Options configure Start.
type Options struct {
	Dir     string // of state and, after Close, logs
	Bin     string // of the project's programs
	Minions int    // in addition to the master
	Log     func(line string)
}

// A Cluster is a World with a Runtime on each node.
type Cluster struct {
	*world.World
	Runtimes []*Runtime

	kube    *kubetest.Cluster
	tunnel  *tunnel
	sysctls []sysctl
}

// Start creates a cluster of a master and minions, all running pods. The caller
// must Close it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{sysctls: readSysctls()}
	if err := c.start(ctx, o); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) (err error) {
	egress, err := writeEgress(o.Dir)
	if err != nil {
		return err
	}
	options := world.KubeOptions()
	options.Dir, options.Log = filepath.Join(o.Dir, "kube"), o.Log
	options.APIServerArgs = []string{
		"--egress-selector-config-file=" + egress.config,
		"--kubelet-preferred-address-types=InternalIP", // the nodes' names are not in DNS
	}
	if err := os.MkdirAll(options.Dir, 0o755); err != nil {
		return err
	}
	if c.kube, err = kubetest.Start(ctx, options); err != nil {
		return err
	}
	c.World, err = world.New(ctx, world.Options{Dir: o.Dir, Minions: o.Minions, Kube: c.kube, Log: o.Log})
	if err != nil {
		return err
	}
	if c.tunnel, err = openTunnel(egress.socket, c.Master().Netns()); err != nil {
		return err
	}
	if err := c.Install(ctx, o.Bin); err != nil {
		return err
	}
	for i, n := range c.Nodes {
		r, err := newRuntime(ctx, o.Dir, n, c.kube)
		if err != nil {
			return fmt.Errorf("preparing %s: %w", n.Name, err)
		}
		r.zone = fmt.Sprintf("zone%d", i%zones)
		c.Runtimes = append(c.Runtimes, r)
		if err := r.Start(ctx); err != nil {
			return fmt.Errorf("starting the runtime of %s: %w", n.Name, err)
		}
	}
	return nil
}

// Runtime returns the runtime of a node by its name, or nil.
func (c *Cluster) Runtime(node string) *Runtime {
	for _, r := range c.Runtimes {
		if r.Name == node {
			return r
		}
	}
	return nil
}

// Kubectl runs kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// KubectlCommand prepares a kubectl command of the administrator.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Env = append(host.Environment(), "KUBECONFIG="+c.kube.Kubeconfig, "HOME="+c.kube.Dir)
	return cmd
}

// Close stops and removes everything except Options.Dir.
func (c *Cluster) Close() {
	for _, r := range c.Runtimes {
		r.Stop()
	}
	if c.World != nil {
		c.World.Close()
	}
	if c.tunnel != nil {
		c.tunnel.close()
	}
	if c.kube != nil {
		c.kube.Close()
	}
	for _, r := range c.Runtimes {
		r.removeGroups()
	}
	for _, s := range c.sysctls {
		s.restore()
	}
}

// A sysctl is a machine-wide setting changed by kubelets.
type sysctl struct{ file, value string }

// readSysctls reads the sysctls changed by kubelets (k8s.io/kubernetes,
// pkg/kubelet/cm, setupKernelTunables).
func readSysctls() []sysctl {
	var all []sysctl
	for _, name := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"} {
		file := filepath.Join("/proc/sys", name)
		if value, err := os.ReadFile(file); err == nil {
			all = append(all, sysctl{file, string(value)})
		}
	}
	return all
}

func (s sysctl) restore() {
	_ = os.WriteFile(s.file, []byte(s.value), 0o644) // best effort
}
