// Package options has the options of ovnkube: every option, key and variable since 2018, what they mean together, and which
// values are wrong. It computes: the values go in, the options or one line per fault come out.
package options

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/hostids"
	"ovn-k8s/lib/desired/nodesubnet"
)

// Options are the options of one process. The roles' own settings are in Config.
type Options struct {
	config.Config

	// Master, Node, Cleanup and Remove are names of Nodes, empty without that role.
	Master, Node, Cleanup, Remove string
	// Adopt takes over a cluster whose nodes got their subnets otherwise.
	Adopt bool

	ClusterSubnets nodesubnet.Ranges
	SB             []string // addresses of the Southbound database, as Config.NB
	// NBServer and SBServer are files for the servers of the databases on this host; empty: the servers stay as they are.
	NBServer, SBServer Files
	Gateway            Gateway
	// InactivityProbe, in milliseconds, and OpenflowProbe, in seconds, are how often ovn-controller probes the Southbound
	// database and ovs-vswitchd.
	InactivityProbe, OpenflowProbe int
	// TunnelIP is the address of tunnels from an option, an operator's external_ids or the file: "" without one. Config
	// also has the address that the node role found.
	TunnelIP string
	LogLevel int // 1 to 5
	LogFile  string
	Rotation Rotation
	Lease    Lease

	// Advice has a sentence about each option in use that has a better one.
	Advice []string
}

// Files are the PEM files of a TLS server.
type Files struct{ PrivateKey, Certificate, CACert string }

// Modes of a gateway.
const (
	Shared = "shared"
	Spare  = "spare"
	Local  = "local"
)

// A Gateway is the configuration of this host's gateway.
type Gateway struct {
	Mode     string // Shared, Spare or Local; empty: no gateway
	NIC      string // empty: that of the default route
	NextHops []netip.Addr
	VLAN     int
	NodePort bool
}

// Groups returns the options for a command line.
func Groups() []cli.Group {
	var groups []cli.Group
	for _, name := range []string{roles, common, gateways, cni, kubernetes, north, south, logging} {
		groups = append(groups, cli.Group{Name: name})
	}
	for _, e := range table() {
		for _, f := range e.Flags {
			i := slices.IndexFunc(groups, func(g cli.Group) bool { return g.Name == e.group })
			groups[i].Options = append(groups[i].Options, cli.Option{Name: f.Text, Value: e.value, Text: e.Text, Boolean: e.boolean, Hidden: f.Old})
		}
	}
	return groups
}

// Resolve computes the options from their sources. The error has one line for each fault.
func Resolve(s config.Sources) (Options, error) {
	s = withoutOwn(s)
	var o Options
	c, err := config.Resolve(s, func(r *config.Resolver, c *config.Config) {
		q := &reader{r, &o}
		q.read(c)
		q.checkRoles(s.Flags)
		o.Advice = slices.Concat(o.Advice, q.advice(s.Flags), q.formerGateway(s.Flags), q.localGateway())
	})
	o.Config = c
	return o, err
}

// withoutOwn returns the sources with the settings of ovnkube, and without the values that its node role itself has set in
// external_ids: these are not an operator's. The address of tunnels that it found is the default, because roles need it.
func withoutOwn(s config.Sources) config.Sources {
	own := s.ExternalIDs[encapIP]
	s.Settings, s.ExternalIDs = Settings(), hostids.Given(s.ExternalIDs)
	if s.ExternalIDs[encapIP] != "" {
		return s
	}
	for i := range s.Settings {
		if s.Settings[i].Name == encapIP {
			s.Settings[i].Default = own
		}
	}
	return s
}

// Config is Resolve for programs that take a configuration, such as settings.Runtime. Of returns the options in it.
func Config(s config.Sources) (config.Config, error) {
	o, err := Resolve(s)
	return o.Config, err
}

// Of returns the options in a configuration that Resolve or Config has returned, as in a settings.Session. Advice is empty.
func Of(c config.Config) Options {
	var o Options
	c.Read(func(r *config.Resolver, c *config.Config) { (&reader{r, &o}).read(c) })
	o.Config = c
	return o
}

// advice describes settings in use that have no effect, and options that have a better one.
func (q *reader) advice(flags map[string]string) (all []string) {
	for _, e := range table() {
		if e.idle && q.Given(e.Name) {
			all = append(all, noEffect(q.Source(e.Name), e.instead))
		}
		for _, f := range e.Flags {
			if now := e.Flags.Current(); f.Old && now != "" && flags[f.Text] != "" {
				all = append(all, fmt.Sprintf("--%s is an old name of --%s, and wins over it", f.Text, now))
			}
		}
	}
	if flags["k8s-token"] != "" {
		all = append(all, "--k8s-token is hidden from ps, but not from the shell's history and the unit's file: write the token to a file and give --k8s-api-token-file=FILE, which is read again when it changes")
	}
	if flags[netController] != "" {
		all = append(all, noEffect("--"+netController, ""))
	}
	if flags["ha"] == "true" {
		all = append(all, "--ha has no effect: the Northbound database is rebuilt from Kubernetes in any case")
	}
	return all
}

// noEffect describes a value without effect by its source, with what there is in its place.
func noEffect(source, instead string) string {
	if instead != "" {
		instead = ": " + instead
	}
	return source + " has no effect" + instead + "; remove it"
}

// formerGateway describes options of former releases for the gateway, with the one to give in their place.
func (q *reader) formerGateway(flags map[string]string) []string {
	var given []string
	for _, name := range []string{initGateways, gatewayLocal, gatewayLocalnet, gatewaySpare} {
		if flags[name] == "true" {
			given = append(given, "--"+name)
		}
	}
	text := strings.Join(given, ", ")
	switch {
	case text == "":
		return nil
	case q.Given(gatewayMode):
		return []string{text + ": no effect beside gateway-mode; remove it"}
	case q.Gateway.Mode == "":
		return []string{text + ": no effect without --init-gateways; remove it, or give --gateway-mode"}
	}
	return []string{fmt.Sprintf("%s: of former releases; give --gateway-mode=%s in its place", text, q.Gateway.Mode)}
}

// Secret reports whether an option, perhaps abbreviated, has a secret value.
func Secret(option string) bool {
	secrets, others := 0, 0
	for _, e := range table() {
		for _, f := range e.Flags {
			switch {
			case option == "" || !strings.HasPrefix(f.Text, option):
			case e.Secret:
				secrets++
			default:
				others++
			}
		}
	}
	return secrets > 0 && others == 0
}

// ErrNoRole is the error of a command line without a role.
var ErrNoRole = errors.New("no role is given: want --init-master=NAME, --init-node=NAME or both")

// Certain returns those parts of an error of Resolve that are true whatever external_ids are: they are about the command
// line. nil: there are none.
func Certain(err error) error {
	parts := []error{err}
	if j, ok := err.(interface{ Unwrap() []error }); ok {
		parts = j.Unwrap()
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(parts), func(e error) bool {
		return e == nil || !errors.Is(e, ErrNoRole) && !strings.Contains(e.Error(), "(from --") || strings.HasSuffix(e.Error(), noToken)
	})...)
}

// A reader reads the settings of ovnkube.
type reader struct {
	*config.Resolver
	*Options
}

// read reads all settings of ovnkube.
func (q *reader) read(c *config.Config) {
	q.Master, q.Node, q.Cleanup, q.Remove = q.Value(initMaster), q.Value(initNode), q.Value(cleanupNode), q.Value(removeNode)
	q.Adopt = q.Value(adopt) == "true"
	q.retired()
	q.numbers()
	q.subnets(c)
	q.gateway()
	q.databases(c)
	q.kubernetes(c)
}

// retired refuses options that are not supported.
func (q *reader) retired() {
	for _, e := range table() {
		if v := q.Value(e.Name); e.unsupported && q.Given(e.Name) && (!e.boolean || v != "false") {
			q.Fail(e.Name, "it is not supported; remove it")
		}
	}
}

// checkRoles finds roles without a name, and those that cannot be combined.
func (q *reader) checkRoles(flags map[string]string) {
	for _, name := range []string{initMaster, initNode, cleanupNode, removeNode} {
		if v, ok := flags[name]; ok && strings.TrimSpace(v) == "" {
			q.Report(fmt.Errorf("bad %s %q (from --%s): want the name of a Node", name, v, name))
			return
		}
	}
	once := q.Cleanup != "" || q.Remove != ""
	switch running := q.Master != "" || q.Node != ""; {
	case !running && !once:
		q.Report(ErrNoRole)
	case running && once || q.Cleanup != "" && q.Remove != "":
		name := map[bool]string{true: cleanupNode, false: removeNode}[q.Cleanup != ""]
		q.Fail(name, "it cannot be combined with another role")
	}
}

func (q *reader) numbers() {
	q.LogLevel, q.LogFile = q.Number(logLevel, 1, 5), q.Path(logFile)
	q.InactivityProbe, q.OpenflowProbe = q.Number(inactivityProbe, 0, 1<<31-1), q.Number(openflowProbe, 0, 1<<31-1)
	if q.Value(encapPort) != tunnelPort {
		q.Fail(encapPort, "tunnels have port "+tunnelPort+", since ovn-controller has no setting for another; want "+tunnelPort+", or no "+encapPort)
	}
	q.rotation()
	q.lease()
	for _, e := range table() {
		if e.boolean {
			q.boolean(e.Name)
		}
	}
	if err := config.CheckTunnelTypes(q.Value(encapType)); err != nil && q.Node != "" {
		q.Fail(encapType, err.Error())
	}
	if q.Given(encapIP) {
		q.addresses(encapIP)
		q.TunnelIP = q.Value(encapIP)
	}
}

func (q *reader) boolean(name string) bool {
	v := q.Value(name)
	if v != "true" && v != "false" {
		q.Fail(name, "want true or false")
	}
	return v == "true"
}

func (q *reader) addresses(name string) (all []netip.Addr) {
	for word := range strings.SplitSeq(q.Value(name), ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(word))
		fault := ""
		switch {
		case err != nil:
			fault = "is not an address; want an IP address, several with commas"
		case a.Is4In6():
			fault = "is an address of IPv4 in the form of IPv6; want " + a.Unmap().String()
		case a.Zone() != "" && name == gatewayNextHop:
			fault = fmt.Sprintf("has a zone; want %s, and the interface in %s", a.WithZone(""), gatewayNIC)
		case a.Zone() != "":
			fault = "has a zone; want " + a.WithZone("").String()
		}
		if fault != "" {
			q.Fail(name, fmt.Sprintf("%q %s", word, fault))
			return nil
		}
		all = append(all, a)
	}
	return all
}
