package options

import (
	"maps"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
)

// An entry is a line of the table: a setting, and its options in --help.
type entry struct {
	config.Setting
	group       string
	value       string // a word for the value in --help
	boolean     bool
	unsupported bool   // it ends the program
	idle        bool   // it has no effect
	instead     string // what an idle one has in its place: for the advice
}

// Groups of --help.
const (
	roles      = "Role options"
	common     = "Network options"
	gateways   = "Gateway options"
	cni        = "CNI options"
	kubernetes = "Kubernetes options"
	north      = "Northbound database options"
	south      = "Southbound database options"
	logging    = "Log options"
)

// Names of the settings that are read here; the others are of lib/config, or have only a place in the table.
const (
	initMaster      = "init-master"
	initNode        = "init-node"
	cleanupNode     = "cleanup-node"
	removeNode      = "remove-node"
	adopt           = "adopt"
	clusterSubnets  = "cluster-subnets"
	serviceCIDR     = "service-cidr"
	gatewayMode     = "gateway-mode"
	gatewayNIC      = "gateway-interface"
	gatewayNextHop  = "gateway-nexthop"
	gatewayVLAN     = "gateway-vlanid"
	nodePort        = "nodeport"
	initGateways    = "init-gateways"
	netController   = "net-controller"
	gatewayLocal    = "gateway-local"
	gatewayLocalnet = "gateway-localnet" // another name of it
	gatewaySpare    = "gateway-spare-interface"
	inactivityProbe = "inactivity-probe"
	openflowProbe   = "openflow-probe"
	encapIP         = "ovn-encap-ip"
	encapPort       = "encap-port"
	tunnelPort      = "6081" // RFC 8926. ovn-controller 23.03 to 26.03 takes no other from external_ids
	encapType       = "ovn-encap-type"
	kubeconfig      = "k8s-kubeconfig"
	apiServer       = "k8s-api-server"
	apiToken        = "k8s-api-token"
	apiTokenFile    = "k8s-api-token-file"
	apiCA           = "k8s-ca-certificate"
	nbAddress       = "ovn-nb"
	sbAddress       = "ovn-remote"
	leaseDuration   = "ha-election-lease-duration"
	renewDeadline   = "ha-election-renew-deadline"
	retryPeriod     = "ha-election-retry-period"
	logLevel        = "loglevel"
	logFile         = "logfile"
	cniLogFile      = "log-path"
	logSize         = "logfile-maxsize"
	logBackups      = "logfile-maxbackups"
	logAge          = "logfile-maxage"
	emptyLBEvents   = "ovn-empty-lb-events"
	metricsPprof    = "metrics-enable-pprof"
	metricsAddress  = "metrics-bind-address"
)

// A change is what a setting of lib/config has more, or other, in ovnkube.
type change struct {
	group, value    string
	flags           config.Names
	keys, variables []string
	defaultValue    string
}

var named = config.Named

// changes are by setting. Each has its historical options; those of other programs are only kept where there is none.
var changes = map[string]change{
	nbAddress:              {north, "REMOTE", named("nb-address"), []string{"ovnnorth.address"}, nil, ""},
	"nb-privkey":           {north, "FILE", named("nb-client-privkey"), []string{"ovnnorth.client-privkey"}, nil, "/etc/openvswitch/ovnnb-privkey.pem"},
	"nb-cert":              {north, "FILE", named("nb-client-cert"), []string{"ovnnorth.client-cert"}, nil, "/etc/openvswitch/ovnnb-cert.pem"},
	"nb-cacert":            {north, "FILE", named("nb-client-cacert"), []string{"ovnnorth.client-cacert"}, nil, ""},
	sbAddress:              {south, "REMOTE", named("sb-address"), []string{"ovnsouth.address"}, nil, ""},
	apiServer:              {kubernetes, "URL", named("k8s-apiserver"), []string{"kubernetes.apiserver"}, []string{"K8S_APISERVER"}, "http://localhost:8080"},
	apiToken:               {kubernetes, "TOKEN", named("k8s-token"), []string{"kubernetes.token"}, []string{"K8S_TOKEN"}, ""},
	apiTokenFile:           {kubernetes, "FILE", nil, nil, nil, ""},
	apiCA:                  {kubernetes, "FILE", named("k8s-cacert"), []string{"kubernetes.cacert"}, []string{"K8S_CACERT"}, ""},
	"ovn-config-namespace": {kubernetes, "NAME", named("ovn-config-namespace"), nil, nil, "ovn-kubernetes"},
	serviceCIDR:            {kubernetes, "CIDR,CIDR", named("k8s-service-cidr", "k8s-service-cidrs").Old("service-cluster-ip-range"), []string{"kubernetes.service-cidr", "kubernetes.service-cidrs"}, nil, "172.16.1.0/24"},
	"mtu":                  {common, "BYTES", nil, nil, nil, ""},
	"join-subnet":          {common, "CIDR,CIDR", nil, nil, nil, ""},
	"firewall":             {common, "NAME", nil, nil, nil, ""},
	"healthz-bind-address": {kubernetes, "IP:PORT", nil, []string{"kubernetes.healthz-bind-address"}, nil, ""},
	"external-ips":         {kubernetes, "BOOL", named("external-ips"), nil, nil, ""},
	"conntrack-zone":       {common, "ZONE", named("conntrack-zone"), nil, nil, ""},
	encapIP:                {common, "IP", named("encap-ip"), []string{"encap-ip"}, nil, ""},
	encapType:              {common, "TYPE", named("encap-type"), []string{"encap-type"}, nil, "geneve"},
	"cni-conf-path":        {cni, "DIR", named("cni-conf-dir"), []string{"cni.conf-dir"}, nil, ""},
	"cni-plugin":           {cni, "NAME", named("cni-plugin"), []string{"cni.plugin"}, nil, ""},
	cniLogFile:             {logging, "FILE", named("cnilogfile"), []string{"logging.cnilogfile"}, nil, ""},
}

// texts are by setting of lib/config, where ovnkube does something else than the other programs.
var texts = map[string]string{
	apiToken:        "bearer token for the API server; better in a file, see k8s-api-token-file",
	"cni-conf-path": "directory in which the node role writes the CNI configuration",
	"cni-link-path": "directory to which the node role copies the CNI plugin",
	"cni-plugin":    "name of the CNI plugin, a copy of ovn-k8s-cni-shim",
	cniLogFile:      "log file of the CNI plugin",

	"ovn-config-namespace": "namespace of the Lease and of the ConfigMap of masters, and of the Service ovnkube-db",
}

// table returns all settings of ovnkube: those of lib/config with their historical names, then its own.
func table() []entry {
	var all []entry
	for _, s := range config.Settings() {
		e := entry{Setting: s, group: common}
		if c, ok := changes[s.Name]; ok {
			e.group, e.value = c.group, c.value
			if c.flags != nil {
				e.Flags = c.flags
			}
			e.Keys = append(slices.Clone(e.Keys), named(c.keys...)...)
			e.Env = append(named(c.variables...), e.Env...)
			if c.defaultValue != "" {
				e.Default = c.defaultValue
			}
		}
		if t := texts[s.Name]; t != "" {
			e.Text = t
		}
		if s.Name == cniLogFile {
			e.Default, e.instead = "", "the CNI server writes to the log of ovnkube, see --logfile"
			e = idle(e)
		}
		all = append(all, e)
	}
	all = slices.Concat(all, own(), retired())
	for i := range all {
		all[i].Readers = readers(all[i])
	}
	return all
}

// Readers of ovnkube's settings, beside config.Restart.
const (
	Master config.Reader = "master"
	Node   config.Reader = "node"
)

// readers returns the roles that serve again when a setting changes. A role does the work of programs: their settings are
// its own.
func readers(e entry) []config.Reader {
	if e.unsupported || e.idle {
		return nil
	}
	all := map[config.Reader]bool{}
	for _, r := range e.Readers {
		switch r {
		case config.Restart:
			all[r] = true
		case config.Watcher:
			all[Master] = true
		default:
			all[Node] = true
		}
	}
	switch {
	case slices.Contains([]string{adopt, clusterSubnets, leaseDuration, renewDeadline, retryPeriod}, e.Name), strings.Contains(e.Name, "b-server-"):
		all[Master] = true
	case slices.Contains([]string{sbAddress, kubeconfig, "join-subnet", "ovn-config-namespace"}, e.Name), strings.HasPrefix(e.Name, "sb-client-"):
		all[Master], all[Node] = true, true
	case e.group == gateways, slices.Contains([]string{initGateways, gatewayLocal, gatewaySpare, inactivityProbe, openflowProbe, encapIP, encapType}, e.Name):
		all[Node] = true
	case len(e.Readers) == 0:
		all[config.Restart] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// Settings returns the settings of ovnkube.
func Settings() []config.Setting {
	var all []config.Setting
	for _, e := range table() {
		all = append(all, e.Setting)
	}
	return all
}

// text is a setting with a value.
func text(group, name, value, def, describe string, keys ...string) entry {
	return entry{group: group, value: value, Setting: config.Setting{Name: name, Flags: named(name), Keys: named(keys...), Default: def, Text: describe}}
}

// truth is a setting that is true or false.
func truth(group, name, describe string, keys ...string) entry {
	e := text(group, name, "", "false", describe, keys...)
	e.boolean = true
	return e
}

// idle is e, which is known and checked, but changes nothing.
func idle(e entry) entry {
	e.idle = true
	e.Text += "; accepted, without effect"
	return e
}

// own returns the settings that only ovnkube has.
func own() []entry {
	subnets := text(common, clusterSubnets, "CIDR,CIDR", "10.128.0.0/14/23", "subnets of the cluster, each with the length of a node's subnet: CIDR/LENGTH, 64 for IPv6", "cluster-subnets")
	subnets.Flags = subnets.Flags.Old("cluster-subnet")
	config := text(kubernetes, kubeconfig, "FILE", "", "kubeconfig file, of which the current context is used", "kubernetes.kubeconfig")
	config.Env = named("KUBECONFIG")
	return append([]entry{
		text(roles, initMaster, "NAME", "", "be a master, on the host of the Node NAME"),
		text(roles, initNode, "NAME", "", "be the node NAME"),
		text(roles, cleanupNode, "NAME", "", "undo what -init-node did on this host, and exit"),
		text(roles, removeNode, "NAME", "", "remove a node from the cluster, and exit"),
		truth(roles, adopt, "take over a cluster whose nodes got their subnets otherwise; they keep them"),
		subnets, config,
		text(common, inactivityProbe, "MILLISECONDS", "100000", "how often ovn-controller probes the Southbound database", "inactivity-probe"),
		text(common, openflowProbe, "SECONDS", "180", "how often ovn-controller probes ovs-vswitchd", "openflow-probe"),
		idle(text(common, encapPort, "PORT", tunnelPort, "UDP port of Geneve tunnels, always "+tunnelPort, "encap-port")),
		text(gateways, gatewayMode, "MODE", "", "shared, spare or local; without it the node has no gateway", "gateway.mode"),
		text(gateways, gatewayNIC, "NIC", "", "NIC or bridge of the gateway; default: that of the default route", "gateway.interface"),
		text(gateways, gatewayNextHop, "IP", "", "next hop of the gateway; default: that of the default route", "gateway.next-hop"),
		text(gateways, gatewayVLAN, "VLAN", "", "VLAN of the network outside; not with a local gateway", "gateway.vlan-id"),
		truth(gateways, nodePort, "open NodePorts and external addresses on this host", "gateway.nodeport"),
		text(logging, logLevel, "LEVEL", "4", "5 debug, 4 info, 3 warnings, 2 errors, 1 fatal errors", "logging.loglevel"),
		text(logging, logFile, "FILE", "", "log file", "logging.logfile"),
		text(logging, logSize, "MB", "(100 beside one of the next two; else the log is not rotated)", "size at which the log file is rotated; 0: never", "logging.logfile-maxsize"),
		text(logging, logBackups, "COUNT", "5", "number of rotated log files to keep; 0: all", "logging.logfile-maxbackups"),
		text(logging, logAge, "DAYS", "5", "age of rotated log files to keep; 0: any", "logging.logfile-maxage"),
		idle(truth(kubernetes, emptyLBEvents, "report connections to Services without endpoints", "kubernetes.ovn-empty-lb-events")),
		idle(text(kubernetes, metricsAddress, "IP:PORT", "", "address of the metrics", "kubernetes.metrics-bind-address")),
		idle(truth(kubernetes, metricsPprof, "profiles at the address of the metrics", "kubernetes.metrics-enable-pprof")),
		text(kubernetes, leaseDuration, "SECONDS", "(10; 60 beside one of the next two)", "how long the Lease of the master lasts without renewal", "masterha.election-lease-duration"),
		text(kubernetes, renewDeadline, "SECONDS", "(7; 30 beside another of the three)", "how long the master tries to renew the Lease", "masterha.election-renew-deadline"),
		text(kubernetes, retryPeriod, "SECONDS", "(1; 20 beside another of the three)", "how often masters try to get and to renew the Lease", "masterha.election-retry-period"),
	}, ssl()...)
}

// ssl returns the files for ssl: beside those of the Northbound database's clients.
func ssl() (all []entry) {
	for _, f := range []struct{ kind, file, text string }{{"privkey", "privkey.pem", "private key"}, {"cert", "cert.pem", "certificate"}, {"cacert", "ca.cert", "CA certificate"}} {
		all = append(all, text(south, "sb-client-"+f.kind, "FILE", "/etc/openvswitch/ovnsb-"+f.file, f.text+" for an ssl: Southbound database", "ovnsouth.client-"+f.kind))
		for db, group := range map[string]string{"north": north, "south": south} {
			all = append(all, text(group, db[:1]+"b-server-"+f.kind, "FILE", "", f.text+" of the database's server itself", "ovn"+db+".server-"+f.kind))
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// retired returns options that are accepted and hidden, and those that are not supported.
func retired() (all []entry) {
	for _, name := range []string{netController, "ha", initGateways, gatewayLocal, gatewaySpare} {
		e := truth(roles, name, "of former releases")
		e.Flags = named().Old(name)
		if name == gatewayLocal {
			e.Flags = e.Flags.Old(gatewayLocalnet)
		}
		all = append(all, e)
	}
	for name, keys := range map[string][]string{
		"win-hnsnetwork-id": {"cni.win-hnsnetwork-id"}, "no-hostsubnet-nodes": {"kubernetes.no-hostsubnet-nodes"}, "pod-ip": {"kubernetes.pod-ip"},
		"hybrid-overlay-cluster-subnets": {"hybridoverlay.cluster-subnets"}, "hybrid-overlay-vxlan-port": {"hybridoverlay.hybrid-overlay-vxlan-port"},
	} {
		e := text(common, name, "", "", "not supported", keys...)
		e.Flags, e.unsupported = named().Old(name), true
		all = append(all, e)
	}
	for name, keys := range map[string][]string{
		"nbctl-daemon-mode": nil, "unprivileged-mode": nil, "enable-multicast": nil, "manage-db-servers": nil, "enable-hybrid-overlay": {"hybridoverlay.enabled"},
	} {
		e := truth(common, name, "not supported", keys...)
		e.Flags, e.unsupported = named().Old(name), true
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b entry) int { return strings.Compare(a.Name, b.Name) })
	return all
}
