// Package settings collects the sources of a program's configuration, from the command line to the files on this
// host, and has lib/config resolve it.
package settings

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gopkg.in/ini.v1"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/ovsdb/vswitch"
)

// Flags are the configuration options common to all programs. Without an option the setting comes from the other
// sources.
type Flags struct {
	NB           string `long:"ovn-nb" value-name:"REMOTE" description:"Northbound database: unix:FILE, tcp:IP:PORT or ssl:IP:PORT, several with commas"`
	NBPrivateKey string `long:"nb-privkey" value-name:"FILE" description:"private key for an ssl: Northbound database"`
	NBCert       string `long:"nb-cert" value-name:"FILE" description:"certificate for an ssl: Northbound database"`
	NBCACert     string `long:"nb-cacert" value-name:"FILE" description:"CA certificate of an ssl: Northbound database"`
	APIServer    string `long:"k8s-api-server" value-name:"URL" description:"Kubernetes API server"`
	APITokenFile string `long:"k8s-api-token-file" value-name:"FILE" description:"bearer token for the API server"`
	APICA        string `long:"k8s-ca-certificate" value-name:"FILE" description:"CA certificate of the API server"`
	MTU          string `long:"mtu" value-name:"BYTES" description:"MTU of pods and management ports"`
	JoinSubnet   string `long:"join-subnet" value-name:"CIDR,CIDR" description:"subnets between the cluster router and gateways"`
	ServiceCIDR  string `long:"service-cidr" value-name:"CIDR,CIDR" description:"subnets of services"`
	Firewall     string `long:"firewall" value-name:"NAME" description:"how a host's rules are written: auto, nftables or iptables"`
	Healthz      string `long:"healthz-bind-address" value-name:"IP:PORT" description:"address of a host's /healthz and /livez, or off"`
	ConfigFile   string `long:"config-file" value-name:"FILE" description:"read this instead of /etc/openvswitch/ovn_k8s.conf"`
	ShowConfig   bool   `long:"show-config" description:"print every setting and where it comes from, and exit"`
}

// Map returns the given settings, by option without dashes, for Load.
func (f Flags) Map() map[string]string {
	m := map[string]string{
		"ovn-nb": f.NB, "nb-privkey": f.NBPrivateKey, "nb-cert": f.NBCert, "nb-cacert": f.NBCACert,
		"k8s-api-server": f.APIServer, "k8s-api-token-file": f.APITokenFile, "k8s-ca-certificate": f.APICA,
		"mtu": f.MTU, "join-subnet": f.JoinSubnet, "service-cidr": f.ServiceCIDR, "firewall": f.Firewall, "healthz-bind-address": f.Healthz,
		configFile: f.ConfigFile,
	}
	for k, v := range m {
		if v == "" {
			delete(m, k)
		}
	}
	return m
}

// configFile is the option with the path of the configuration file. It is not a setting itself.
const configFile = "config-file"

// Load resolves the configuration of a program from its flags (see Flags.Map), the local Open vSwitch, the
// configuration file, the environment and files on this host. Without sw there are no external_ids.
func Load(_ context.Context, flags map[string]string, sw *vswitch.Switch) (config.Config, error) {
	s, err := sources(flags, sw)
	if err != nil {
		return config.Config{}, err
	}
	return config.Resolve(s)
}

// sources reads the sources of a configuration on this host.
func sources(flags map[string]string, sw *vswitch.Switch) (config.Sources, error) {
	s := config.Sources{Flags: flags, Env: environment(), Exists: exists}
	if sw != nil {
		s.ExternalIDs = sw.ExternalIDs()
	}
	return s, readFile(&s)
}

// A Source gives the settings of this host. It has those of the command line, see Flags.Map, and reads files and the
// environment.
type Source map[string]string

// RunDir is the function RunDir.
func (s Source) RunDir() (string, error) { return RunDir(s) }

// Load is the function Load.
func (s Source) Load(ctx context.Context, sw *vswitch.Switch) (config.Config, error) {
	return Load(ctx, s, sw)
}

// RunDir returns the directory of Open vSwitch's sockets, needed to read its external_ids: from the configuration
// file, else from OVS_RUNDIR, else the default. Load reports an invalid directory of log files.
func RunDir(flags map[string]string) (string, error) {
	_, c, err := directories(flags)
	if c.ValidFor(config.Plugin) {
		return c.RunDir, nil
	}
	return c.RunDir, err
}

// UseDirectories passes the directories that the configuration file names to the parts of this process and to its
// children, in Open vSwitch's own variables. It belongs into mains.
func UseDirectories(flags map[string]string) error {
	file, c, err := directories(flags)
	if err == nil && file["rundir"] != "" {
		err = os.Setenv("OVS_RUNDIR", c.RunDir)
	}
	if err == nil && file["logdir"] != "" {
		err = os.Setenv("OVS_LOGDIR", c.LogDir)
	}
	return err
}

// directories resolves the directories of Open vSwitch, and returns those of the configuration file, too.
func directories(flags map[string]string) (file map[string]string, c config.Config, err error) {
	s := config.Sources{Env: environment(), Flags: map[string]string{configFile: flags[configFile]}}
	if err := readFile(&s); err != nil {
		return nil, c, err
	}
	file = map[string]string{"rundir": s.File["default.rundir"], "logdir": s.File["default.logdir"]}
	env := map[string]string{"OVS_RUNDIR": s.Env["OVS_RUNDIR"], "OVS_LOGDIR": s.Env["OVS_LOGDIR"]} // others may be wrong
	c, err = config.Resolve(config.Sources{Env: env, File: file, FileName: s.FileName})
	return file, c, err
}

// file is the path of the configuration file.
func file(flags map[string]string) string {
	return cmp.Or(flags[configFile], defaultFile(environment()))
}

// HasSwitch reports whether this host has an Open vSwitch, running or not.
func HasSwitch() bool {
	env := environment()
	return exists(filepath.Join(cmp.Or(env["OVS_DBDIR"], filepath.Dir(defaultFile(env))), "conf.db"))
}

func environment() map[string]string {
	env := map[string]string{}
	for _, kv := range os.Environ() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return env
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readFile reads the configuration file. Only a file given by an option must exist. File stays nil if it is missing or empty.
func readFile(s *config.Sources) error {
	asked := s.Flags[configFile]
	s.FileName = cmp.Or(asked, defaultFile(s.Env))
	text, err := os.ReadFile(s.FileName)
	if asked == "" && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	s.File, err = parse(text)
	if err != nil {
		return fmt.Errorf("reading the configuration: %s:%w", s.FileName, err)
	}
	return nil
}

// defaultFile follows OVS_SYSCONFDIR as Open vSwitch does.
func defaultFile(env map[string]string) string {
	dir := env["OVS_SYSCONFDIR"]
	if dir == "" {
		dir = "/etc"
	}
	return filepath.Join(dir, "openvswitch", "ovn_k8s.conf")
}

// parse reads an INI file and returns its keys as "section.key", in lower case. The error begins with the number of the
// line.
func parse(text []byte) (map[string]string, error) {
	// Values may hold any character: a '#' or ';' inside is no comment.
	options := ini.LoadOptions{IgnoreInlineComment: true, SkipUnrecognizableLines: false, AllowPythonMultilineValues: false, Insensitive: true}
	f, err := ini.LoadSources(options, text)
	if err != nil {
		return nil, fmt.Errorf("%d: %w", badLine(options, text), err)
	}
	keys := map[string]string{}
	// The library keeps the name DEFAULT, for [DEFAULT] and the text before any section. It comes first.
	for _, section := range f.Sections() {
		for k, v := range section.KeysHash() {
			keys[strings.ToLower(section.Name())+"."+k] = v
		}
	}
	return keys, nil
}

// badLine finds the first invalid line, because the library does not report its number.
func badLine(options ini.LoadOptions, text []byte) int {
	lines := strings.SplitAfter(string(text), "\n")
	for n := range lines {
		if _, err := ini.LoadSources(options, []byte(strings.Join(lines[:n+1], ""))); err != nil {
			return n + 1
		}
	}
	return len(lines)
}
