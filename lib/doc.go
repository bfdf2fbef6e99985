// Package lib has no code of its own: it is the map of the packages below it. docs/architecture.md describes how they
// work together, lib/layers_test.go has the rules for imports.
//
// Layer 0, the vocabulary: values and pure functions.
//
//	lib/names              every name and key written into OVN, OVS and Kubernetes
//	lib/ipnet              address arithmetic: a node's addresses, a MAC from an IP, overlaps
//	lib/nb                 desired rows of the Northbound database as values: Row, Ref, Unit
//	lib/nb/nbdb            the tables of the Northbound database, generated from its schema
//	lib/flow               OpenFlow flows as values, and in the text of ovs-ofctl
//	lib/ruleset            objects of a table of nftables, as values
//	lib/config             every setting, and the one pure function to resolve them
//	lib/platform           distributions of Linux and Kubernetes: packages, units, network managers, directories
//
// Layer 1, the pure core: the desired state as a function of Kubernetes' objects.
//
//	lib/desired            World: the latest version of every object, and the rows computed from them; Services, policies
//	lib/desired/facts      the facts about the network that features share: addresses of nodes, hosts, gateways that are down
//	lib/desired/kind       the shape of a kind of objects: functions to record and to forget them
//	lib/desired/feature    the shape of a feature: its kinds of units and objects, and the changes that it looks at
//	lib/desired/infrastructure rows of the cluster, nodes and gateways, which follow from the facts alone
//	lib/desired/topology   cluster router, join switch, node switches and management ports as rows
//	lib/desired/acl        ACLs as rows, and the expressions that match packets
//	lib/desired/guard      rows against spoofing: packets that no pod, or no host in its name, may send
//	lib/desired/policy     NetworkPolicies as port groups and ACLs, and explanations of them
//	lib/desired/membership decides how nodes and gateways join and leave the cluster
//	lib/desired/nodesubnet gives each node its subnets, from ranges of the cluster
//	lib/desired/hostids    the keys of external_ids that a program sets on its host, and their former values
//	lib/desired/nodes      numbers nodes: the record of the topology and annotations, from Nodes and the record as it is
//	lib/desired/nodeclaim  the chassis and the gateway of a node's host, as annotations of its Node
//	lib/desired/hostgateway the interface, addresses and next hops with which a host is a gateway
//	lib/desired/pod        pods: their addresses, their logical ports as rows
//	lib/desired/pod/annotation the annotation of a pod with its addresses
//	lib/desired/service    Services: their frontends, and the endpoints behind each
//	lib/desired/memo       values kept for a list of keys, so that after a change only new ones are computed
//	lib/desired/loadbalancer a Service's frontends as rows: load balancers, template variables, source ranges
//	lib/desired/replyroute routes for replies of endpoints to clients outside
//	lib/desired/servicecidr the subnets of Services, and the rows that reject packets to unused addresses there
//	lib/desired/ports      the users of ports of addresses: Services at their frontends, pods at their hostPorts
//	lib/desired/answer     the gateway that answers ARP and neighbor solicitations for an address
//	lib/desired/hostport   a pod's hostPorts as rows: load balancers, and routes for replies
//	lib/desired/localgateway a host's configuration of a local gateway: addresses, rules
//	lib/desired/nodeport   a host's rules for clients outside of Services, and health checks
//	lib/desired/tracked    the UDP connections in a host's conntrack table that are stale
//	lib/desired/bridgeflows the flows of a bridge shared by a host and its gateway router
//
// Layer 2, the engine: it brings the actual state to the desired one.
//
//	lib/reconcile          Loop: events in, batches of dirty units out, retries; Paced: work for many events
//	lib/defect             turns a panic into an error: it ends one request, not the program
//	lib/nbsync             compares rows with the Northbound database and writes one transaction
//	lib/nbsync/owned       the columns and keys of each table that nbsync writes, compared by value
//	lib/flowsync           compares flows with a switch's and writes one bundle
//
// Layer 3, the edges: each wraps one part of the outside world, and none knows another.
//
//	lib/kube               the API server: informers, annotations, Events, the Lease, the ConfigMap
//	lib/kube/client        the API server for one-shot programs: connection, and waiting for one pod
//	lib/kube/kubeconfig    the API server as a kubeconfig file says
//	lib/ovsdb              OVSDB servers: connect (unix, tcp, ssl), follow, reconnect, transact
//	lib/ovsdb/jsonrpc      the messages of an OVSDB server: rows and transactions, encoded and decoded
//	lib/ovsdb/dbserver     the connection and the certificate of an OVN database's server
//	lib/ovsdb/southbound   the Southbound database: hosts, logical ports, addresses that routers answer for
//	lib/ovsdb/vswitch      the local Open vSwitch: bridges, ports, external_ids, ovn-installed
//	lib/ovsdb/vswitch/confdb the database of the local Open vSwitch: find rows, plan changes, commit, wait
//	lib/ovsdb/vswitch/flowrestore has a starting ovs-vswitchd keep the kernel's flows
//	lib/ovsdb/vswitch/ovncontroller settings of the host's ovn-controller in that database
//	lib/ovsdb/vswitchdb    the tables of the local Open vSwitch, generated from its schema
//	lib/ovsdb/sbdb         the tables of the Southbound database, generated from its schema
//	lib/link               network interfaces by netlink: veth pairs, addresses, routes, namespaces
//	lib/link/defaultroute the default routes of the host: read and follow
//	lib/link/aged          the addresses of the host, the oldest ones first
//	lib/link/notify        changes of the packet filter, routing rules and sysctls
//	lib/link/tracking      the limits of the kernel's connection tracking
//	lib/link/ifstate       saved state of an interface: addresses, routes, rules, neighbours
//	lib/nftables           our table of nftables, made equal to a value
//	lib/nftables/element   elements of sets and maps, as the kernel has them
//	lib/nftables/foreign   tables of others that drop packets of pods
//	lib/nftables/hold      connections kept while another program flushes all rules
//	lib/nftables/usable    whether the kernel knows what our rules use
//	lib/iptables           chains of ours in the host's packet filter, made equal to lists of rules
//	lib/garp               neighbours by frames: gratuitous ARP, unsolicited advertisements, solicitations
//	lib/prober             probes of hosts by TCP, and the ICMP errors of firewalls
//	lib/ofctl              flows of a bridge by ovs-ofctl; its ovs-vswitchd coming and going
//	lib/cli                a command line: options, commands, --help, error lines, exit status
//	lib/daemon             functions of OVS daemons: pidfile, --detach, --monitor, the control socket
//	lib/vlog               logs in the format of OVS: line format, -v, --log-file, vlog/set
//
// Layer 4, the programs: each combines packages of the layers below.
//
//	lib/settings           gathers flags, external_ids, file and environment for lib/config; runs roles with them
//	lib/firewall           the rules of a host, in nftables or in iptables
//	lib/overlay            ovn-k8s-overlay: master-init, minion-init, node-remove, gateway-init, gateway-remove
//	lib/overlay/store      the topology in the Northbound database: read, preview, one transaction
//	lib/overlay/host       the Open vSwitch of a command's host, and the configuration
//	lib/overlay/node       the host of a node: management port, routes, guards, CNI
//	lib/overlay/uplink     the host of a gateway: a NIC, a shared bridge, or the host's routing
//	lib/overlay/progress   messages of a command to people and systemd: warnings, slow stages, a dry run
//	lib/overlay/files      atomic changes of a host's files, and their dry run
//	lib/overlay/boot       the management port in the host's own network configuration
//	lib/overlay/cnisetup   the CNI plugin and its configuration, where container runtimes look
//	lib/watcher            ovn-k8s-watcher: Kubernetes to Northbound, all the time
//	lib/watcher/health     reports about the hosts of gateways: probes, chassis, declarations; and changes of gateways
//	lib/watcher/annotations writes the annotations of pods, concurrently
//	lib/watcher/candidate  says whether a watcher may have the Lease: the connection to the Northbound database
//	lib/watcher/core       lib/desired as the World of the engine
//	lib/watcher/garbage    sets the garbage collector, for memory and for a fast start
//	lib/watcher/identity   tells processes that want the Lease apart
//	lib/watcher/failures   reports failures of units once, in the log and as Events
//	lib/watcher/otherlease waits for a leader with the Lease of another namespace
//	lib/watcher/permission decides which units may be written, by the Lease and the objects read
//	lib/watcher/records    records and rows of the commands and of an earlier watcher in the Northbound database
//	lib/watcher/registry   the copy of the topology in a ConfigMap
//	lib/watcher/pace       the time between transactions in a burst
//	lib/watcher/parts      writes new load balancers in parts, at the pace of ovn-northd
//	lib/watcher/south      follows the Southbound database
//	lib/watcher/show       the state of the network for ovs-appctl
//	lib/gateway            ovn-k8s-gateway-helper: connections to Services from outside of pods
//	lib/gateway/objects    Services, pods with hostPorts, addresses of nodes: what a node's flows and rules are made from
//	lib/gateway/announce   tells LANs the addresses of gateways, and asks next hops for their MACs
//	lib/gateway/declare    gateways of this host that cannot forward packets
//	lib/gateway/checks     conditions of a host that drop packets: MTUs, firewalls, kube-proxy, offloads
//	lib/gateway/connections deletes tracked UDP connections to endpoints that are gone
//	lib/gateway/conflicts  reports problems of Services on a node: busy ports, reserved addresses
//	lib/gateway/routes     the host's routes to ServiceCIDRs
//	lib/gateway/localend   the host's end of a local gateway
//	lib/gateway/healthcheck answers health checks of load balancers
//	lib/gateway/ovnwait    keeps connections during a restart of ovs-vswitchd: the kernel's flows, then ovn-controller's at once
//	lib/cni                ovn-k8s-cni-overlay: a pod's interface
//	lib/cni/protocol       calls of CNI plugins, and requests to the CNI server
//	lib/cni/shim           ovn-k8s-cni-shim: hands the calls of a container runtime to the CNI server
//	lib/nicbridge          ovn-k8s-util: moves the network configuration of a NIC to a bridge and back
//	lib/nicbridge/managers configurations of a bridge for ifupdown, netplan and other network managers, as text
//	lib/nicbridge/witness  the hosts that answer before a move, asked again after it
//	lib/nicbridge/lease    DHCP leases of a bridge that no client renews
//	lib/ovnkube            ovnkube: several roles in one process
//	lib/ovnkube/cniserver  the CNI server: the work of ovn-k8s-cni-overlay in a daemon
//	lib/ovnkube/node       the node role of ovnkube: management port, gateway, CNI configuration; and its clean-up
//	lib/ovnkube/master     the master: a watcher that gives nodes their subnets
//	lib/ovnkube/report     what lib/nicbridge prints, as lines of the log
//	lib/ovnkube/options    the options of ovnkube: every option, key and variable, and which values are wrong
//
// Layer 5, the mains: the directories ovn-k8s-* and ovnkube beside lib, one screen each.
package lib
