package platform

import (
	"slices"
	"strings"
)

// A row is a line of a table: a title, and a value for each column.
type row[T any] struct {
	title string
	value func(T) []string // printed as code, unless in parentheses
}

func one[T any](value func(T) string) func(T) []string {
	return func(of T) []string { return []string{value(of)} }
}

var distributionRows = []row[Distribution]{
	{"`ID` in `/etc/os-release`", func(d Distribution) []string { return d.IDs }},
	{"to install", one(func(d Distribution) string { return d.Install })},
	{"Open vSwitch", packageOf(OpenVSwitch)},
	{"OVN, every host", packageOf(OVNHost)},
	{"OVN's databases", packageOf(OVNCentral)},
	{"nftables", packageOf(NFTables)},
	{"iptables", packageOf(IPTables)},
	{"CNI plugin `loopback`", packageOf(Loopback)},
	{"directory of `loopback`", one(func(d Distribution) string { return d.PluginDir })},
	{"units of Open vSwitch", unitsOf(OpenVSwitch)},
	{"units of ovn-controller", unitsOf(OVNHost)},
	{"units of OVN's databases", unitsOf(OVNCentral)},
	{"network managers", func(d Distribution) []string {
		var all []string
		for _, m := range d.Managers {
			all = append(all, m.Name)
		}
		return all
	}},
	{"firewall", one(func(d Distribution) string { return "(" + d.Firewall + ")" })},
	{"security module", one(func(d Distribution) string { return "(" + d.Security + ")" })},
}

func packageOf(p Part) func(Distribution) []string {
	return one(func(d Distribution) string { return d.Packages[p] })
}

func unitsOf(p Part) func(Distribution) []string {
	return func(d Distribution) []string { return d.Units[p] }
}

var kubernetesRows = []row[Kubernetes]{
	{"CNI configurations (`ovn-k8s-cni-conf-path`)", one(func(k Kubernetes) string { return k.ConfDir })},
	{"CNI plugins (`ovn-k8s-cni-link-path`)", one(func(k Kubernetes) string { return k.BinDir })},
	{"container runtime's socket", one(func(k Kubernetes) string { return k.Socket })},
	{"without its CNI plugin", one(func(k Kubernetes) string { return k.WithoutCNI })},
	{"without kube-proxy", one(func(k Kubernetes) string { return k.WithoutProxy })},
	{"units that start pods", func(k Kubernetes) []string { return k.Units }},
	{"Services (`ovn-k8s-service-cidr`)", one(func(k Kubernetes) string { return k.ServiceCIDR })},
	{"CA certificate of the API server", one(func(k Kubernetes) string { return k.CA })},
}

var managerRows = []row[Manager]{
	{"unit", one(func(m Manager) string { return m.Unit })},
	{"configuration", one(func(m Manager) string { return m.Config })},
	{"`ovn-k8s-util` finds a NIC in", func(m Manager) []string {
		return append(slices.Clone(m.Files), m.Links)
	}},
}

// Markdown returns the tables of distributions, of network managers, and of distributions of Kubernetes for the
// documentation.
func Markdown() (linux, managers, clusters string) {
	return table(distributions, func(d Distribution) string { return d.Name }, distributionRows),
		table(Managers(), func(m Manager) string { return m.Name }, managerRows),
		table(kubernetes, func(k Kubernetes) string { return k.Name }, kubernetesRows)
}

func table[T any](columns []T, name func(T) string, rows []row[T]) string {
	head, rule := []string{""}, []string{"---"}
	for _, c := range columns {
		head, rule = append(head, name(c)), append(rule, "---")
	}
	text := line(head) + line(rule)
	for _, r := range rows {
		cells := []string{r.title}
		for _, c := range columns {
			cells = append(cells, cell(r.value(c)))
		}
		text += line(cells)
	}
	return text
}

func line(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }

func cell(values []string) string {
	var all []string
	for _, v := range values {
		if inner, ok := strings.CutPrefix(v, "("); ok {
			all = append(all, strings.TrimSuffix(inner, ")"))
		} else if v != "" {
			all = append(all, "`"+v+"`")
		}
	}
	return strings.Join(all, ", ")
}
