package platform

import "slices"

// A Kubernetes is a distribution of Kubernetes.
type Kubernetes struct {
	Name string
	// ConfDir and BinDir are the directories in which its container runtime looks for CNI configurations and plugins.
	ConfDir, BinDir string
	// Socket is that of the container runtime.
	Socket string
	// WithoutCNI and WithoutProxy leave its CNI plugin and kube-proxy out: options, commands, or settings of its configuration.
	// A text in parentheses says why there are none.
	WithoutCNI, WithoutProxy string
	// Units are the units of systemd that start pods.
	Units []string
	// ServiceCIDR is the subnet of Services unless configured. CA is the certificate of the API server's CA on its host.
	ServiceCIDR, CA string
}

// Kubeadm is Kubernetes by kubeadm, with the directories of the CNI project.
var Kubeadm = Kubernetes{
	Name: "kubeadm", ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Socket: "/run/containerd/containerd.sock",
	WithoutCNI: "(has none)", WithoutProxy: "kubeadm init --skip-phases=addon/kube-proxy",
	ServiceCIDR: "10.96.0.0/12", CA: "/etc/kubernetes/pki/ca.crt", Units: []string{"kubelet.service"},
}

var kubernetes = []Kubernetes{
	Kubeadm,
	{
		Name: "k3s", ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Socket: "/run/k3s/containerd/containerd.sock", // it has directories of its own only with flannel
		WithoutCNI: "--flannel-backend=none --disable-network-policy", WithoutProxy: "--disable-kube-proxy",
		ServiceCIDR: "10.43.0.0/16", CA: "/var/lib/rancher/k3s/server/tls/server-ca.crt", Units: []string{"k3s.service", "k3s-agent.service"},
	},
	{
		Name: "RKE2", ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Socket: "/run/k3s/containerd/containerd.sock",
		WithoutCNI: "cni: none", WithoutProxy: "disable-kube-proxy: true",
		ServiceCIDR: "10.43.0.0/16", CA: "/var/lib/rancher/rke2/server/tls/server-ca.crt", Units: []string{"rke2-server.service", "rke2-agent.service"},
	},
	{
		Name: "microk8s", ConfDir: "/var/snap/microk8s/current/args/cni-network", BinDir: "/var/snap/microk8s/current/opt/cni/bin",
		Socket:     "/var/snap/microk8s/common/run/containerd.sock",
		WithoutCNI: "microk8s kubectl delete -f /var/snap/microk8s/current/args/cni-network/cni.yaml", WithoutProxy: "(not possible)",
		ServiceCIDR: "10.152.183.0/24", CA: "/var/snap/microk8s/current/certs/ca.crt", Units: []string{"snap.microk8s.daemon-kubelite.service"},
	},
	{
		Name: "Talos", ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Socket: "/run/containerd/containerd.sock",
		WithoutCNI: "cluster.network.cni.name: none", WithoutProxy: "cluster.proxy.disabled: true",
		ServiceCIDR: "10.96.0.0/12", CA: "(in talosctl kubeconfig)", Units: []string{"(no systemd)"},
	},
	{
		Name: "kind", ConfDir: "/etc/cni/net.d", BinDir: "/opt/cni/bin", Socket: "/run/containerd/containerd.sock",
		WithoutCNI: "networking.disableDefaultCNI: true", WithoutProxy: "networking.kubeProxyMode: none",
		ServiceCIDR: "10.96.0.0/16", CA: "/etc/kubernetes/pki/ca.crt", Units: []string{"kubelet.service"},
	},
}

// Clusters lists the distributions of Kubernetes.
func Clusters() []Kubernetes { return slices.Clone(kubernetes) }
