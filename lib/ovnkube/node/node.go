// Package node is the node role of ovnkube: it keeps this host as its Node's subnets and the options say, and takes it
// back.
//
// A pass compares the host with what it should be, in this order: settings of ovn-controller; moved NICs after a reboot;
// management port; gateway; the claim in annotations of the Node; the CNI configuration, once the CNI server is ready. What
// each step wants is computed by the pure core and by the plans of lib/overlay; a step without a difference writes nothing.
// Changes of the Node, of Open vSwitch's database and of the kernel cause a pass, and so does a timer. The role never
// connects to the Northbound database.
package node

import (
	"context"
	"strings"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/gateway"
	"ovn-k8s/lib/kube"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/settings"
)

// Program is the name in requests to the API server and in Events.
const Program = "ovnkube"

// A Server serves CNI requests until ctx ends. It calls ready once it does.
type Server func(ctx context.Context, s settings.Session, cluster *kube.Cluster, ready func()) error

// Options configure a Node.
type Options struct {
	// Name is the node's name in Kubernetes, in upper or lower case.
	Name string
	// Flags are the settings of the command line, with config-file.
	Flags map[string]string
	// Server is the CNI server. Without it, the host gets no CNI configuration.
	Server Server
	// Log returns the log of a module. nil is silent.
	Log func(module string) *logrus.Entry
	// Informers shares them with other roles of the process, see kube.Share. nil: the role has its own.
	Informers kube.Sharing
	// Status receives the state of the host in one line. It may be nil.
	Status func(text string)
}

// A Node is the node role of a process.
type Node struct{ Options }

// name is the name of the Node: Kubernetes has only names in lower case.
func (n *Node) name() string { return strings.ToLower(n.Name) }

func (n *Node) log() *logrus.Entry { return settings.Log(n.Log, "node") }

// Role is the node's part of the process. Its settings must be those of options.Config.
func (n *Node) Role() settings.Role {
	return settings.Role{Log: n.log(), Reader: options.Node, NeedsSwitch: true, Serve: n.serve}
}

// Helper returns the gateway helper for the node's host. It serves the shared bridge of this role, and its Role follows
// the settings of this one.
func (n *Node) Helper() *gateway.Helper {
	return &gateway.Helper{Options: gateway.Options{
		Flags: n.Flags, Node: n.name(), Log: n.Log, Informers: n.Informers,
		Closed: func(c config.Config) bool { return !options.Of(c).Gateway.NodePort },
	}}
}

// HelperRole is the role of a helper from Helper.
func HelperRole(h *gateway.Helper) settings.Role {
	r := h.Role()
	r.Reader, r.Part = options.Node, "gateway"
	return r
}

// serve keeps the host with one configuration until ctx ends.
func (n *Node) serve(ctx context.Context, s settings.Session, ready func()) error {
	cluster, err := n.connect(s)
	if err != nil {
		return err
	}
	defer cluster.Close()
	return newEngine(n, s, cluster).run(ctx, ready)
}

// connect prepares for the API server.
func (n *Node) connect(s settings.Session) (*kube.Cluster, error) {
	server, err := kube.Connect(s.Config, s.Token, Program)
	if err != nil {
		return nil, settings.Wrong(err)
	}
	return kube.NewCluster(server, Program, n.Informers)
}
