// Package lib has no code of its own: it is the map of the packages below it.
// docs/architecture.md tells how they work together, lib/layers_test.go who may
// import whom.
//
// Layer 0, the vocabulary: values and pure functions.
//
//	lib/names              every name and key that the suite writes into OVN, OVS and Kubernetes
//	lib/ipnet              address arithmetic: a node's addresses, a MAC from an IP, what overlaps
//	lib/nb                 what a Northbound row should be, said as a value: Row, Ref, Unit
//	lib/nb/nbdb            the tables of the Northbound database, generated from its schema
//	lib/flow               OpenFlow flows as values, and in the text of ovs-ofctl
//	lib/config             every setting, and the one pure function that resolves them
//
// Layer 1, the pure core: what should exist, as a function of what Kubernetes says.
//
//	lib/desired            World: the latest of every object; which rows follow from it
//	lib/desired/topology   cluster router, join switch, node switches and management ports as rows
//	lib/desired/policy     NetworkPolicies as port groups and ACLs, and what they allow
//	lib/desired/pod        a pod's logical port as a row; its addresses; the pod annotation
//	lib/desired/service    what a Service means: its ways in, and the endpoints behind each
//	lib/desired/answer     which gateway answers ARP and neighbor solicitations for an address
//	lib/desired/hostport   a pod's hostPorts as rows: load balancers, and the way of answers
//	lib/desired/localgateway what a host needs to have a local gateway: addresses, rules
//	lib/desired/nodeport   how a node takes in connections to Services: flows, rules, health checks
//
// Layer 2, the engine: make it so, whatever it is.
//
//	lib/reconcile          Loop: events in, batches of dirty units out, retries
//	lib/nbsync             compares rows with the Northbound database and writes one transaction
//	lib/flowsync           compares flows with those of a switch and writes one bundle
//
// Layer 3, the edges: each wraps one part of the outside world, and none knows another.
//
//	lib/kube               the API server: informers, annotations, Events, the Lease, the ConfigMap
//	lib/kube/client        the API server for one-shot programs: connection, and waiting for one pod
//	lib/ovsdb              OVSDB servers: connect (unix, tcp, ssl), follow, reconnect, transact
//	lib/ovsdb/vswitch      the local Open vSwitch: bridges, ports, external_ids, ovn-installed
//	lib/ovsdb/vswitchdb    the tables of the local Open vSwitch, generated from its schema
//	lib/ovsdb/sbdb         the tables of the Southbound database, generated from its schema
//	lib/link               network interfaces by netlink: veth pairs, addresses, routes, namespaces
//	lib/nftables           tables of nftables that drop packets of pods
//	lib/iptables           chains of ours in the host's packet filter, made equal to lists of rules
//	lib/link/ifstate       saved state of an interface: addresses, routes, rules, neighbours
//	lib/garp               neighbours by frames: gratuitous ARP, unsolicited advertisements, questions
//	lib/prober             which hosts live: TCP probes, and the ICMP errors of firewalls
//	lib/ofctl              flows of a bridge by ovs-ofctl; its ovs-vswitchd coming and going
//	lib/cli                a command line: options, commands, --help, error lines, exit status
//	lib/daemon             what OVS daemons do: pidfile, --detach, --monitor, the control socket
//	lib/vlog               what OVS logs look like: line format, -v, --log-file, vlog/set
//
// Layer 4, the programs: each joins what it needs of the layers below.
//
//	lib/settings           gathers flags, external_ids, file and environment for lib/config
//	lib/overlay            ovn-k8s-overlay: master-init, minion-init, node-remove
//	lib/watcher            ovn-k8s-watcher: Kubernetes to Northbound, all the time
//	lib/gateway            ovn-k8s-gateway-helper: connections to Services that do not come from pods
//	lib/cni                ovn-k8s-cni-overlay: a pod's interface
//	lib/nicbridge          ovn-k8s-util: moves the network configuration of a NIC to a bridge and back
//	lib/nicbridge/managers configurations of a bridge for ifupdown, netplan and other network managers, as text
//
// Layer 5, the mains: the directories ovn-k8s-* beside lib, one screen each.
package lib
