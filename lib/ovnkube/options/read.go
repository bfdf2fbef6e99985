package options

import (
	"fmt"
	"slices"
	"strings"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/nodesubnet"
	"ovn-k8s/lib/ipnet"
)

// subnets reads the ranges for nodes, and finds overlaps.
func (q *reader) subnets(c *config.Config) {
	ranges, err := nodesubnet.ParseRanges(q.Value(clusterSubnets))
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			q.Fail(clusterSubnets, line)
		}
		return // one line for each bad range is enough
	}
	q.ClusterSubnets = ranges
	taken := ranges.Subnets()
	if a, b, ok := ipnet.Overlap(taken, c.ServiceCIDRs); ok {
		q.Fail(clusterSubnets, fmt.Sprintf("%v overlaps %v of the Services", a, b))
	}
	if a, b, ok := ipnet.Overlap(slices.Concat(taken, c.ServiceCIDRs), c.JoinSubnets); ok {
		q.Fail(clusterSubnets, fmt.Sprintf("%v overlaps the join network %v; set join-subnet to another", a, b))
	}
	for f, family := range []string{"IPv4", "IPv6"} {
		pods, services := len(ipnet.OfFamily(taken, f)) > 0, len(ipnet.OfFamily(c.ServiceCIDRs, f)) > 0
		if services && !pods && len(c.ServiceCIDRs) > 0 {
			q.Fail(serviceCIDR, "it has a subnet of "+family+", and cluster-subnets none; want the same address families")
		}
		if pods && !services && len(c.ServiceCIDRs) > 0 {
			q.Fail(serviceCIDR, "it has no subnet of "+family+", and cluster-subnets one; want the same address families")
		}
	}
}

// gateway reads the gateway of this host. The options of former releases count only without a mode.
func (q *reader) gateway() {
	g := &q.Gateway
	g.Mode, g.NIC, g.NodePort = q.Value(gatewayMode), q.Value(gatewayNIC), q.Value(nodePort) == "true"
	old := func(name string) bool { return q.Value(name) == "true" }
	switch {
	case g.Mode != "":
	case old(initGateways) && old(gatewaySpare):
		g.Mode = Spare
	case old(initGateways) && old(gatewayLocal):
		g.Mode = Local
	case old(initGateways):
		g.Mode = Shared
	}
	if !slices.Contains([]string{"", Shared, Spare, Local}, g.Mode) {
		q.Fail(gatewayMode, "want shared, spare or local")
		return
	}
	for _, name := range []string{gatewayNIC, gatewayNextHop, gatewayVLAN} {
		if g.Mode == "" && q.Given(name) {
			q.Fail(name, "it has no effect without a gateway; give gateway-mode, too, or remove it")
		}
	}
	if q.Given(gatewayNextHop) {
		g.NextHops = q.addresses(gatewayNextHop)
	}
	switch {
	case !q.Given(gatewayVLAN):
	case g.Mode == Local && q.Value(gatewayVLAN) != "0":
		q.Fail(gatewayVLAN, localRoutes+", without a VLAN; remove it, or give gateway-mode shared or spare")
	default:
		g.VLAN = q.Number(gatewayVLAN, 0, 4094)
	}
	if g.Mode == Local { // see localGateway
		g.NIC, g.NextHops = "", nil
	}
}

const localRoutes = "a local gateway sends by the routes of the host"

// localGateway describes options without effect on a local gateway.
func (q *reader) localGateway() (all []string) {
	for _, name := range []string{gatewayNIC, gatewayNextHop} {
		if q.Gateway.Mode == Local && q.Given(name) {
			all = append(all, noEffect(q.Source(name), localRoutes))
		}
	}
	return all
}

// databases checks the addresses of both databases, and the files for ssl:.
func (q *reader) databases(c *config.Config) {
	q.database(nbAddress, c.NB, "nb-privkey", "nb-cert", "nb-cacert")
	q.NBServer = q.server(nbAddress, c.NB, "nb-server-")
	south, err := config.ParseRemotes(q.Value(sbAddress))
	if err != nil {
		q.Fail(sbAddress, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	q.SB, c.OVNRemote = south, strings.Join(south, ",")
	c.SBPrivateKey, c.SBCertificate, c.SBCACert = q.Value("sb-client-privkey"), q.Value("sb-client-cert"), q.Value("sb-client-cacert")
	q.database(sbAddress, south, "sb-client-privkey", "sb-client-cert", "sb-client-cacert")
	q.SBServer = q.server(sbAddress, south, "sb-server-")
}

func (q *reader) database(address string, remotes []string, key, certificate, ca string) {
	schemes := map[string]bool{}
	for _, r := range remotes {
		scheme, _, _ := strings.Cut(r, ":")
		schemes[scheme] = true
	}
	if len(schemes) > 1 {
		q.Fail(address, "its addresses have different schemes; want tcp: for all or ssl: for all")
		return
	}
	for _, file := range []string{key, certificate, ca} {
		switch path := q.Path(file); {
		case !schemes["ssl"] && q.Given(file):
			q.Fail(file, fmt.Sprintf("%s has no ssl: address; was ssl: meant there?", address))
		case schemes["ssl"] && q.connects(address) && file != ca && !q.Exists(path): // the CA is fetched
			q.Fail(file, fmt.Sprintf("there is no such file, which an ssl: address in %s needs", address))
		}
	}
}

// connects reports whether a role connects to a database. A node never does to the Northbound one, and needs no key for it.
func (q *reader) connects(address string) bool {
	return address != nbAddress || q.Master != "" || q.Remove != ""
}

// server reads the files of a database's server: all three or none.
func (q *reader) server(address string, remotes []string, prefix string) Files {
	f := Files{q.Path(prefix + "privkey"), q.Path(prefix + "cert"), q.Path(prefix + "cacert")}
	for _, kind := range []string{"privkey", "cert", "cacert"} {
		switch path := q.Value(prefix + kind); {
		case f == Files{}:
		case len(remotes) == 0 || !strings.HasPrefix(remotes[0], "ssl:"):
			if path == "" {
				continue
			}
			q.Fail(prefix+kind, fmt.Sprintf("%s has no ssl: address; want that at which the server shall listen", address))
			return f
		case path == "":
			q.Fail(prefix+kind, fmt.Sprintf("want a file, because another %s… is given", prefix))
		case !q.Exists(path):
			q.Fail(prefix+kind, "there is no such file")
		}
	}
	return f
}

const noToken = "a node needs a token for https; want --k8s-api-token-file, --k8s-token or --k8s-kubeconfig"

// kubernetes checks the connection to the API server. A kubeconfig wins over all other settings, unless it comes from the
// environment and they do not.
func (q *reader) kubernetes(c *config.Config) {
	variable := q.Source(kubeconfig)
	if to := config.YieldKubeconfig(q.Resolver); to != "" {
		q.Advice = append(q.Advice, noEffect(variable, to+" counts in its place"))
	}
	c.Kubeconfig = q.Value(kubeconfig)
	if c.Kubeconfig != "" {
		if !q.Exists(c.Kubeconfig) {
			q.Fail(kubeconfig, "kubeconfig file not found")
		}
		return
	}
	if c.APICAFile != "" && !q.Exists(c.APICAFile) {
		q.Fail(apiCA, "Kubernetes CA certificate file not found")
	}
	if q.Node != "" && strings.HasPrefix(c.APIServer, "https:") && c.APIToken == "" && c.APITokenFile == "" {
		q.Fail(apiServer, noToken)
	}
}
