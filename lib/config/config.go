// Package config resolves the configuration of all programs, in one pure function. A setting is taken from the
// command line, else from external_ids of the table Open_vSwitch, else from ovn_k8s.conf, else from the environment
// and the service account's files, else it has its default.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Errors for missing settings. Scripts may match the texts: they are from the Python version.
var (
	ErrNoNB        = errors.New("OVN central database's ip address not set")
	ErrNoAPIServer = errors.New("K8S_API_SERVER not set")
)

// Sources are the inputs of Resolve. An empty value counts as missing.
type Sources struct {
	Flags       map[string]string // by option without dashes
	ExternalIDs map[string]string // of the table Open_vSwitch
	File        map[string]string // keys of ovn_k8s.conf: see Name
	FileName    string            // for messages; empty means ovn_k8s.conf
	Env         map[string]string
	// Settings are the settings of the program. nil means those of Settings.
	Settings []Setting
	// Exists reports whether there is a file or socket at a path. nil means that none exists.
	Exists func(path string) bool
}

func (s Sources) fileName() string {
	if s.FileName == "" {
		return "ovn_k8s.conf"
	}
	return s.FileName
}

func (s Sources) settings() []Setting {
	if s.Settings == nil {
		return Settings()
	}
	return s.Settings
}

func (s Sources) exists(path string) bool { return s.Exists != nil && s.Exists(path) }

// A Config is the configuration of a program. Paths are absolute.
type Config struct {
	// NB lists the addresses of the Northbound database in OVS's syntax: several for a cluster, none if unknown
	// (ErrNoNB).
	NB []string
	// NBPrivateKey, NBCertificate and NBCACert are files for ssl:.
	NBPrivateKey, NBCertificate, NBCACert string
	// SBPrivateKey, SBCertificate and SBCACert are those of the Southbound database: the same, unless a program has settings
	// for them.
	SBPrivateKey, SBCertificate, SBCACert string
	// NBSocket is the unix socket of a Northbound database on this host.
	NBSocket string

	// Kubeconfig is a file that replaces the other settings of the API server. Only ovnkube has a setting for it.
	Kubeconfig string
	// APIServer is a URL with its scheme, or empty (ErrNoAPIServer).
	APIServer string
	// APIToken and APITokenFile: at most one of them is set.
	APIToken     Secret
	APITokenFile string
	// APICA is PEM text, APICAFile a path: at most one of them is set.
	APICA, APICAFile string

	// ConfigNamespace has the suite's own Kubernetes objects.
	ConfigNamespace string

	MTU            int // bytes
	ConntrackZone  int
	ClusterSubnets []netip.Prefix
	JoinSubnets    []netip.Prefix // at most one per family
	ServiceCIDRs   []netip.Prefix
	ExternalIPs    bool           // whether spec.externalIPs of Services are served
	LocalSubnets   []netip.Prefix // between a local gateway and its host, one per family
	GatewayPorts   string         // "LOW-HIGH"
	Firewall       string         // AnyFirewall, NFTables or IPTables
	Healthz        string         // address of /healthz and /livez; "": none

	// OVNRemote, EncapIP, EncapType and SystemID are ovn-controller's settings, as in the database.
	OVNRemote, EncapIP, EncapType, SystemID string

	CNIConfDir, CNIBinDir string
	CNIPlugin             string // a path, or a name to be found on PATH
	CNILogFile            string
	CNITimeout            time.Duration

	// RunDir and LogDir are Open vSwitch's.
	RunDir, LogDir string

	// Ignored has a sentence about each unknown key that resembles a setting, and about a file that is missing meanwhile.
	Ignored []string

	settings []Setting
	origins  []origin           // of settings
	found    map[string]*origin // as in the Resolver
	failed   []string           // names of settings with an invalid value
}

// Values of Config.Firewall.
const (
	AnyFirewall = "auto"
	NFTables    = "nftables"
	IPTables    = "iptables"
)

// A Change is a setting with another value than before.
type Change struct {
	Setting
	From, To string // as Show prints them
	Source   string // of To
}

// Changes lists the settings with other values in now. Another token is no change, since clients read it for each
// request.
func (c Config) Changes(now Config) (out []Change) {
	for i, set := range c.settings {
		if i >= len(c.origins) || i >= len(now.origins) || c.origins[i].exact == now.origins[i].exact {
			continue
		}
		out = append(out, Change{set, c.origins[i].value, now.origins[i].value, now.origins[i].source})
	}
	return out
}

// An origin is a setting's value and its source, for Show, and the exact value, for Changes.
type origin struct{ name, value, source, exact string }

// Resolve computes the configuration from its sources. It reports all problems at once: each error has the value, its
// source and the valid values. The values of secrets are omitted. A program with settings of its own
// reads them in more.
func Resolve(s Sources, more ...func(*Resolver, *Config)) (Config, error) {
	r := &Resolver{sources: s, settings: map[string]Setting{}, found: map[string]*origin{}}
	c := Config{settings: s.settings(), Ignored: ignored(s)}
	for _, set := range c.settings {
		r.settings[set.Name] = set
		r.find(set)
	}
	r.dirs(&c)
	r.northbound(&c)
	r.kubernetes(&c)
	r.numbers(&c)
	r.subnets(&c)
	c.OVNRemote, c.EncapIP = r.Value(ovnRemote), r.Value(encapIP)
	c.EncapType, c.SystemID = r.Value(encapType), r.Value(systemID)
	c.CNIPlugin = r.Value(cniPlugin)
	c.Firewall = r.Value(firewall)
	if !slices.Contains([]string{AnyFirewall, NFTables, IPTables}, c.Firewall) {
		r.Fail(firewall, "want auto, nftables or iptables")
	}
	if m := r.Value(mode); m != "overlay" {
		r.Fail(mode, "want overlay")
	}
	for _, read := range more {
		read(r, &c)
	}
	for _, set := range c.settings {
		c.origins = append(c.origins, r.shown(set))
	}
	c.found, c.failed = r.found, r.failed
	return c, errors.Join(r.errs...)
}

// Read reads settings of a program's own from its configuration, as Resolve did in more. Errors about values are not
// repeated, and no file exists.
func (c Config) Read(read func(*Resolver, *Config)) {
	r := &Resolver{settings: map[string]Setting{}, found: map[string]*origin{}}
	for _, set := range c.settings {
		r.settings[set.Name] = set
		o := *c.found[set.Name]
		r.found[set.Name] = &o
	}
	read(r, &c)
}

// A Resolver has the settings as found, and collects errors about their values.
type Resolver struct {
	sources  Sources
	settings map[string]Setting
	found    map[string]*origin
	errs     []error
	failed   []string // as in Config
}

// find searches the sources for a setting, in the order of precedence.
func (r *Resolver) find(set Setting) {
	s := r.sources
	o := &origin{name: set.Name, source: "-"}
	r.found[set.Name] = o
	if r.take(o, s.Flags, set.Flags, func(n string) string { return "--" + n }) ||
		r.take(o, s.ExternalIDs, Named(set.ExternalID), func(n string) string { return "external_ids:" + n }) ||
		r.takeKey(o, set.Keys) {
		return
	}
	inCluster := func(n Name) bool { return n.Text == serviceHostEnv || n.Text == servicePortEnv }
	if r.take(o, s.Env, slices.DeleteFunc(slices.Clone(set.Env), inCluster), func(n string) string { return environment + n }) ||
		slices.ContainsFunc(set.Env, inCluster) && r.inCluster(o) {
		return
	}
	if set.Default != "" && !strings.HasPrefix(set.Default, "(") {
		o.value, o.source = set.Default, "default"
	}
}

// take takes the value of the first of names in a source. An old name wins over one of today, as in the
// releases that had both.
func (r *Resolver) take(o *origin, source map[string]string, names Names, text func(string) string) bool {
	for _, old := range []bool{true, false} {
		for _, n := range names {
			if v := strings.TrimSpace(source[n.Text]); n.Old == old && n.Text != "" && v != "" {
				o.value, o.source = v, text(n.Text)
				return true
			}
		}
	}
	return false
}

// takeKey is take for the file, whose keys have several spellings.
func (r *Resolver) takeKey(o *origin, names Names) bool {
	spelt := map[string]string{}
	for _, k := range slices.Backward(slices.Sorted(maps.Keys(r.sources.File))) {
		if strings.TrimSpace(r.sources.File[k]) != "" {
			spelt[fileKey(k)] = k
		}
	}
	values := map[string]string{}
	for _, n := range names {
		values[n.Text] = r.sources.File[spelt[fileKey(n.Text)]]
	}
	return r.take(o, values, names, func(n string) string { return r.sources.fileName() + ": " + keyText(spelt[fileKey(n)]) })
}

// inCluster takes the API server from the variables set by the kubelet in every container.
func (r *Resolver) inCluster(o *origin) bool {
	host, port := r.sources.Env[serviceHostEnv], r.sources.Env[servicePortEnv]
	if host == "" || port == "" {
		return false
	}
	o.value, o.source = "https://"+net.JoinHostPort(host, port), environment+serviceHostEnv
	return true
}

// environment begins the source of a value from a variable.
const environment = "environment: "

// Value returns the value of a setting.
func (r *Resolver) Value(name string) string { return r.found[name].value }

// Given reports whether a setting has a value that is not its default.
func (r *Resolver) Given(name string) bool {
	o := r.found[name]
	return o.value != "" && o.source != "default"
}

// Source names the source of a setting's value, as in Show: --mtu, or ovn_k8s.conf: mtu.
func (r *Resolver) Source(name string) string { return r.found[name].source }

// Exists reports whether there is a file at a path.
func (r *Resolver) Exists(path string) bool { return r.sources.exists(path) }

// set replaces a setting by its normal form, or by a substitute.
func (r *Resolver) set(name, value, source string) {
	r.found[name].value, r.found[name].source = value, source
}

// Fail records an error about a setting, with the valid values.
func (r *Resolver) Fail(name, want string) {
	o, value := r.found[name], ""
	if !r.settings[name].Secret {
		value = fmt.Sprintf(" %q", abbreviate(o.value))
	}
	r.failAs(name, fmt.Errorf("bad %s%s (from %s): %s", name, value, o.source, want))
}

// failAs is Fail with a text of its own.
func (r *Resolver) failAs(name string, err error) {
	r.errs, r.failed = append(r.errs, err), append(r.failed, name)
}

// Report records an error about several settings.
func (r *Resolver) Report(err error) { r.errs = append(r.errs, err) }

// abbreviate shortens a long value, such as a certificate.
func abbreviate(s string) string {
	if r := []rune(s); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	return s
}

// Path resolves a file or directory.
func (r *Resolver) Path(name string) string {
	v := r.Value(name)
	if v == "" {
		return ""
	}
	if !path.IsAbs(v) {
		r.Fail(name, "want an absolute path")
	}
	return path.Clean(v)
}

func (r *Resolver) dirs(c *Config) {
	c.RunDir, c.LogDir = r.Path(runDir), r.Path(logDir)
	c.CNIConfDir, c.CNIBinDir, c.CNILogFile = r.Path(cniConfDir), r.Path(cniBinDir), r.Path(cniLogFile)
	c.NBPrivateKey, c.NBCertificate, c.NBCACert = r.Path(nbPrivKey), r.Path(nbCert), r.Path(nbCACert)
	c.SBPrivateKey, c.SBCertificate, c.SBCACert = c.NBPrivateKey, c.NBCertificate, c.NBCACert
}

// northbound finds the database: the configured addresses, else the local socket, in OVN's own run directory since
// release 20.03 and in Open vSwitch's before.
func (r *Resolver) northbound(c *Config) {
	if r.Value(unixSocket) == "" {
		ovnDir := r.sources.Env["OVN_RUNDIR"]
		if ovnDir == "" {
			ovnDir = "/var/run/ovn"
		}
		socket := path.Join(ovnDir, "ovnnb_db.sock")
		if old := path.Join(c.RunDir, "ovnnb_db.sock"); !r.sources.exists(socket) && r.sources.exists(old) {
			socket = old
		}
		r.set(unixSocket, socket, "default")
	}
	c.NBSocket = r.Path(unixSocket)
	if r.Value(ovnNB) == "" {
		if r.sources.exists(c.NBSocket) {
			c.NB = []string{"unix:" + c.NBSocket}
			r.set(ovnNB, c.NB[0], "local socket")
		}
		return
	}
	remotes, err := ParseRemotes(r.Value(ovnNB))
	if err != nil {
		r.Fail(ovnNB, oneLine(err))
		return
	}
	c.NB = remotes
	r.set(ovnNB, strings.Join(remotes, ","), r.found[ovnNB].source)
}

// oneLine formats joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (r *Resolver) numbers(c *Config) {
	// IPv6 requires an MTU of 1280 bytes (RFC 8200 section 5); IPv4 hosts must accept 576 (RFC 791).
	c.MTU = r.Number(mtu, 576, 65535)
	c.ConntrackZone = r.Number(conntrackZone, 1, 65535)
	c.CNITimeout = r.duration(cniTimeout)
}

// Number parses a number.
func (r *Resolver) Number(name string, low, high int) int {
	n, err := strconv.Atoi(r.Value(name))
	if err != nil || n < low || n > high {
		r.Fail(name, fmt.Sprintf("want a number from %d to %d", low, high))
	}
	return n
}

// boolean parses true or false.
func (r *Resolver) boolean(name string) bool {
	v := r.Value(name)
	if v != "true" && v != "false" {
		r.Fail(name, "want true or false")
	}
	return v == "true"
}

func (r *Resolver) duration(name string) time.Duration {
	v := r.Value(name)
	if _, err := strconv.Atoi(v); err == nil {
		v += "s"
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Second || d > time.Hour {
		r.Fail(name, "want a time from 1s to 1h")
	}
	return d
}

func (r *Resolver) subnets(c *Config) {
	c.ClusterSubnets = r.prefixes(clusterSubnet)
	c.JoinSubnets = r.prefixes(joinSubnet)
	c.ServiceCIDRs = r.prefixes(serviceCIDR)
	c.LocalSubnets = r.prefixes(localGateway)
	c.ExternalIPs = r.boolean(externalIPs)
	c.GatewayPorts = r.portRange(gatewayPorts)
	c.Healthz = r.listenAddress(healthz)
	r.onePerFamily(joinSubnet, c.JoinSubnets)
	r.onePerFamily(localGateway, c.LocalSubnets)
}

// portRange parses two ports joined by a hyphen.
func (r *Resolver) portRange(name string) string {
	low, high, _ := strings.Cut(r.Value(name), "-")
	a, err1 := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || a > b {
		r.Fail(name, "want two ports with a hyphen, the lower first, as in 10000-29999")
	}
	return r.Value(name)
}

// listenAddress parses an address to listen at, or "off".
func (r *Resolver) listenAddress(name string) string {
	v := r.Value(name)
	if v == "off" {
		return ""
	}
	host, port, err := net.SplitHostPort(v)
	_, err2 := netip.ParseAddr(host)
	if n, err3 := strconv.ParseUint(port, 10, 16); err != nil || err2 != nil && host != "" || err3 != nil || n == 0 {
		r.Fail(name, "want IP:PORT, :PORT or off, as in :10256")
	}
	return v
}

// prefixes parses comma-separated subnets. Host bits must be zero, since a subnet such as 10.0.0.1/8 is more often an
// error than not.
func (r *Resolver) prefixes(name string) []netip.Prefix {
	var out []netip.Prefix
	for _, word := range strings.Split(r.Value(name), ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p.Addr().Is4In6() {
			r.Fail(name, fmt.Sprintf("%q is not a subnet; want ADDRESS/LENGTH, as in 10.96.0.0/12", word))
			continue
		}
		if p != p.Masked() {
			r.Fail(name, fmt.Sprintf("%q has bits of the host set; want %v", word, p.Masked()))
			continue
		}
		out = append(out, p)
	}
	return out
}

func (r *Resolver) onePerFamily(name string, subnets []netip.Prefix) {
	seen := map[bool]bool{}
	for _, p := range subnets {
		if seen[p.Addr().Is4()] {
			r.Fail(name, "want at most one subnet per address family")
			return
		}
		seen[p.Addr().Is4()] = true
	}
}

// shown is a setting as printed by Show.
func (r *Resolver) shown(set Setting) origin {
	o := *r.found[set.Name]
	if set.Secret {
		o.value = Secret(o.value).String()
	}
	o.exact = cmp.Or(o.exact, o.value)
	o.value = abbreviate(o.value)
	return o
}

// Show returns a table of all settings with their values and sources. Secrets are masked.
func (c Config) Show() string {
	rows := append([]origin{{name: "NAME", value: "VALUE", source: "SOURCE"}}, c.origins...)
	var name, value int
	for _, o := range rows {
		name, value = max(name, len(o.name)), max(value, len(o.value))
	}
	var b strings.Builder
	for _, o := range rows {
		if o.value == "" {
			o.value = "-"
		}
		fmt.Fprintf(&b, "%-*s  %-*s  %s\n", name, o.name, value, o.value, o.source)
	}
	return b.String()
}

// String is Show.
func (c Config) String() string { return c.Show() }

// GoString is Show: the verb %#v must not print secrets either.
func (c Config) GoString() string { return c.Show() }
