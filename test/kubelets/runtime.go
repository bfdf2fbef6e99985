package kubelets

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/test/host"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/poll"
	"ovn-k8s/test/reaper"
	"ovn-k8s/test/world"
)

//go:embed runtime.sh
var runtimeScript string

//go:embed reboot.sh
var rebootScript string

// groupRoot is the control group of all nodes of this process. It is unique because
// clusters on the same machine use the same node names.
func groupRoot() string { return fmt.Sprintf("ovn-k8s-test-%d", os.Getpid()) }

// manifests is the kubelet's directory of static pods.
const manifests = "/etc/kubernetes/manifests"

const containerdConfig = `version = 2
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true # machines for tests may lack CAP_SYS_RESOURCE
`

// kubeletConfig is a format; its arguments are the CA, the node's certificate, its
// key and its control group.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %q}}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %q
failCgroupV1: false
failSwapOn: false
clusterDNS: [172.30.0.10]
clusterDomain: cluster.local
oomScoreAdj: 0
maxPods: 250
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%}
nodeStatusUpdateFrequency: 5s
fileCheckFrequency: 1s
staticPodPath: ` + manifests + `
`

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: admin, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
`

// A Runtime is the container runtime and the kubelet of a node.
type Runtime struct {
	*world.Node
	zone       string // its topology zone
	dir        string // of its configuration
	containerd *reaper.Process
	kubelet    *reaper.Process
}

// newRuntime prepares a node. It starts nothing.
func newRuntime(ctx context.Context, dir string, n *world.Node, kube *kubetest.Cluster) (*Runtime, error) {
	r := &Runtime{Node: n, dir: filepath.Join(dir, "node-"+n.Name)}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	if err := r.configure(kube); err != nil {
		return nil, err
	}
	hierarchies, err := hierarchies()
	if err != nil {
		return nil, err
	}
	cmd := r.Command("sh", "-c", runtimeScript)
	cmd.Stdin = strings.NewReader(hierarchies)
	if _, _, err := host.RunCommand(ctx, cmd); err != nil {
		return nil, err
	}
	if programs := containerd(); filepath.IsAbs(programs[0]) {
		if err := r.Install(programs...); err != nil {
			return nil, err
		}
	}
	return r, r.makeGroups()
}

// configure writes all configuration files.
func (r *Runtime) configure(kube *kubetest.Cluster) error {
	server, err := url.Parse(kube.URL)
	if err != nil {
		return err
	}
	server.Host = net.JoinHostPort(host.FabricIPv4().String(), server.Port()) // forwarded by the World
	cert, key, err := r.certificate(filepath.Dir(kube.CAFile))
	if err != nil {
		return err
	}
	certFile, keyFile := filepath.Join(r.dir, "kubelet.crt"), filepath.Join(r.dir, "kubelet.key")
	for file, text := range map[string][]byte{
		certFile:                     cert,
		keyFile:                      key,
		r.file("containerd.toml"):    []byte(containerdConfig),
		r.file("kubelet.yaml"):       fmt.Appendf(nil, kubeletConfig, kube.CAFile, certFile, keyFile, "/"+r.group()),
		r.file("kubelet.kubeconfig"): fmt.Appendf(nil, kubeconfig, server, kube.CAFile, kube.Token),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) file(name string) string { return filepath.Join(r.dir, name) }

// certificate creates the kubelet's serving certificate, signed by the control plane's CA.
func (r *Runtime) certificate(pki string) (cert, key []byte, err error) {
	ca, err := tls.LoadX509KeyPair(filepath.Join(pki, "ca.crt"), filepath.Join(pki, "ca.key"))
	if err != nil {
		return nil, nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "system:node:" + r.Name, Organization: []string{"system:nodes"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:     []string{r.Name},
		IPAddresses:  []net.IP{r.IPv4().AsSlice(), r.IPv6().AsSlice()},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, private.Public(), ca.PrivateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the kubelet's certificate: %w", err)
	}
	bytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytes}), nil
}

// Start starts the container runtime, imports the images, and starts the kubelet.
func (r *Runtime) Start(ctx context.Context) error {
	if err := r.startContainerd(ctx); err != nil {
		return err
	}
	return r.startKubelet()
}

// startContainerd starts the container runtime and imports the images.
func (r *Runtime) startContainerd(ctx context.Context) (err error) {
	if r.containerd, err = r.daemon("containerd", "containerd", "--config", r.file("containerd.toml")); err != nil {
		return err
	}
	if err := poll.Until(ctx, func() error {
		_, _, err := r.Run(ctx, "ctr", "version")
		return errors.Join(err, r.containerd.Err())
	}); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(os.Getenv("OVNK8S_IMAGES"), "*.tar"))
	if err != nil {
		return err
	}
	for _, file := range images {
		if _, _, err := r.Run(ctx, "ctr", "--namespace=k8s.io", "images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

// startKubelet starts the kubelet.
func (r *Runtime) startKubelet() (err error) {
	r.kubelet, err = r.daemon("kubelet", os.Getenv("OVNK8S_KUBELET"), "--config="+r.file("kubelet.yaml"),
		"--kubeconfig="+r.file("kubelet.kubeconfig"), "--hostname-override="+r.Name,
		"--node-labels="+corev1.LabelTopologyZone+"="+r.zone,
		fmt.Sprintf("--node-ip=%v,%v", r.IPv4(), r.IPv6()), "--v=2")
	return err
}

// daemon starts a program, logging into /var/log.
func (r *Runtime) daemon(name string, command ...string) (*reaper.Process, error) {
	return r.Node.Start("sh", append([]string{"-c", `log=$1; shift; exec "$@" >>"$log" 2>&1`, "sh", "/var/log/" + name + ".log"}, command...)...)
}

// Stop kills the kubelet and the container runtime. Containers keep running.
func (r *Runtime) Stop() {
	for _, p := range []*reaper.Process{r.kubelet, r.containerd} {
		if p != nil {
			p.Stop()
		}
	}
}

// reboot simulates a loss of power. The caller must start Open vSwitch and the
// Runtime again.
func (r *Runtime) reboot(ctx context.Context) error {
	_, err := r.Script(ctx, rebootScript)
	r.Stop()
	if err != nil {
		return fmt.Errorf("rebooting %s: %w", r.Name, err)
	}
	r.removeGroups()
	return r.makeGroups()
}

// group is the path of the node's control group.
func (r *Runtime) group() string { return filepath.Join(groupRoot(), r.Name) }

// makeGroups creates the node's control group in all hierarchies. In cpuset (v1) a
// new group has no CPUs and no memory nodes until they are written.
func (r *Runtime) makeGroups() error {
	parents, err := groupParents()
	if err != nil {
		return err
	}
	for _, parent := range parents {
		if err := os.MkdirAll(filepath.Join(parent, r.group()), 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(parent, file))
			if errors.Is(err, fs.ErrNotExist) || len(strings.TrimSpace(string(value))) == 0 {
				continue
			}
			for _, group := range []string{groupRoot(), r.group()} {
				if err := os.WriteFile(filepath.Join(parent, group, file), value, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// removeGroups removes the node's control groups and their children, which must be
// empty.
func (r *Runtime) removeGroups() {
	parents, err := groupParents()
	if err != nil {
		return
	}
	for _, parent := range parents {
		var groups []string
		_ = filepath.WalkDir(filepath.Join(parent, r.group()), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				groups = append(groups, path)
			}
			return nil
		})
		slices.Reverse(groups)
		for _, g := range append(groups, filepath.Join(parent, groupRoot())) {
			_ = os.Remove(g) // fails for the root while there are other nodes
		}
	}
}

// groupParents are the mount points of the control group hierarchies.
func groupParents() ([]string, error) {
	text, err := hierarchies()
	var parents []string
	for line := range strings.Lines(text) {
		parents = append(parents, strings.Fields(line)[0])
	}
	return parents, err
}

// hierarchies lists this machine's control group hierarchies, one line each, in the
// format of runtime.sh (proc_pid_mountinfo(5)).
func hierarchies() (string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		mount, filesystem, _ := strings.Cut(line, " - ")
		m, f := strings.Fields(mount), strings.Fields(filesystem)
		if strings.HasPrefix(f[0], "cgroup") && strings.HasPrefix(m[4], "/sys/fs/cgroup") {
			fmt.Fprintln(&b, m[4], f[0], f[2])
		}
	}
	if b.Len() == 0 {
		return "", errors.New("looking for control groups: none in /sys/fs/cgroup")
	}
	return b.String(), nil
}
