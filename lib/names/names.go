// Package names holds the name of every object and key written into OVN, Open vSwitch and Kubernetes.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Names of cluster-wide objects.
const (
	// ClusterRouter is the distributed router. It joins all node switches.
	ClusterRouter = "ovn_cluster_router"
	// JoinSwitch connects the cluster router and the gateway routers.
	JoinSwitch = "join"
	// PartsSet is the Address_Set with a mark of the last new load balancers, see package parts of the watcher.
	PartsSet = "ovn_k8s_parts"
	// LoadBalancerGroup is the Load_Balancer_Group of every node switch.
	LoadBalancerGroup = "ovn-k8s-cluster"
	// SwitchLoadBalancerGroup is the Load_Balancer_Group of node switches only.
	SwitchLoadBalancerGroup = "ovn-k8s-switches"
	// GatewayLoadBalancerGroup is the Load_Balancer_Group of every gateway router.
	GatewayLoadBalancerGroup = "ovn-k8s-gateways"
	// EntryPortGroup is the Port_Group of the router-facing ports of node and gateway switches. Its ACLs apply to all
	// of these switches.
	EntryPortGroup = "ovn_k8s_entries"
	// ACLMeter is the Meter of the log lines of ACLs.
	ACLMeter = "ovn-k8s-acl-logging"
	// AfterLB is an option of ACLs: the ACL sees packets after load balancing.
	AfterLB = "apply-after-lb"
	// LocalBridge connects a host with its gateway in local mode.
	LocalBridge = "br-local"
	// IntegrationBridge is the bridge that ovn-controller programs.
	IntegrationBridge = "br-int"
)

// VariablePrefix starts the names of our variables in Chassis_Template_Var.
const VariablePrefix = "ovn_k8s_"

// MTUOption in ovn-cms-options of a chassis: the largest packet its tunnels carry. See config.Tunnel.Report.
const MTUOption = "ovn-k8s-mtu"

// PodMTUOption in ovn-cms-options of a chassis: the number of its pods with a larger MTU than ovn-k8s-mtu.
const PodMTUOption = "ovn-k8s-larger-pods"

// GatewayDownOption in ovn-cms-options of a chassis: it cannot forward packets of its gateways. The value lists the
// modes of these gateways; see JoinModes.
const GatewayDownOption = "ovn-k8s-gateway-down"

// FirewallOption in ovn-cms-options of a chassis: its nftables rules drop packets of pods. The value lists the base
// chains as FAMILY/TABLE/CHAIN, joined by +.
const FirewallOption = "ovn-k8s-firewall-drops"

// Gateway modes with forwarding by flows or rules of the host.
const (
	BridgeMode = "bridge" // see topology.Bridge
	LocalMode  = "local"  // see topology.Local
)

// JoinModes formats gateway modes as the value of GatewayDownOption.
func JoinModes(modes []string) string { return strings.Join(modes, "/") }

// SplitModes is the inverse of JoinModes.
func SplitModes(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == '/' })
}

// Keys of external_ids in the Northbound database.
const (
	// Owner is the unit owning a row, as in "pod/default/web-0". Rows without it are not ours.
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
	RunningIPs       = "ovn-k8s-pod-ips"    // Logical_Switch_Port of a running pod whose addresses differ from the port's: the pod's
	NextAddress      = "ovn-k8s-next"       // Logical_Switch_Port of a node's management port: the next address to allocate

	// Selector describes the pods of a Port_Group, for people.
	Selector = "ovn-k8s-selector"

	PhysicalIP        = "physical_ip"         // Logical_Router of a gateway: its first external address
	FirstGateway      = "first_gateway"       // Logical_Router of a gateway: "yes" on one of them, "no" on the others
	GatewayPhysicalIP = "gateway-physical-ip" // Logical_Router_Port of a gateway to the external network: "yes"

	// ClusterSubnets, JoinSubnets, NodePrefix, ChassisPrefix, GatewayPrefix and SubnetLengths record the topology on the
	// cluster router, as given to the one-shot commands. ClusterSubnets is also on br-int's patch port to a shared bridge.
	ClusterSubnets = "ovn-k8s-cluster-subnets"
	// NodeSubnets on the management port of br-int records the subnets with which this host joined the cluster:
	// "NODE'S in CLUSTER'S". JoinSubnets is there, too.
	NodeSubnets   = "ovn-k8s-node-subnets"
	JoinSubnets   = "ovn-k8s-join-subnets"
	NodePrefix    = "ovn-k8s-node-"    // + node: its subnets
	ChassisPrefix = "ovn-k8s-chassis-" // + node: the system-id of its host
	GatewayPrefix = "ovn-k8s-gateway-" // + gateway: JSON
	// SubnetLengths records the prefix lengths of the nodes' subnets: see topology.Cluster.Lengths.
	SubnetLengths = "ovn-k8s-subnet-lengths"
	// NumberedBy on the cluster router is the program that gives nodes their subnets, Ovnkube. Without it the arguments
	// of the one-shot commands do.
	NumberedBy = "ovn-k8s-numbered-by"
	Ovnkube    = "ovnkube"
	// NextSubnets on the cluster router is where that program goes on giving subnets: the next one of each range.
	NextSubnets = "ovn-k8s-next-subnets"
	// Kept + column is the value that an adopted row keeps in that column: see nb.Row.Keeps.
	Kept = "ovn-k8s-kept-"
	// KubernetesUID on the cluster router identifies the Kubernetes cluster of this database: the UID of the
	// namespace kube-system.
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
	// NICOffloads in external_ids of a bridge: the offloads of its NIC turned off by ovn-k8s-util, and to be turned
	// on again when the NIC leaves the bridge.
	NICOffloads = "ovn-k8s-nic-offloads"
	// QoSPort in external_ids of a QoS row: the pod port limited by it.
	QoSPort = "ovn-k8s-port"
	// MovedBy in external_ids of a bridge: the program that has moved the NIC there by itself, and moves it back.
	MovedBy = "ovn-k8s-moved-by"
	// GatewayTag in external_ids of an Interface or Bridge: the gateway it was configured for.
	GatewayTag = "ovn-k8s-gateway"
	// HelperPatch in external_ids of a patch port: "true" if the gateway helper created it. gateway-init adds
	// GatewayTag when it takes the port over.
	HelperPatch = "ovn-k8s-helper-patch"
	// GatewayIPs in external_ids of br-int's patch port to a shared bridge: the external addresses of the gateway
	// router.
	GatewayIPs = "ovn-k8s-gateway-ips"
	// NextHops in external_ids of br-int's port to a NIC or a shared bridge: the next hops of the gateway router. The
	// gateway helper asks them for their MACs.
	NextHops = "ovn-k8s-gateway-next-hops"
	// FormerNIC of a gateway's NIC: its configuration before it was given to OVN.
	FormerNIC = "ovn-k8s-former"
	// FormerIDs in external_ids of Open_vSwitch: the keys that ovnkube has set there, as JSON with their former values.
	FormerIDs = "ovn-k8s-former-ids"
	// CNIFiles in external_ids of Open_vSwitch: the files of ovnkube for container runtimes, with colons, of present and
	// former settings, unless they are all the usual ones.
	CNIFiles = "ovn-k8s-cni-files"
	// SuspendedWait in external_ids of Open_vSwitch: the value of ovn-ofctrl-wait-before-clear while that is 0, and for some
	// seconds more.
	SuspendedWait = "ovn-k8s-wait-before-clear"
	// HeldFlows in external_ids of Open_vSwitch: "true" while other_config:flow-restore-wait is the gateway helper's.
	HeldFlows = "ovn-k8s-flow-restore-wait"
	// CTZone in external_ids of a CT_Zone: ovn-controller's name of the zone, if the gateway helper set its timeouts.
	CTZone = "ovn-k8s-ct-zone"
	// PinnedBy in external_ids of a Bridge: the gateway that pinned its MAC.
	PinnedBy = "ovn-k8s-hwaddr"
)

// UserspaceDatapath is the datapath_type of a bridge in user space: see ovs-vswitchd.conf.db(5), table Bridge.
const UserspaceDatapath = "netdev"

// IsHostRecord reports whether a key in external_ids of Open_vSwitch is a program's note, and no setting.
func IsHostRecord(key string) bool {
	return key == FormerIDs || key == CNIFiles || key == SuspendedWait || key == HeldFlows
}

// Kubernetes names.
const (
	// Annotation of a pod: its addresses, as JSON with the members ip_address, mac_address and gateway_ip.
	Annotation = "ovn"
	// AnnotationUID of a pod: the UID of the pod for which Annotation was written. An annotation copied from another
	// pod's YAML has another UID.
	AnnotationUID = "ovn-pod-uid"
	// IngressBandwidth and EgressBandwidth of a pod limit the traffic to it and from it, in bits per second, as in "10M".
	// https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/network-plugins/#support-traffic-shaping
	IngressBandwidth = "kubernetes.io/ingress-bandwidth"
	EgressBandwidth  = "kubernetes.io/egress-bandwidth"
	// HostSubnetAnnotation and SubnetsAnnotation of a Node: its subnets, with a comma between those of two families, and
	// as JSON.
	HostSubnetAnnotation = "ovn_host_subnet"
	SubnetsAnnotation    = "k8s.ovn.org/node-subnets"
	// ChassisAnnotation and GatewayAnnotation of a Node are written by its host: its system-id, and its gateway as JSON.
	ChassisAnnotation = "k8s.ovn.org/node-chassis-id"
	GatewayAnnotation = "k8s.ovn.org/l3-gateway-config"
	// ACLLogging of a namespace enables logging for its policies: a JSON object with the severities for allowed and
	// denied packets.
	ACLLogging = "k8s.ovn.org/acl-logging"
	// LabelControlPlane on a Node marks a control plane host. Kubelets may not set it.
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	// TaintToBeDeleted on a Node announces that the cluster autoscaler is about to delete it.
	TaintToBeDeleted = "ToBeDeletedByClusterAutoscaler"
	// LabelServiceProxy on a Service names another proxy, responsible for it instead of this one. LabelHeadless
	// exempts a Service from all proxies.
	LabelServiceProxy = "service.kubernetes.io/service-proxy-name"
	LabelHeadless     = "service.kubernetes.io/headless"
	// ConfigNamespace is the default namespace of the suite's own Kubernetes objects, a setting.
	ConfigNamespace = "kube-system"
	// TopologyConfigMap holds a copy of the topology. The watcher restores an emptied Northbound database from it.
	TopologyConfigMap = "ovn-k8s-topology"
	// LostPrefix precedes keys of the topology in that ConfigMap: nodes and gateways that a database from a backup lacks, and
	// texts of a copy that could not be read.
	LostPrefix = "lost-"
	// WatcherLease elects the active watcher.
	WatcherLease = "ovn-k8s-watcher"
)

// NodeSwitch is the logical switch of a node: the node's name in lower case, as in Kubernetes.
func NodeSwitch(node string) string { return strings.ToLower(node) }

// RouterToSwitch is the cluster router's port to a node's switch.
func RouterToSwitch(node string) string { return "rtos-" + NodeSwitch(node) }

// SwitchToRouter is the port of a node's switch to the cluster router.
func SwitchToRouter(node string) string { return "stor-" + NodeSwitch(node) }

// RouterToJoin is a router's port to the join switch.
func RouterToJoin(router string) string { return "rtoj-" + router }

// GatewayOfJoin is the gateway with a router's port to the join switch. It reports false for other ports.
func GatewayOfJoin(port string) (gateway string, ok bool) {
	return strings.CutPrefix(port, RouterToJoin(GatewayRouter("")))
}

// JoinToRouter is the join switch's port to a router.
func JoinToRouter(router string) string { return "jtor-" + router }

// GatewayRouter is the router of a gateway. Unlike NodeSwitch it keeps the case of the name.
func GatewayRouter(gateway string) string { return "GR_" + gateway }

// ExternalSwitch connects a gateway's router to its NIC.
func ExternalSwitch(gateway string) string { return "ext_" + gateway }

// TrunkSwitch holds the logical port of the NIC of a gateway with a VLAN.
func TrunkSwitch(gateway string) string { return "trunk_" + gateway }

// RouterToExternal is a gateway router's port to the external switch.
func RouterToExternal(gateway string) string { return "rtoe-" + GatewayRouter(gateway) }

// ExternalToRouter is the external switch's port to the gateway router.
func ExternalToRouter(gateway string) string { return "etor-" + GatewayRouter(gateway) }

// BetweenRouters reports whether a name begins as that of a port between a gateway's router and a switch. Names of other ports
// of ours between routers and switches have no underscore.
func BetweenRouters(port string) bool {
	router := GatewayRouter("")
	for _, start := range []string{RouterToJoin(router), JoinToRouter(router), RouterToExternal(""), ExternalToRouter("")} {
		if strings.HasPrefix(port, start) {
			return true
		}
	}
	return false
}

// ExternalPort is the logical port of a gateway's NIC or bridge.
func ExternalPort(iface, gateway string) string { return iface + "_" + gateway }

// PatchToIntegration is a bridge's patch port to br-int; its peer is PatchFromIntegration.
func PatchToIntegration(bridge string) string {
	return "k8s-patch-" + bridge + "-" + IntegrationBridge
}

// PatchFromIntegration is br-int's patch port to a bridge.
func PatchFromIntegration(bridge string) string {
	return "k8s-patch-" + IntegrationBridge + "-" + bridge
}

// ManagementPort is the logical port through which a node reaches its pods.
func ManagementPort(node string) string { return "k8s-" + NodeSwitch(node) }

// ManagementInterface is the network interface of a node's management port: "k8s-" and the first 11 characters of the
// node's name, the length limit of IFNAMSIZ.
func ManagementInterface(node string) string {
	n := ManagementPort(node)
	return n[:min(len(n), 15)]
}

// UniqueManagementInterface replaces ManagementInterface if another node on the same host has taken the name.
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

// PodOfPort is the inverse of PodPort. It returns false if port is not the port of a pod. Namespaces have no
// underscore in their names.
func PodOfPort(port string) (namespace, pod string, ok bool) { return strings.Cut(port, "_") }

// HostVeth is the host end of a container's veth pair: the first 15 characters of the container ID.
func HostVeth(containerID string) string { return containerID[:min(len(containerID), 15)] }

// UniqueHostVeth replaces HostVeth if another container has taken the name.
func UniqueHostVeth(containerID string) string {
	sum := sha256.Sum256([]byte(containerID))
	return "ovn" + hex.EncodeToString(sum[:])[:12]
}

// HostVethGroup is the interface group of the host ends of our veth pairs, as in "ip link show group 28526". The kernel sets
// it at creation, so that even a pair left by a killed process is known to be ours.
const HostVethGroup = 0x6f6e // "on"

// aliasMark starts the alias of our interfaces on the host.
const aliasMark = "ovn-k8s"

// HostVethAlias is stored on the host end of a veth pair. It identifies the interface of a container while the database is down
// or has no port yet.
func HostVethAlias(network, container, ifname string) string {
	return strings.Join([]string{aliasMark, network, container, ifname}, " ")
}

// ParseHostVethAlias is the inverse of HostVethAlias. It returns false if the alias is not ours, as after an ADD killed before
// it had set the alias.
func ParseHostVethAlias(alias string) (network, container, ifname string, ok bool) {
	f := strings.Split(alias, " ")
	if len(f) != 4 || f[0] != aliasMark {
		return "", "", "", false
	}
	return f[1], f[2], f[3], true
}
