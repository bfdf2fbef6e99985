package kubelet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	cnitypes "github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ovn-k8s/test/host"
	"ovn-k8s/test/probe"
)

// Default directories of container runtimes, in the host.
const (
	configDir = "/etc/cni/net.d"
	pluginDir = "/opt/cni/bin"
	cacheDir  = "/var/lib/cni"
	netnsDir  = "/var/run/netns"
)

// errNoConfig means that no network is configured yet.
var errNoConfig = errors.New("no CNI configuration in " + configDir)

// A Sandbox is a pod's network namespace.
type Sandbox struct {
	// ID is the container ID passed to the plugins.
	ID string
	// Netns is the path of the network namespace, as seen from outside of the host.
	// For a hostNetwork pod it is the host's.
	Netns string
	// Addresses are the addresses assigned by the plugins, or the host's for a hostNetwork pod.
	Addresses []netip.Addr

	name    string // of the namespace in the host, "" for a hostNetwork pod
	uid     types.UID
	config  *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
	close   func()    // ends its server
	deleted time.Time // when the kubelet first saw the pod's deletion
}

// A network runs CNI plugins in a host.
type network struct {
	host *host.Host
	cni  *libcni.CNIConfig
}

func newNetwork(h *host.Host) *network {
	return &network{
		host: h,
		cni:  libcni.NewCNIConfigWithCacheDir([]string{pluginDir}, h.Path(cacheDir), executor{h}),
	}
}

// config returns the first network configuration in lexical order of file names,
// like containerd.
func (n *network) config() (*libcni.NetworkConfigList, error) {
	files, err := libcni.ConfFiles(n.host.Path(configDir), []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errNoConfig
	}
	slices.Sort(files)
	if filepath.Ext(files[0]) == ".conflist" {
		return libcni.NetworkConfFromFile(files[0])
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	single, err := libcni.NetworkPluginConfFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", files[0], err)
	}
	//lint:ignore SA1019 runtimes still read configurations of one plugin, so we do
	return libcni.ConfListFromConf(single)
}

// setUp creates a sandbox. After a failure it calls DEL to clean up. Every try has
// a new ID.
func (n *network) setUp(ctx context.Context, pod *corev1.Pod) (*Sandbox, error) {
	id := make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	s := &Sandbox{ID: hex.EncodeToString(id), uid: pod.UID}
	if pod.Spec.HostNetwork {
		s.Netns = n.host.Netns()
		for _, a := range n.host.Addresses {
			s.Addresses = append(s.Addresses, a.Addr())
		}
		return s, s.serve(pod)
	}
	config, err := n.config()
	if err != nil {
		return nil, err
	}
	s.name = "cni-" + s.ID[:16]
	s.Netns = n.host.Path(filepath.Join(netnsDir, s.name))
	s.config, s.runtime = config, &libcni.RuntimeConf{
		ContainerID: s.ID,
		NetNS:       filepath.Join(netnsDir, s.name),
		IfName:      "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", pod.Namespace},
			{"K8S_POD_NAME", pod.Name},
			{"K8S_POD_INFRA_CONTAINER_ID", s.ID},
			{"K8S_POD_UID", string(pod.UID)},
		},
	}
	done := false
	defer func() {
		if !done {
			_ = n.tearDown(context.WithoutCancel(ctx), s) // once, like a real runtime
		}
	}()
	if _, err := n.host.Script(ctx, `ip netns add "$1" && ip -n "$1" link set lo up`, s.name); err != nil {
		return nil, err
	}
	if err := n.add(ctx, s); err != nil {
		return nil, err
	}
	if err := s.serve(pod); err != nil {
		return nil, err
	}
	done = true
	return s, nil
}

// add calls the plugins' ADD and keeps the addresses of its result.
func (n *network) add(ctx context.Context, s *Sandbox) error {
	result, err := n.cni.AddNetworkList(ctx, s.config, s.runtime)
	if err != nil {
		return err
	}
	latest, err := current.NewResultFromResult(result)
	if err != nil {
		return err
	}
	for _, ip := range latest.IPs {
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return fmt.Errorf("bad address %v in the result of %s", ip.Address, s.config.Name)
		}
		s.Addresses = append(s.Addresses, addr.Unmap())
	}
	return nil
}

// tearDown calls the plugins' DEL and removes the namespace.
func (n *network) tearDown(ctx context.Context, s *Sandbox) error {
	if s.close != nil {
		s.close()
	}
	if s.name == "" {
		return nil
	}
	if err := n.cni.DelNetworkList(ctx, s.config, s.runtime); err != nil {
		return err
	}
	_, err := n.host.Script(ctx, `[ ! -e "/var/run/netns/$1" ] || ip netns del "$1"`, s.name)
	return err
}

// collect calls the plugins' GC with the existing sandboxes.
func (n *network) collect(ctx context.Context, sandboxes map[types.NamespacedName]*Sandbox) error {
	config, err := n.config()
	if errors.Is(err, errNoConfig) {
		return nil
	}
	if err != nil {
		return err
	}
	var valid []cnitypes.GCAttachment
	for _, s := range sandboxes {
		if s.name != "" {
			valid = append(valid, cnitypes.GCAttachment{ContainerID: s.ID, IfName: s.runtime.IfName})
		}
	}
	return n.cni.GCNetworkList(ctx, config, &libcni.GCArgs{ValidAttachments: valid})
}

// serve starts a server on the pod's container ports.
func (s *Sandbox) serve(pod *corev1.Pod) error {
	var ports []int
	for _, c := range pod.Spec.Containers {
		for _, p := range c.Ports {
			ports = append(ports, int(p.ContainerPort))
		}
	}
	if len(ports) == 0 {
		ports = []int{DefaultPort}
	}
	slices.Sort(ports)
	server, err := probe.Serve(s.Netns, pod.Namespace+"/"+pod.Name, slices.Compact(ports)...)
	if err != nil {
		return err
	}
	s.close = sync.OnceFunc(server.Close)
	return nil
}

// An executor runs plugins in a host. It implements libcni's invoke.Exec.
type executor struct{ host *host.Host }

// ExecPlugin runs a plugin with stdin and the CNI_ variables of environ.
func (e executor) ExecPlugin(ctx context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	cmd := e.host.Command(path)
	cmd.Stdin = strings.NewReader(string(stdin))
	for _, v := range environ {
		if strings.HasPrefix(v, "CNI_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	stdout, stderr, err := host.RunCommand(ctx, cmd)
	if err == nil {
		return []byte(stdout), nil
	}
	var said cnitypes.Error
	if stdout == "" || json.Unmarshal([]byte(stdout), &said) != nil {
		return nil, err
	}
	if said.Details == "" {
		said.Details = strings.TrimSpace(stderr)
	}
	return nil, &said
}

// FindInPath finds a plugin in the host. It does not resolve symbolic links.
func (e executor) FindInPath(plugin string, dirs []string) (string, error) {
	for _, dir := range dirs {
		file := filepath.Join(dir, plugin)
		if _, err := os.Lstat(e.host.Path(file)); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("no plugin %s in %v", plugin, dirs)
}

// Decode reads a plugin's answer to VERSION.
func (e executor) Decode(text []byte) (version.PluginInfo, error) {
	return new(version.PluginDecoder).Decode(text)
}
