package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A Setting is one line of the table of settings.
type Setting struct {
	// Name is the setting's name in messages and in Show.
	Name string
	// Flag is the command line option without dashes, ExternalID the key in external_ids of the table Open_vSwitch,
	// Key the key in section [default] of ovn_k8s.conf, Env the environment variables. Empty: not available in that
	// source.
	Flag, ExternalID, Key string
	Env                   []string
	// Default is the default value, or a text in parentheses that describes it.
	Default string
	// Readers are where a change takes effect.
	Readers []Reader
	// Secret values are masked in all output.
	Secret bool
	// Text describes the setting in one line.
	Text string
}

// A Reader is a part of the project in which a changed setting takes effect.
type Reader string

// The readers. The daemons follow changes without a restart.
const (
	Watcher Reader = "watcher"
	Helper  Reader = "gateway helper"
	Plugin  Reader = "CNI plugin"  // reads all settings for each pod
	Restart Reader = "restart"     // of a daemon
	master  Reader = "master-init" // the commands read all settings when they run
	minion  Reader = "minion-init"
	gateway Reader = "gateway-init"
)

// Commands lists the commands to run again after a change.
func (s Setting) Commands() (out []string) {
	for _, r := range s.Readers {
		if r == master || r == minion || r == gateway {
			out = append(out, string(r))
		}
	}
	return out
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
	mtu            = "mtu"
	conntrackZone  = "conntrack-zone"
	clusterSubnet  = "cluster-cidr"
	joinSubnet     = "join-subnet"
	serviceCIDR    = "service-cidr"
	gatewayPorts   = "gateway-port-range"
	localGateway   = "local-gateway-subnet"
	firewall       = "firewall"
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
		{Name: ovnNB, Flag: "ovn-nb", ExternalID: "ovn-nb", Key: "ovn_nb", Env: []string{"OVN_NB_DB"}, Default: "(the local unix socket, if it exists)",
			Readers: []Reader{Watcher, Helper},
			Text:    "Northbound database: unix:FILE, tcp:IP:PORT or ssl:IP:PORT, also tcp://; several of a cluster with commas"},
		{Name: nbPrivKey, Flag: "nb-privkey", ExternalID: "ovn-k8s-nb-privkey", Key: "private_key", Default: "/etc/openvswitch/ovncontroller-privkey.pem",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the private key for an ssl: Northbound database"},
		{Name: nbCert, Flag: "nb-cert", ExternalID: "ovn-k8s-nb-cert", Key: "certificate", Default: "/etc/openvswitch/ovncontroller-cert.pem",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the certificate for an ssl: Northbound database"},
		{Name: nbCACert, Flag: "nb-cacert", ExternalID: "ovn-k8s-nb-cacert", Key: "ca_cert", Default: "/etc/openvswitch/ovnnb-ca.cert",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the CA certificate of an ssl: Northbound database; fetched from the server once if it does not exist"},
		{Name: apiServer, Flag: "k8s-api-server", ExternalID: "k8s-api-server", Key: "k8s_api_server", Env: []string{serviceHostEnv, servicePortEnv},
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "Kubernetes API server: a URL, or HOST:PORT for http"},
		{Name: apiToken, ExternalID: "k8s-api-token", Key: "k8s_api_token", Secret: true,
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "bearer token for the API server; no option, since ps would show it"},
		{Name: apiTokenFile, Flag: "k8s-api-token-file", ExternalID: "ovn-k8s-api-token-file", Key: "k8s_api_token_file", Default: "(the service account's token, if it exists)",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "file with the bearer token for the API server, read again when it changes"},
		{Name: apiCA, Flag: "k8s-ca-certificate", ExternalID: "k8s-ca-certificate", Key: "k8s_ca_certificate", Default: "(" + defaultAPICA + " or the service account's CA, if one exists)",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "CA certificate of the API server: PEM text, in which \\n may stand for a line end, or a file"},
		{Name: mtu, Flag: "mtu", ExternalID: "ovn-k8s-mtu", Key: "mtu", Default: "1400",
			Readers: []Reader{Helper, Plugin, minion, gateway},
			Text:    "MTU of pods and management ports in bytes"},
		{Name: conntrackZone, ExternalID: "ovn-k8s-conntrack-zone", Key: "conntrack_zone", Default: "64000",
			Readers: []Reader{Helper},
			Text:    "connection tracking zone of the gateway bridge"},
		{Name: clusterSubnet, ExternalID: "ovn-k8s-cluster-cidr", Key: "cluster_cidr",
			Readers: []Reader{Helper},
			Text:    "subnets of all pods, with commas"},
		{Name: joinSubnet, Flag: "join-subnet", ExternalID: "ovn-k8s-join-subnet", Key: "join_subnet", Default: "100.64.0.0/16,fd98::/64",
			Readers: []Reader{Helper, master},
			Text:    "subnets between the cluster router and gateways, one per address family"},
		{Name: serviceCIDR, Flag: "service-cidr", ExternalID: "ovn-k8s-service-cidr", Key: "service_cidr",
			Readers: []Reader{Watcher, Helper, minion},
			Text:    "subnets of services: hosts get routes to them, and what no service there takes is refused"},
		{Name: gatewayPorts, ExternalID: "ovn-k8s-gateway-port-range", Key: "gateway_port_range", Default: "10000-29999",
			Readers: []Reader{Helper, gateway},
			Text:    "ports of the address that pods share with their host where they leave by a bridge: LOW-HIGH"},
		{Name: localGateway, ExternalID: "ovn-k8s-local-gateway-subnet", Key: "local_gateway_subnet", Default: "169.254.33.0/24,fd69:254:33::/64",
			Readers: []Reader{gateway},
			Text:    "subnets between a local gateway and its host, one per address family"},
		{Name: firewall, Flag: "firewall", ExternalID: "ovn-k8s-firewall", Key: "firewall", Default: IPTables,
			Readers: []Reader{Helper, minion, gateway},
			Text:    "program of this host's rules: nftables, iptables, or auto for nftables where it works, else iptables"},
		{Name: ovnRemote, ExternalID: "ovn-remote",
			Readers: []Reader{Watcher, Helper, Plugin},
			Text:    "Southbound database; ovn-controller's"},
		{Name: encapIP, ExternalID: "ovn-encap-ip",
			Readers: []Reader{Helper, gateway},
			Text:    "local end of tunnels; ovn-controller's"},
		{Name: encapType, ExternalID: "ovn-encap-type",
			Readers: []Reader{Helper},
			Text:    "geneve or stt; ovn-controller's"},
		{Name: systemID, ExternalID: "system-id",
			Readers: []Reader{Watcher, Plugin, minion, gateway},
			Text:    "name of the chassis; unique and lasting"},
		{Name: cniConfDir, ExternalID: "ovn-k8s-cni-conf-path", Key: "cni_conf_path", Default: "/etc/cni/net.d",
			Readers: []Reader{minion},
			Text:    "directory in which minion-init writes the CNI configuration"},
		{Name: cniBinDir, ExternalID: "ovn-k8s-cni-link-path", Key: "cni_link_path", Default: "/opt/cni/bin",
			Readers: []Reader{minion},
			Text:    "directory to which minion-init copies the CNI plugin"},
		{Name: cniPlugin, ExternalID: "ovn-k8s-cni-plugin", Key: "cni_plugin", Default: "ovn-k8s-cni-overlay",
			Readers: []Reader{minion},
			Text:    "the CNI plugin: a path, or a name to be found on PATH"},
		{Name: cniLogFile, ExternalID: "ovn-k8s-log-path", Key: "log_path", Default: "/var/log/openvswitch/ovn-k8s-cni-overlay.log",
			Readers: []Reader{Plugin},
			Text:    "log file of the CNI plugin"},
		{Name: cniTimeout, ExternalID: "ovn-k8s-cni-timeout", Key: "cni_timeout", Default: "60s",
			Readers: []Reader{Plugin},
			Text:    "how long the CNI plugin waits for a pod's network: 90s, 2m, or a number of seconds"},
		{Name: unixSocket, Key: "unix_socket", Default: "($OVN_RUNDIR or /var/run/ovn)/ovnnb_db.sock",
			Readers: []Reader{Watcher},
			Text:    "socket of the local Northbound database"},
		{Name: runDir, Key: "rundir", Env: []string{"OVS_RUNDIR"}, Default: "/var/run/openvswitch",
			Readers: []Reader{Plugin, Restart},
			Text:    "directory of pidfiles, control sockets and Open vSwitch's db.sock"},
		{Name: logDir, Key: "logdir", Env: []string{"OVS_LOGDIR"}, Default: "/var/log/openvswitch",
			Readers: []Reader{Restart},
			Text:    "directory of log files"},
		{Name: mode, Key: "ovn_mode", Default: "overlay",
			Text: "overlay; nothing else is implemented"},
	}
}

// Markdown returns the settings as a table for the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| setting | command line | external_ids | ovn_k8s.conf | environment | default | a change takes effect in |\n")
	b.WriteString("|---|---|---|---|---|---|---|\n")
	for _, s := range Settings() {
		flag := s.Flag
		if flag != "" {
			flag = "--" + flag
		}
		text := s.Text
		if s.Secret {
			text += " (secret)"
		}
		fmt.Fprintf(&b, "| %s: %s | %s | %s | %s | %s | %s | %s |\n", s.Name, text,
			code(flag), code(s.ExternalID), code(s.Key), code(s.Env...), code(s.Default), readers(s.Readers))
	}
	return b.String()
}

// readers formats where a change takes effect.
func readers(all []Reader) string {
	var words []string
	for _, r := range all {
		words = append(words, string(r))
	}
	return strings.Join(words, ", ")
}

// code formats words as code, and a text in parentheses as it is.
func code(words ...string) string {
	var out []string
	for _, w := range words {
		switch {
		case w == "":
		case strings.HasPrefix(w, "("):
			out = append(out, w)
		default:
			out = append(out, "`"+w+"`")
		}
	}
	return strings.Join(out, ", ")
}

// ignored lists unknown keys that resemble a setting, each with the most similar known key.
func ignored(s Sources) []string {
	ids, keys := map[string]bool{}, map[string]bool{}
	for _, set := range Settings() {
		ids[set.ExternalID], keys[set.Key] = true, true
	}
	var out []string
	for k := range s.ExternalIDs {
		meant := nearest(k, ids)
		if !ids[k] && (strings.HasPrefix(k, "ovn-k8s-") || meant != "") {
			out = append(out, noSetting("external_ids:"+k, meant))
		}
	}
	for k := range s.File {
		if !keys[fileKey(k)] {
			out = append(out, noSetting(s.fileName()+": "+k, nearest(fileKey(k), keys)))
		}
	}
	slices.Sort(out)
	return out
}

func noSetting(key, meant string) string {
	text := key + " is no setting: it is ignored"
	if meant != "" {
		text += "; did you mean " + meant + "?"
	}
	return text
}

// slips is the largest number of differing letters in a misspelled key; for a short one it is a third of the letters.
const slips = 2

// nearest returns the known key most similar to key, "" if none is similar.
func nearest(key string, known map[string]bool) string {
	best, least := "", slips+1
	for _, k := range slices.Sorted(maps.Keys(known)) {
		if d := distance(key, k); 3*d <= len(k) && d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is the Levenshtein distance of a and b, or slips+1 if it is more than slips.
func distance(a, b string) int {
	if len(a)-len(b) > slips || len(b)-len(a) > slips {
		return slips + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], slips+1)
}
