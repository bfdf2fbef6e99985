// Package names holds every name and key that the suite writes into OVN, Open
// vSwitch and Kubernetes, so that each is spelled in one place.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Names of the cluster's own objects.
const (
	// ClusterRouter is the distributed router that joins all node switches.
	ClusterRouter = "ovn_cluster_router"
	// JoinSwitch connects the cluster router and the gateway routers.
	JoinSwitch = "join"
	// LoadBalancerGroup is the Load_Balancer_Group of every node switch.
	LoadBalancerGroup = "ovn-k8s-cluster"
	// SwitchLoadBalancerGroup is the Load_Balancer_Group of every node switch, and
	// of nothing else.
	SwitchLoadBalancerGroup = "ovn-k8s-switches"
	// GatewayLoadBalancerGroup is the Load_Balancer_Group of every gateway router.
	GatewayLoadBalancerGroup = "ovn-k8s-gateways"
	// EntryPortGroup is the Port_Group of the ports by which routers are connected
	// with node switches and with the switches of gateways: an ACL in it is on all
	// of these switches.
	EntryPortGroup = "ovn_k8s_entries"
	// ACLMeter is the Meter of the log lines of ACLs.
	ACLMeter = "ovn-k8s-acl-logging"
	// AfterLB in options of an ACL: it sees packets as load balancers sent them on.
	AfterLB = "apply-after-lb"
	// LocalBridge connects a host with its gateway of mode local.
	LocalBridge = "br-local"
	// IntegrationBridge is the bridge that ovn-controller programs.
	IntegrationBridge = "br-int"
)

// VariablePrefix starts the names of our variables in Chassis_Template_Var.
const VariablePrefix = "ovn_k8s_"

// MTUOption is the option in ovn-cms-options of a host that says what its tunnels carry: see config.Tunnel.Report.
const MTUOption = "ovn-k8s-mtu"

// GatewayDownOption is the option in ovn-cms-options of a host that cannot forward packets of its gateways. Its value
// lists the modes of these gateways, see JoinModes.
const GatewayDownOption = "ovn-k8s-gateway-down"

// FirewallOption is the option in ovn-cms-options of a host with tables of nftables that drop packets of pods. Its value
// lists their chains: FAMILY/TABLE/CHAIN, with + between.
const FirewallOption = "ovn-k8s-firewall-drops"

// Modes of gateways whose packets this host's own flows or rules forward.
const (
	BridgeMode = "bridge" // see topology.Bridge
	LocalMode  = "local"  // see topology.Local
)

// JoinModes writes modes of gateways as the value of GatewayDownOption.
func JoinModes(modes []string) string { return strings.Join(modes, "/") }

// SplitModes reads what JoinModes wrote.
func SplitModes(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == '/' })
}

// Keys of external_ids in the Northbound database.
const (
	// Owner names the unit that a row belongs to, as in "pod/default/web-0".
	// Rows without it are not ours.
	Owner = "ovn-k8s-owner"
	// ID identifies a row among our rows of its table.
	ID = "ovn-k8s-id"

	ClusterRouterTag = "k8s-cluster-router" // Logical_Router: "yes"
	ConnectToJoin    = "connect_to_join"    // Logical_Router_Port: "yes"
	GatewayIP        = "gateway_ip"         // Logical_Switch: the router's first address with its prefix length
	Namespace        = "namespace"          // Logical_Switch_Port of a pod
	Pod              = "pod"                // Logical_Switch_Port of a pod: "true"
	PodUID           = "ovn-k8s-pod-uid"    // Logical_Switch_Port of a pod
	StaticPod        = "ovn-k8s-static-pod" // Logical_Switch_Port of a static pod: the value of its mirror's annotation
	RunningIPs       = "ovn-k8s-pod-ips"    // Logical_Switch_Port of a pod that runs with other addresses than the port has: these
	NextAddress      = "ovn-k8s-next"       // Logical_Switch_Port of a node's management port: where the watcher goes on handing out addresses

	// Selector of a Port_Group says in words which pods are in it.
	Selector = "ovn-k8s-selector"

	PhysicalIP        = "physical_ip"         // Logical_Router of a gateway: its first address outside
	FirstGateway      = "first_gateway"       // Logical_Router of a gateway: "yes" on one of them, "no" on the others
	GatewayPhysicalIP = "gateway-physical-ip" // Logical_Router_Port of a gateway to the outside: "yes"

	// ClusterSubnets, JoinSubnets, NodePrefix, ChassisPrefix and GatewayPrefix record the
	// topology on the cluster router: what the one-shot commands were asked to
	// build. ClusterSubnets is on the port of br-int that leads to a shared bridge,
	// too.
	ClusterSubnets = "ovn-k8s-cluster-subnets"
	// NodeSubnets records on the management port of br-int, as "NODE'S in CLUSTER'S",
	// for which subnets the cluster accepted this host.
	NodeSubnets   = "ovn-k8s-node-subnets"
	JoinSubnets   = "ovn-k8s-join-subnets"
	NodePrefix    = "ovn-k8s-node-"    // + node: its subnets
	ChassisPrefix = "ovn-k8s-chassis-" // + node: the system-id of its host
	GatewayPrefix = "ovn-k8s-gateway-" // + gateway: JSON
	// KubernetesUID on the cluster router says whose pods the database is for: the
	// UID of the namespace kube-system, which no two clusters share.
	KubernetesUID = "ovn-k8s-kubernetes-uid"
	// Leader in NB_Global is the fencing token of the active watcher.
	Leader = "ovn-k8s-leader"
)

// Keys of external_ids of a pod's Interface in the local Open vSwitch database.
const (
	IfaceID      = "iface-id"      // the logical port
	IfaceIDVer   = "iface-id-ver"  // the pod's UID: ovn-controller binds only if the logical port agrees
	OVNInstalled = "ovn-installed" // written by ovn-controller: "true"
	AttachedMAC  = "attached_mac"
	IPAddress    = "ip_address"
	Sandbox      = "sandbox" // the CNI container ID
	CNINetwork   = "ovn-k8s-network"
	CNIInterface = "ovn-k8s-ifname" // the name inside the pod
	CNINetns     = "ovn-k8s-netns"
	// NICOffloads in external_ids of a bridge are the offloads of its NIC that
	// ovn-k8s-util has switched off, and switches on again when it takes the NIC
	// out.
	NICOffloads = "ovn-k8s-nic-offloads"
	// QoSPort in external_ids of a QoS row says which pod port it limits.
	QoSPort = "ovn-k8s-port"
	// GatewayTag in external_ids of an Interface or Bridge says which gateway has
	// made it what it is.
	GatewayTag = "ovn-k8s-gateway"
	// HelperPatch in external_ids of a patch port says that the gateway helper has made
	// it: "true". gateway-init adds GatewayTag when it takes the port over.
	HelperPatch = "ovn-k8s-helper-patch"
	// GatewayIPs in external_ids of the port of br-int that leads to a shared bridge
	// are the addresses of the gateway's router outside.
	GatewayIPs = "ovn-k8s-gateway-ips"
	// FormerNIC of a gateway's NIC keeps what it had before it became OVN's.
	FormerNIC = "ovn-k8s-former"
	// PinnedBy in external_ids of a Bridge says which gateway has pinned its MAC.
	PinnedBy = "ovn-k8s-hwaddr"
)

// Kubernetes names.
const (
	// Annotation of a pod: its addresses, as JSON with the members
	// ip_address, mac_address and gateway_ip.
	Annotation = "ovn"
	// AnnotationUID of a pod is the UID of the pod that Annotation was written
	// for. It tells an annotation from one that was copied from another pod, with
	// the rest of its YAML.
	AnnotationUID = "ovn-pod-uid"
	// ACLLogging of a namespace asks for log lines of its policies: a JSON object
	// with the severities of what is denied and allowed.
	ACLLogging = "k8s.ovn.org/acl-logging"
	// LabelControlPlane on a Node says that it is a host of the control plane. Kubelets
	// may not set it.
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	// LabelServiceProxy on a Service says that another proxy balances it, and
	// LabelHeadless that nobody does.
	LabelServiceProxy = "service.kubernetes.io/service-proxy-name"
	LabelHeadless     = "service.kubernetes.io/headless"
	// ConfigNamespace holds the suite's own Kubernetes objects.
	ConfigNamespace = "kube-system"
	// TopologyConfigMap keeps a copy of the topology, from which the watcher
	// restores an emptied Northbound database.
	TopologyConfigMap = "ovn-k8s-topology"
	// WatcherLease elects the active watcher.
	WatcherLease = "ovn-k8s-watcher"
)

// NodeSwitch is the logical switch of a node: its name in lower case, as
// Kubernetes spells it.
func NodeSwitch(node string) string { return strings.ToLower(node) }

// RouterToSwitch is the cluster router's port to a node's switch.
func RouterToSwitch(node string) string { return "rtos-" + NodeSwitch(node) }

// SwitchToRouter is the port of a node's switch to the cluster router.
func SwitchToRouter(node string) string { return "stor-" + NodeSwitch(node) }

// RouterToJoin is a router's port to the join switch.
func RouterToJoin(router string) string { return "rtoj-" + router }

// JoinToRouter is the join switch's port to a router.
func JoinToRouter(router string) string { return "jtor-" + router }

// GatewayRouter is the router of a gateway. Unlike a node's switch it keeps the
// case of the name.
func GatewayRouter(gateway string) string { return "GR_" + gateway }

// ExternalSwitch connects a gateway's router to its NIC.
func ExternalSwitch(gateway string) string { return "ext_" + gateway }

// TrunkSwitch has the logical port of a NIC on which a gateway uses a VLAN.
func TrunkSwitch(gateway string) string { return "trunk_" + gateway }

// RouterToExternal is a gateway router's port to the outside.
func RouterToExternal(gateway string) string { return "rtoe-" + GatewayRouter(gateway) }

// ExternalToRouter is the external switch's port to the gateway router.
func ExternalToRouter(gateway string) string { return "etor-" + GatewayRouter(gateway) }

// ExternalPort is the logical port of a gateway's NIC or bridge.
func ExternalPort(iface, gateway string) string { return iface + "_" + gateway }

// PatchToIntegration is the patch port of a bridge that leads to br-int, and
// PatchFromIntegration its peer.
func PatchToIntegration(bridge string) string {
	return "k8s-patch-" + bridge + "-" + IntegrationBridge
}

// PatchFromIntegration is the patch port of br-int that leads to a bridge.
func PatchFromIntegration(bridge string) string {
	return "k8s-patch-" + IntegrationBridge + "-" + bridge
}

// ManagementPort is the logical port through which a node reaches its pods.
func ManagementPort(node string) string { return "k8s-" + NodeSwitch(node) }

// ManagementInterface is the network interface of a node's management port:
// "k8s-" and the first 11 characters of the node's name, so that it fits into
// the 15 characters of IFNAMSIZ.
func ManagementInterface(node string) string {
	n := ManagementPort(node)
	return n[:min(len(n), 15)]
}

// UniqueManagementInterface is used instead of ManagementInterface where that
// name is taken by another node's port on the same host.
func UniqueManagementInterface(node string) string {
	sum := sha256.Sum256([]byte(NodeSwitch(node)))
	return "k8s-" + hex.EncodeToString(sum[:])[:11]
}

// PodPort is a pod's logical port.
func PodPort(namespace, pod string) string { return namespace + "_" + pod }

// LoadBalancer is the name of a load balancer with an ID such as "service/NAMESPACE/NAME/tcp/node4":
// "NAME/tcp/node4@NAMESPACE". ovn-nbctl lb-list cuts names to 16 characters.
func LoadBalancer(id string) string {
	words := strings.SplitN(id, "/", 3)
	if len(words) < 3 {
		return id
	}
	return words[2] + "@" + words[1]
}

// PodOfPort is the inverse of PodPort. It reports false for what cannot be a
// pod's: no namespace has an underscore in its name.
func PodOfPort(port string) (namespace, pod string, ok bool) { return strings.Cut(port, "_") }

// HostVeth is the host's end of the veth pair of a container: the first 15
// characters of its ID.
func HostVeth(containerID string) string { return containerID[:min(len(containerID), 15)] }

// UniqueHostVeth is used instead of HostVeth where that name is taken by another
// container, whose ID begins alike.
func UniqueHostVeth(containerID string) string {
	sum := sha256.Sum256([]byte(containerID))
	return "ovn" + hex.EncodeToString(sum[:])[:12]
}
