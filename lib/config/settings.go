package config

import (
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/names"
	"ovn-k8s/lib/platform"
)

// A Setting is one line of the table of settings.
type Setting struct {
	// Name is the setting's name in messages and in Show.
	Name string
	// Flags are the command line options without dashes, Keys the keys of ovn_k8s.conf, Env the environment variables.
	// ExternalID is the key in external_ids of the table Open_vSwitch. Empty: not available in that source.
	Flags, Keys, Env Names
	ExternalID       string
	// Default is the default value, or a text in parentheses that describes it.
	Default string
	// Readers are where a change takes effect.
	Readers []Reader
	// Secret values are masked in all output.
	Secret bool
	// Text describes the setting in one line.
	Text string
}

// Names are the names of a setting in one kind of source.
type Names []Name

// A Name is a command line option without dashes, an environment variable, or a key of ovn_k8s.conf. A key is
// "section.key", or only "key" in the section [default].
type Name struct {
	Text string
	Old  bool // accepted, but another name is the one to write
}

// Named returns the names to write today.
func Named(texts ...string) Names { return Names(nil).add(false, texts) }

// Old adds names of former releases.
func (n Names) Old(texts ...string) Names { return n.add(true, texts) }

func (n Names) add(old bool, texts []string) Names {
	n = slices.Clone(n)
	for _, t := range texts {
		n = append(n, Name{t, old})
	}
	return n
}

// Current returns the first name to write today, "" if there is none.
func (n Names) Current() string {
	for _, name := range n {
		if !name.Old {
			return name.Text
		}
	}
	return ""
}

// A Reader is a part of the project in which a changed setting takes effect.
type Reader string

// The readers. The daemons follow changes without a restart.
const (
	Watcher    Reader = "watcher"
	Helper     Reader = "gateway helper"
	Plugin     Reader = "CNI plugin"  // reads all settings for each pod
	Restart    Reader = "restart"     // of a daemon
	masterInit Reader = "master-init" // the commands read all settings when they run
	minion     Reader = "minion-init"
	gateway    Reader = "gateway-init"
)

// Commands lists the commands to run again after a change.
func (s Setting) Commands() (out []string) {
	for _, r := range s.Readers {
		if r == masterInit || r == minion || r == gateway {
			out = append(out, string(r))
		}
	}
	return out
}

// ValidFor reports whether the settings of a reader were read and are valid, whatever others are.
func (c Config) ValidFor(reader Reader) bool {
	return c.found != nil && !slices.ContainsFunc(c.settings, func(s Setting) bool {
		return slices.Contains(s.Readers, reader) && slices.Contains(c.failed, s.Name)
	})
}

// Names of the settings, as in Setting.Name.
const (
	ovnNB          = "ovn-nb"
	nbPrivKey      = "nb-privkey"
	nbCert         = "nb-cert"
	nbCACert       = "nb-cacert"
	apiServer      = "k8s-api-server"
	apiToken       = "k8s-api-token"
	apiTokenFile   = "k8s-api-token-file"
	apiCA          = "k8s-ca-certificate"
	kubeconfig     = "k8s-kubeconfig" // of ovnkube only
	mtu            = "mtu"
	conntrackZone  = "conntrack-zone"
	externalIPs    = "external-ips"
	clusterSubnet  = "cluster-cidr"
	joinSubnet     = "join-subnet"
	serviceCIDR    = "service-cidr"
	gatewayPorts   = "gateway-port-range"
	localGateway   = "local-gateway-subnet"
	firewall       = "firewall"
	healthz        = "healthz-bind-address"
	ovnRemote      = "ovn-remote"
	encapIP        = "ovn-encap-ip"
	encapType      = "ovn-encap-type"
	systemID       = "system-id"
	cniConfDir     = "cni-conf-path"
	cniBinDir      = "cni-link-path"
	cniPlugin      = "cni-plugin"
	cniLogFile     = "log-path"
	cniTimeout     = "cni-timeout"
	unixSocket     = "unix-socket"
	runDir         = "rundir"
	logDir         = "logdir"
	configSpace    = "ovn-config-namespace"
	mode           = "ovn-mode"
	serviceHostEnv = "KUBERNETES_SERVICE_HOST"
	servicePortEnv = "KUBERNETES_SERVICE_PORT"
)

// Default files.
const (
	// ServiceAccountToken and ServiceAccountCA are the files of a pod's service account, written by the kubelet.
	ServiceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	ServiceAccountCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	// defaultAPICA is the default API server CA if the file exists.
	defaultAPICA = "/etc/openvswitch/k8s-ca.crt"
)

// Settings returns every setting, in the order of the documentation.
func Settings() []Setting {
	return []Setting{
		{Name: ovnNB, Flags: Named("ovn-nb"), ExternalID: "ovn-nb", Keys: Named("ovn_nb"), Env: Named("OVN_NB_DB"), Default: "(the local unix socket, if it exists)",
			Readers: []Reader{Watcher, Helper},
			Text:    "Northbound database: unix:FILE, tcp:IP:PORT or ssl:IP:PORT, also tcp://; several of a cluster with commas"},
		{Name: nbPrivKey, Flags: Named("nb-privkey"), ExternalID: "ovn-k8s-nb-privkey", Keys: Named("private_key"), Default: "/etc/openvswitch/ovncontroller-privkey.pem",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the private key for an ssl: Northbound database"},
		{Name: nbCert, Flags: Named("nb-cert"), ExternalID: "ovn-k8s-nb-cert", Keys: Named("certificate"), Default: "/etc/openvswitch/ovncontroller-cert.pem",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the certificate for an ssl: Northbound database"},
		{Name: nbCACert, Flags: Named("nb-cacert"), ExternalID: "ovn-k8s-nb-cacert", Keys: Named("ca_cert"), Default: "/etc/openvswitch/ovnnb-ca.cert",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the CA certificate of an ssl: Northbound database; fetched from the server once if it does not exist"},
		{Name: apiServer, Flags: Named("k8s-api-server"), ExternalID: "k8s-api-server", Keys: Named("k8s_api_server"), Env: Named(serviceHostEnv, servicePortEnv),
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "Kubernetes API server: a URL, or HOST:PORT for http"},
		{Name: apiToken, ExternalID: "k8s-api-token", Keys: Named("k8s_api_token"), Secret: true,
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "bearer token for the API server; no option, since ps would show it"},
		{Name: apiTokenFile, Flags: Named("k8s-api-token-file"), ExternalID: "ovn-k8s-api-token-file", Keys: Named("k8s_api_token_file"), Default: "(the service account's token, if it exists)",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the bearer token for the API server, read again when it changes"},
		{Name: apiCA, Flags: Named("k8s-ca-certificate"), ExternalID: "k8s-ca-certificate", Keys: Named("k8s_ca_certificate"), Default: "(" + defaultAPICA + " or the service account's CA, if one exists)",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "CA certificate of the API server: PEM text, in which \\n may stand for a line end, or a file"},
		{Name: configSpace, ExternalID: "ovn-k8s-config-namespace", Keys: Named("kubernetes.ovn-config-namespace"), Default: names.ConfigNamespace,
			Readers: []Reader{Watcher},
			Text:    "namespace of the Lease and of the ConfigMap of watchers"},
		{Name: mtu, Flags: Named("mtu"), ExternalID: "ovn-k8s-mtu", Keys: Named("mtu"), Default: "1400",
			Readers: []Reader{Helper, Plugin, masterInit, minion, gateway},
			Text:    "MTU of pods and management ports in bytes"},
		{Name: conntrackZone, ExternalID: "ovn-k8s-conntrack-zone", Keys: Named("conntrack_zone"), Default: "64000",
			Readers: []Reader{Helper},
			Text:    "connection tracking zone of the gateway bridge"},
		{Name: clusterSubnet, ExternalID: "ovn-k8s-cluster-cidr", Keys: Named("cluster_cidr"),
			Readers: []Reader{Helper},
			Text:    "subnets of all pods, with commas"},
		{Name: joinSubnet, Flags: Named("join-subnet"), ExternalID: "ovn-k8s-join-subnet", Keys: Named("join_subnet"), Default: "100.64.0.0/16,fd98::/64",
			Readers: []Reader{Helper, masterInit, minion},
			Text:    "subnets between the cluster router and gateways, one per address family"},
		{Name: serviceCIDR, Flags: Named("service-cidr"), ExternalID: "ovn-k8s-service-cidr", Keys: Named("service_cidr"),
			Readers: []Reader{Watcher, Helper, masterInit, minion},
			Text:    "subnets of services: hosts get routes to them, and what no service there takes is refused"},
		{Name: externalIPs, ExternalID: "ovn-k8s-external-ips", Keys: Named("external_ips"), Default: "true",
			Readers: []Reader{Watcher, Helper},
			Text:    "true, or false if spec.externalIPs of services are not served"},
		{Name: gatewayPorts, ExternalID: "ovn-k8s-gateway-port-range", Keys: Named("gateway_port_range"), Default: "10000-29999",
			Readers: []Reader{Helper, gateway},
			Text:    "ports of the address that pods share with their host where they leave by a bridge: LOW-HIGH"},
		{Name: localGateway, ExternalID: "ovn-k8s-local-gateway-subnet", Keys: Named("local_gateway_subnet"), Default: "169.254.33.0/24,fd69:254:33::/64",
			Readers: []Reader{gateway},
			Text:    "subnets between a local gateway and its host, one per address family"},
		{Name: firewall, Flags: Named("firewall"), ExternalID: "ovn-k8s-firewall", Keys: Named("firewall"), Default: AnyFirewall,
			Readers: []Reader{Helper, masterInit, minion, gateway},
			Text:    "program of this host's rules: nftables, iptables, or auto for nftables where it works, else iptables"},
		{Name: healthz, Flags: Named("healthz-bind-address"), ExternalID: "ovn-k8s-healthz-bind-address", Keys: Named("healthz_bind_address"), Default: ":10256",
			Readers: []Reader{Helper},
			Text:    "address of /healthz and /livez of this host, as of kube-proxy: IP:PORT, :PORT for all addresses, or off"},
		{Name: ovnRemote, ExternalID: "ovn-remote",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "Southbound database; ovn-controller's"},
		{Name: encapIP, ExternalID: "ovn-encap-ip",
			Readers: []Reader{Helper, gateway},
			Text:    "local end of tunnels; ovn-controller's"},
		{Name: encapType, ExternalID: "ovn-encap-type",
			Readers: []Reader{Helper},
			Text:    "type of tunnels, geneve or vxlan; ovn-controller's"},
		{Name: systemID, ExternalID: "system-id",
			Readers: []Reader{Watcher, Plugin, masterInit, minion, gateway},
			Text:    "name of the chassis; unique and lasting"},
		{Name: cniConfDir, ExternalID: "ovn-k8s-cni-conf-path", Keys: Named("cni_conf_path"), Default: platform.Kubeadm.ConfDir,
			Readers: []Reader{minion},
			Text:    "directory in which minion-init writes the CNI configuration"},
		{Name: cniBinDir, ExternalID: "ovn-k8s-cni-link-path", Keys: Named("cni_link_path"), Default: platform.Kubeadm.BinDir,
			Readers: []Reader{minion},
			Text:    "directory to which minion-init copies the CNI plugin"},
		{Name: cniPlugin, ExternalID: "ovn-k8s-cni-plugin", Keys: Named("cni_plugin"), Default: "ovn-k8s-cni-overlay",
			Readers: []Reader{minion},
			Text:    "the CNI plugin: a path, or a name to be found on PATH or beside ovn-k8s-overlay"},
		{Name: cniLogFile, ExternalID: "ovn-k8s-log-path", Keys: Named("log_path"), Default: "/var/log/openvswitch/ovn-k8s-cni-overlay.log",
			Readers: []Reader{Plugin},
			Text:    "log file of the CNI plugin"},
		{Name: cniTimeout, ExternalID: "ovn-k8s-cni-timeout", Keys: Named("cni_timeout"), Default: "60s",
			Readers: []Reader{Plugin},
			Text:    "how long the CNI plugin waits for a pod's network: 90s, 2m, or a number of seconds"},
		{Name: unixSocket, Keys: Named("unix_socket"), Default: "($OVN_RUNDIR or /var/run/ovn)/ovnnb_db.sock",
			Readers: []Reader{Watcher},
			Text:    "socket of the local Northbound database"},
		{Name: runDir, Keys: Named("rundir"), Env: Named("OVS_RUNDIR"), Default: "/var/run/openvswitch",
			Readers: []Reader{Plugin, Restart},
			Text:    "directory of pidfiles, control sockets and Open vSwitch's db.sock"},
		{Name: logDir, Keys: Named("logdir"), Env: Named("OVS_LOGDIR"), Default: "/var/log/openvswitch",
			Readers: []Reader{Restart},
			Text:    "directory of log files"},
		{Name: mode, Keys: Named("ovn_mode"), Default: "overlay",
			Text: "overlay; nothing else is implemented"},
	}
}

// Markdown returns settings as a table for the documentation.
func Markdown(settings []Setting) string {
	var b strings.Builder
	b.WriteString("| setting | command line | external_ids | ovn_k8s.conf | environment | default | a change takes effect in |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for _, s := range settings {
		text := s.Text
		if s.Secret {
			text += " (secret)"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %s | %s |\n", s.Name, text,
			s.Flags.code(func(n string) string { return "--" + n }), code(s.ExternalID), s.Keys.code(keyText), s.Env.code(nil), code(s.Default), readers(s.Readers))
	}
	return b.String()
}

// code formats names as code, as they are written there.
func (n Names) code(written func(string) string) string {
	var out []string
	for _, name := range n {
		text := name.Text
		if written != nil {
			text = written(text)
		}
		text = code(text)
		if name.Old {
			text += " (old)"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// readers formats where a change takes effect.
func readers(all []Reader) string {
	var words []string
	for _, r := range all {
		words = append(words, string(r))
	}
	return strings.Join(words, ", ")
}

// code formats a word as code, and a text in parentheses as it is.
func code(word string) string {
	if word == "" || strings.HasPrefix(word, "(") {
		return word
	}
	return "`" + word + "`"
}
