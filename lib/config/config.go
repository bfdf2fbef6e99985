// Package config resolves the suite's configuration: one pure function for
// all programs. A setting is taken from the command line, else from
// external_ids of the table Open_vSwitch, else from ovn_k8s.conf, else from
// the environment and the service account's files, else it has its default.
package config

import (
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Errors of programs that need a setting that is not there. Scripts may match
// the texts: they are the originals'.
var (
	ErrNoNB        = errors.New("OVN central database's ip address not set")
	ErrNoAPIServer = errors.New("K8S_API_SERVER not set")
)

// Sources is what the settings are taken from. A value that is empty is as
// good as none.
type Sources struct {
	Flags       map[string]string // by option without dashes
	ExternalIDs map[string]string // of the table Open_vSwitch
	File        map[string]string // section [default] of ovn_k8s.conf
	FileName    string            // for messages; empty means ovn_k8s.conf
	Env         map[string]string
	// Exists tells whether there is a file or socket at a path. A nil function
	// means that there is none.
	Exists func(path string) bool
}

func (s Sources) fileName() string {
	if s.FileName == "" {
		return "ovn_k8s.conf"
	}
	return s.FileName
}

func (s Sources) exists(path string) bool { return s.Exists != nil && s.Exists(path) }

// A Secret is a text that is never printed: not by fmt, not as JSON.
type Secret string

// mask stands for a secret.
const mask = "********"

// String returns stars, or nothing if the secret is empty.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString is String for the verb %#v.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON returns String as JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(strconv.Quote(s.String())), nil }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// A Config is the configuration of a program. Paths are absolute.
type Config struct {
	// NB is where the Northbound database is, in OVS's spelling; several if it
	// is a cluster; none if it is not known (ErrNoNB).
	NB []string
	// NBPrivateKey, NBCertificate and NBCACert are files, used for ssl:.
	NBPrivateKey, NBCertificate, NBCACert string
	// NBSocket is the unix socket of a Northbound database on this host.
	NBSocket string

	// APIServer is a URL with its scheme, or empty (ErrNoAPIServer).
	APIServer string
	// APIToken and APITokenFile: at most one of them is set.
	APIToken     Secret
	APITokenFile string
	// APICA is PEM text, APICAFile a path: at most one of them is set.
	APICA, APICAFile string

	MTU            int // bytes
	ConntrackZone  int
	ClusterSubnets []netip.Prefix
	JoinSubnets    []netip.Prefix // at most one per family
	ServiceCIDRs   []netip.Prefix
	LocalSubnets   []netip.Prefix // between a local gateway and its host, one per family
	GatewayPorts   string         // "LOW-HIGH"

	// OVNRemote, EncapIP, EncapType and SystemID are ovn-controller's, as they
	// are in the database.
	OVNRemote, EncapIP, EncapType, SystemID string

	CNIConfDir, CNIBinDir string
	CNIPlugin             string // a path, or a name to be found on PATH
	CNILogFile            string
	CNITimeout            time.Duration

	// RunDir and LogDir are Open vSwitch's.
	RunDir, LogDir string

	// Ignored has a sentence about each key that looks as if it was meant for the
	// suite but that no setting has.
	Ignored []string

	origins []origin
}

// Same reports whether two configurations have the same settings. The value of
// APIToken may differ: clients read it for each request.
func (c Config) Same(other Config) bool {
	for _, one := range []*Config{&c, &other} {
		one.origins, one.Ignored = nil, nil
		if one.APIToken != "" {
			one.APIToken = "set"
		}
	}
	return reflect.DeepEqual(c, other)
}

// An origin says what a setting is and where that comes from, for Show.
type origin struct{ name, value, source string }

// Resolve makes a configuration of what the sources say. It reports all
// problems at once: each error names the value, where it came from and what
// would be right. The values of secrets are not named.
func Resolve(s Sources) (Config, error) {
	r := &resolver{sources: s, settings: map[string]Setting{}, found: map[string]*origin{}}
	for _, set := range Settings() {
		r.settings[set.Name] = set
		r.find(set)
	}
	c := Config{Ignored: ignored(s)}
	r.dirs(&c)
	r.northbound(&c)
	r.kubernetes(&c)
	r.numbers(&c)
	r.subnets(&c)
	c.OVNRemote, c.EncapIP = r.value(ovnRemote), r.value(encapIP)
	c.EncapType, c.SystemID = r.value(encapType), r.value(systemID)
	c.CNIPlugin = r.value(cniPlugin)
	if m := r.value(mode); m != "overlay" {
		r.fail(mode, "want overlay")
	}
	for _, set := range Settings() {
		c.origins = append(c.origins, r.shown(set))
	}
	return c, errors.Join(r.errs...)
}

// A resolver collects what is found and what is wrong.
type resolver struct {
	sources  Sources
	settings map[string]Setting
	found    map[string]*origin
	errs     []error
}

// fileKey spells a key of the file as Setting.Key does: hyphens are as good.
func fileKey(k string) string { return strings.ReplaceAll(strings.ToLower(k), "-", "_") }

// find looks for a setting in the sources, highest first.
func (r *resolver) find(set Setting) {
	s := r.sources
	o := &origin{name: set.Name, source: "-"}
	r.found[set.Name] = o
	if v := strings.TrimSpace(s.Flags[set.Flag]); set.Flag != "" && v != "" {
		o.value, o.source = v, "--"+set.Flag
		return
	}
	if v := strings.TrimSpace(s.ExternalIDs[set.ExternalID]); set.ExternalID != "" && v != "" {
		o.value, o.source = v, "external_ids:"+set.ExternalID
		return
	}
	for _, k := range slices.Sorted(maps.Keys(s.File)) {
		v := strings.TrimSpace(s.File[k])
		if set.Key != "" && fileKey(k) == set.Key && v != "" {
			o.value, o.source = v, s.fileName()+": "+k
			return
		}
	}
	if set.Name == apiServer {
		r.inCluster(o)
		return
	}
	for _, e := range set.Env {
		if v := strings.TrimSpace(s.Env[e]); v != "" {
			o.value, o.source = v, "environment: "+e
			return
		}
	}
	if set.Default != "" && !strings.HasPrefix(set.Default, "(") {
		o.value, o.source = set.Default, "default"
	}
}

// inCluster takes the API server from the variables that the kubelet gives to
// every container.
func (r *resolver) inCluster(o *origin) {
	host, port := r.sources.Env[serviceHostEnv], r.sources.Env[servicePortEnv]
	if host == "" || port == "" {
		return
	}
	o.value, o.source = "https://"+net.JoinHostPort(host, port), "environment: "+serviceHostEnv
}

func (r *resolver) value(name string) string { return r.found[name].value }

// set changes a setting to its normal form, or to what is taken in its place.
func (r *resolver) set(name, value, source string) {
	r.found[name].value, r.found[name].source = value, source
}

// fail notes that a setting is bad, and what would be right.
func (r *resolver) fail(name, want string) {
	o, value := r.found[name], ""
	if !r.settings[name].Secret {
		value = fmt.Sprintf(" %q", abbreviate(o.value))
	}
	r.errs = append(r.errs, fmt.Errorf("bad %s%s (from %s): %s", name, value, o.source, want))
}

// abbreviate keeps a long value, such as a certificate, from filling a line.
func abbreviate(s string) string {
	if r := []rune(s); len(r) > 100 {
		return string(r[:100]) + "…"
	}
	return s
}

// path resolves a setting that is a file or directory.
func (r *resolver) path(name string) string {
	v := r.value(name)
	if v == "" {
		return ""
	}
	if !path.IsAbs(v) {
		r.fail(name, "want an absolute path")
	}
	return path.Clean(v)
}

func (r *resolver) dirs(c *Config) {
	c.RunDir, c.LogDir = r.path(runDir), r.path(logDir)
	c.CNIConfDir, c.CNIBinDir, c.CNILogFile = r.path(cniConfDir), r.path(cniBinDir), r.path(cniLogFile)
	c.NBPrivateKey, c.NBCertificate, c.NBCACert = r.path(nbPrivKey), r.path(nbCert), r.path(nbCACert)
}

// northbound finds the database: where it is said to be, else at the local
// socket, which OVN puts into a directory of its own since release 20.03 and
// into Open vSwitch's before.
func (r *resolver) northbound(c *Config) {
	if r.value(unixSocket) == "" {
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
	c.NBSocket = r.path(unixSocket)
	if r.value(ovnNB) == "" {
		if r.sources.exists(c.NBSocket) {
			c.NB = []string{"unix:" + c.NBSocket}
			r.set(ovnNB, c.NB[0], "local socket")
		}
		return
	}
	remotes, err := ParseRemotes(r.value(ovnNB))
	if err != nil {
		r.fail(ovnNB, oneLine(err))
		return
	}
	c.NB = remotes
	r.set(ovnNB, strings.Join(remotes, ","), r.found[ovnNB].source)
}

// oneLine formats joined errors on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (r *resolver) kubernetes(c *Config) {
	c.APIServer = r.apiServer()
	r.token(c)
	r.ca(c)
}

// apiServer is the URL; without a scheme it is http, as in the originals.
func (r *resolver) apiServer() string {
	v := r.value(apiServer)
	if v == "" {
		return ""
	}
	if strings.Contains(v, "@") {
		// Not by fail, which would print the password.
		source := r.found[apiServer].source
		r.errs = append(r.errs, fmt.Errorf("bad %s (from %s): it must not have a user or password; use %s", apiServer, source, apiToken))
		r.set(apiServer, mask, source)
		return ""
	}
	if !strings.Contains(v, "://") {
		v = "http://" + v
	}
	const want = "want HOST:PORT, http://HOST:PORT or https://HOST:PORT"
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		r.fail(apiServer, want)
		return ""
	}
	if p := u.Port(); strings.HasSuffix(u.Host, ":") || (p != "" && !isPort(p)) {
		r.fail(apiServer, want)
		return ""
	}
	v = strings.TrimRight(v, "/")
	r.set(apiServer, v, r.found[apiServer].source)
	return v
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// token chooses between a token and a file with one: the higher source wins,
// and the token if both come from the same.
func (r *resolver) token(c *Config) {
	token, file := r.found[apiToken], r.found[apiTokenFile]
	if token.value == "" && file.value == "" && r.sources.exists(ServiceAccountToken) {
		r.set(apiTokenFile, ServiceAccountToken, "service account")
	}
	switch {
	case token.value != "" && file.value != "" && rank(file.source) < rank(token.source):
		r.set(apiToken, "", "-")
	case token.value != "":
		r.set(apiTokenFile, "", "-")
	}
	if strings.ContainsAny(token.value, " \t\r\n") {
		r.fail(apiToken, "a token has no white space")
	}
	c.APIToken = Secret(token.value)
	c.APITokenFile = r.path(apiTokenFile)
}

// rank orders sources, highest first.
func rank(source string) int {
	switch {
	case strings.HasPrefix(source, "--"):
		return 0
	case strings.HasPrefix(source, "external_ids:"):
		return 1
	}
	return 2
}

// ca takes the API server's CA as text or file. A token's service account has
// its CA beside it.
func (r *resolver) ca(c *Config) {
	if r.value(apiCA) == "" {
		for _, d := range []origin{{value: defaultAPICA, source: "default"}, {value: ServiceAccountCA, source: "service account"}} {
			if r.sources.exists(d.value) {
				r.set(apiCA, d.value, d.source)
				break
			}
		}
	}
	v := r.value(apiCA)
	switch {
	case v == "":
	case strings.HasPrefix(v, "-----BEGIN"):
		c.APICA = r.pem(v)
	case path.IsAbs(v):
		c.APICAFile = path.Clean(v)
	default:
		r.fail(apiCA, "want PEM text that starts with -----BEGIN CERTIFICATE-----, or an absolute path")
	}
}

// pem checks PEM text, in which the two characters \n may stand for the end
// of a line, and counts its certificates.
func (r *resolver) pem(v string) string {
	text := strings.ReplaceAll(strings.ReplaceAll(v, `\r`, ""), `\n`, "\n") + "\n"
	n := 0
	for rest := []byte(text); ; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			// Not by fail, which would print what may be a private key.
			r.errs = append(r.errs, fmt.Errorf("bad %s (from %s): it has a %s; want certificates only", apiCA, r.found[apiCA].source, block.Type))
			r.set(apiCA, "PEM text", r.found[apiCA].source)
			return ""
		}
	}
	if n == 0 {
		r.fail(apiCA, "the PEM text is damaged: no certificate can be read")
		return ""
	}
	r.set(apiCA, fmt.Sprintf("PEM text, certificates: %d", n), r.found[apiCA].source)
	return text
}

func (r *resolver) numbers(c *Config) {
	// RFC 8200 section 5 asks for 1280 bytes with IPv6, RFC 791 for 576 that
	// every host must take with IPv4.
	c.MTU = r.number(mtu, 576, 65535)
	c.ConntrackZone = r.number(conntrackZone, 1, 65535)
	c.CNITimeout = r.duration(cniTimeout)
}

func (r *resolver) number(name string, low, high int) int {
	n, err := strconv.Atoi(r.value(name))
	if err != nil || n < low || n > high {
		r.fail(name, fmt.Sprintf("want a number from %d to %d", low, high))
	}
	return n
}

func (r *resolver) duration(name string) time.Duration {
	v := r.value(name)
	if _, err := strconv.Atoi(v); err == nil {
		v += "s"
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < time.Second || d > time.Hour {
		r.fail(name, "want a time from 1s to 1h")
	}
	return d
}

func (r *resolver) subnets(c *Config) {
	c.ClusterSubnets = r.prefixes(clusterSubnet)
	c.JoinSubnets = r.prefixes(joinSubnet)
	c.ServiceCIDRs = r.prefixes(serviceCIDR)
	c.LocalSubnets = r.prefixes(localGateway)
	c.GatewayPorts = r.portRange(gatewayPorts)
	r.onePerFamily(joinSubnet, c.JoinSubnets)
	r.onePerFamily(localGateway, c.LocalSubnets)
}

// portRange reads two ports with a hyphen.
func (r *resolver) portRange(name string) string {
	low, high, _ := strings.Cut(r.value(name), "-")
	a, err1 := strconv.ParseUint(low, 10, 16)
	b, err2 := strconv.ParseUint(high, 10, 16)
	if err1 != nil || err2 != nil || a == 0 || a > b {
		r.fail(name, "want two ports with a hyphen, the lower first, as in 10000-29999")
	}
	return r.value(name)
}

// prefixes reads subnets with commas. Bits of the host must be zero, since a
// subnet such as 10.0.0.1/8 is more often an error than not.
func (r *resolver) prefixes(name string) []netip.Prefix {
	var out []netip.Prefix
	for _, word := range strings.Split(r.value(name), ",") {
		word = strings.TrimSpace(word)
		if word == "" {
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p.Addr().Is4In6() {
			r.fail(name, fmt.Sprintf("%q is not a subnet; want ADDRESS/LENGTH, as in 10.96.0.0/12", word))
			continue
		}
		if p != p.Masked() {
			r.fail(name, fmt.Sprintf("%q has bits of the host set; want %v", word, p.Masked()))
			continue
		}
		out = append(out, p)
	}
	return out
}

func (r *resolver) onePerFamily(name string, subnets []netip.Prefix) {
	seen := map[bool]bool{}
	for _, p := range subnets {
		if seen[p.Addr().Is4()] {
			r.fail(name, "want at most one subnet per address family")
			return
		}
		seen[p.Addr().Is4()] = true
	}
}

// shown is a setting as Show prints it.
func (r *resolver) shown(set Setting) origin {
	o := *r.found[set.Name]
	if set.Secret {
		o.value = Secret(o.value).String()
	}
	o.value = abbreviate(o.value)
	return o
}

// Show returns a table of all settings, their values and where each came
// from. Secrets are masked.
func (c Config) Show() string {
	rows := append([]origin{{"NAME", "VALUE", "SOURCE"}}, c.origins...)
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

// GoString is Show, so that the verb %#v prints no secret either.
func (c Config) GoString() string { return c.Show() }
