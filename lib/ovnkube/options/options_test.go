package options

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"ovn-k8s/lib/cli"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/names"
)

// A program has only the options.
type program struct{ cli.Base }

func (*program) Run(context.Context, cli.IO) error { return nil }

// flags parses a command line.
func flags(t *testing.T, line string) map[string]string {
	t.Helper()
	values := map[string]string{}
	var stderr strings.Builder
	status := cli.Main(cli.Program{Name: "ovnkube", Options: &program{}, Groups: Groups(), Values: values, OneDash: true}, strings.Fields(line), cli.IO{Out: io.Discard, Err: &stderr})
	if status != 0 {
		t.Fatalf("%s:\n%s", line, stderr.String())
	}
	return values
}

// files are there, and all others are not.
func files(all ...string) func(string) bool {
	return func(path string) bool { return slices.Contains(all, path) }
}

// base is a command line without faults, as in the checks.
const base = "-cluster-subnets=10.128.0.0/14/23 -k8s-service-cidr=172.30.0.0/16 -nb-address=tcp:192.0.2.10:6641 -sb-address=tcp:192.0.2.10:6642 "

// historical are command lines of 2018 to 2020.
var historical = []string{
	`-k8s-kubeconfig kubeconfig.yaml -loglevel=4 -k8s-apiserver=http://192.0.2.10:8080 -logfile=/var/log/ovn-kubernetes/ovnkube.log -init-master=n1 -init-node=n1 -cluster-subnets=10.128.0.0/14/23 -k8s-service-cidr=172.30.0.0/16 -nodeport -init-gateways -gateway-local -k8s-token=T -nb-address=tcp:192.0.2.10:6641 -sb-address=tcp:192.0.2.10:6642`,
	`-k8s-kubeconfig kubeconfig.yaml -net-controller -loglevel=4 -k8s-apiserver=http://192.0.2.10:8080 -logfile=/var/log/openvswitch/ovnkube.log -init-master=n1 -cluster-subnet=10.128.0.0/14 -service-cluster-ip-range=172.30.0.0/16 -nodeport -nb-address=tcp://192.0.2.10:6631 -sb-address=tcp://192.0.2.10:6632`,
	`-k8s-kubeconfig kubeconfig.yaml -loglevel=4 -logfile=/var/log/openvswitch/ovnkube.log -k8s-apiserver=http://192.0.2.10:8080 -init-node=n2 -nodeport -nb-address=tcp://192.0.2.10:6631 -sb-address=tcp://192.0.2.10:6632 -k8s-token=T -init-gateways -service-cluster-ip-range=172.30.0.0/16 -cluster-subnet=10.128.0.0/14`,
	`-k8s-kubeconfig kubeconfig.yaml -init-node=n2 -init-gateways -gateway-interface=enp0s9 -gateway-nexthop=192.0.2.1 -service-cluster-ip-range=172.30.0.0/16 -cluster-subnet=10.128.0.0/14`,
}

// AC-01, AC-02: with one dash or two, "=" or a space.
func TestHistoricalCommandLines(t *testing.T) {
	var summaries []string
	for _, line := range historical {
		two := strings.ReplaceAll(" "+line, " -", " --")
		var first string
		for i, l := range []string{line, two, strings.ReplaceAll(two, "=", " ")} {
			o, err := Resolve(config.Sources{Flags: flags(t, l), Exists: files("kubeconfig.yaml")})
			if err != nil {
				t.Errorf("%s:\n%v", l, err)
			}
			s := fmt.Sprint(o.Master, "/", o.Node, " ", o.ClusterSubnets, " ", o.ServiceCIDRs, " ", o.NB, " ", o.SB, " ", o.Gateway, " ", o.Kubeconfig, " ", o.LogLevel, " ", o.APIServer)
			if i == 0 {
				first = s
				summaries = append(summaries, s)
			}
			if s != first {
				t.Errorf("%s\n%s\n%s", l, s, first)
			}
		}
	}
	for i, want := range []string{
		"n1/n1 [10.128.0.0/14/23] [172.30.0.0/16] [tcp:192.0.2.10:6641] [tcp:192.0.2.10:6642] {local  [] 0 true} kubeconfig.yaml 4 http://192.0.2.10:8080",
		"n1/ [10.128.0.0/14/24] [172.30.0.0/16] [tcp:192.0.2.10:6631] [tcp:192.0.2.10:6632] {  [] 0 true} kubeconfig.yaml 4 http://192.0.2.10:8080",
		"/n2 [10.128.0.0/14/24] [172.30.0.0/16] [tcp:192.0.2.10:6631] [tcp:192.0.2.10:6632] {shared  [] 0 true} kubeconfig.yaml 4 http://192.0.2.10:8080",
		"/n2 [10.128.0.0/14/24] [172.30.0.0/16] [] [] {shared enp0s9 [192.0.2.1] 0 false} kubeconfig.yaml 4 http://localhost:8080",
	} {
		if summaries[i] != want {
			t.Errorf("\n got %s\nwant %s", summaries[i], want)
		}
	}
}

// TestChecks has the checks of the specification that need no host. Where the value of want begins with "!", it is an
// error.
func TestChecks(t *testing.T) {
	key, cert := "/etc/openvswitch/ovnnb-privkey.pem", "/etc/openvswitch/ovnnb-cert.pem"
	for _, tt := range []struct {
		check, line string
		sources     config.Sources
		got         func(Options) any
		want        string
	}{
		{"AC-03", "-init-node=n1 -mtu=1350", config.Sources{File: map[string]string{"default.mtu": "1300"}}, func(o Options) any { return o.MTU }, "1350"},
		{"AC-04", "-init-master=n1", config.Sources{File: map[string]string{"default.cluster-subnets": "10.1.0.0/16/24"}}, func(o Options) any { return o.ClusterSubnets }, "[10.1.0.0/16/24]"},
		{"AC-05 flag", "-init-master=n1 -k8s-apiserver=http://w", layers("external_ids", "file", "environment"), server, "http://w"},
		{"AC-05 external_ids", "-init-master=n1", layers("external_ids", "file", "environment"), server, "http://y"},
		{"AC-05 file", "-init-master=n1", layers("file", "environment"), server, "http://x"},
		{"AC-05 environment", "-init-master=n1", layers("environment"), server, "http://z"},
		{"AC-05 default", "-init-master=n1", layers(), server, "http://localhost:8080"},
		{"AC-06", "-init-master=n1 -k8s-apiserver=", config.Sources{ExternalIDs: map[string]string{"k8s-api-server": ""}}, server, "http://localhost:8080"},
		{"AC-07", "-init-master=n1 -cluster-subnet=10.1.0.0/16 -cluster-subnets=10.2.0.0/16", config.Sources{}, func(o Options) any { return fmt.Sprint(o.ClusterSubnets, o.Advice) }, "[10.1.0.0/16/24] [--cluster-subnet is an old name of --cluster-subnets, and wins over it]"},
		{"no effect", "-init-master=n1 -metrics-bind-address=192.0.2.1:9102 -ovn-empty-lb-events", config.Sources{}, func(o Options) any { return o.Advice }, "[--ovn-empty-lb-events has no effect; remove it --metrics-bind-address has no effect; remove it]"},
		{"log of the plugin", "-init-node=n1 -cnilogfile=/var/log/cni.log", config.Sources{}, advised, "--cnilogfile has no effect: the CNI server writes to the log of ovnkube, see --logfile; remove it"},
		{"former master", "-init-master=n1 -net-controller", config.Sources{}, advised, "--net-controller has no effect; remove it"},
		{"former gateway", "-init-node=n1 -init-gateways -gateway-localnet", config.Sources{}, advised, "--init-gateways, --gateway-localnet: of former releases; give --gateway-mode=local in its place"},
		{"former gateway beside the mode", "-init-node=n1 -init-gateways -gateway-mode=shared", config.Sources{}, advised, "--init-gateways: no effect beside gateway-mode; remove it"},
		{"half a former gateway", "-init-node=n1 -gateway-local", config.Sources{}, advised, "--gateway-local: no effect without --init-gateways; remove it, or give --gateway-mode"},
		{"no former gateway", "-init-node=n1 -init-gateways=false", config.Sources{}, advised, ""},
		{"AC-08", "-init-master=n1 -service-cluster-ip-range=10.1.0.0/16 -k8s-service-cidr=10.2.0.0/16", config.Sources{}, func(o Options) any { return o.ServiceCIDRs }, "[10.1.0.0/16]"},
		{"AC-11", "-init-master=n1 -cluster-subnets=10.0.0.0/16,10.0.128.0/17", config.Sources{}, nil, `!bad cluster-subnets "10.0.0.0/16,10.0.128.0/17" (from --cluster-subnets): 10.0.128.0/17 overlaps 10.0.0.0/16`},
		{"AC-12 no port", "-init-master=n1 -nb-address=tcp:192.0.2.10", config.Sources{}, nil, `!bad ovn-nb "tcp:192.0.2.10" (from --nb-address): "tcp:192.0.2.10": missing port in address: want tcp:HOST:PORT, as in tcp:10.0.0.1:6641`},
		{"AC-12 scheme", "-init-master=n1 -sb-address=http:1.1.1.1:1", config.Sources{}, nil, `!bad ovn-remote "http:1.1.1.1:1" (from --sb-address): "http:1.1.1.1:1": want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT`},
		{"AC-12 name", "-init-master=n1 -nb-address=tcp:a.b:1", config.Sources{}, func(o Options) any { return o.NB }, "[tcp:a.b:1]"},
		{"AC-12 mixed", "-init-master=n1 -nb-address=tcp:1.1.1.1:1,ssl:1.1.1.2:1", config.Sources{Exists: files(key, cert)}, nil, `!bad ovn-nb "tcp:1.1.1.1:1,ssl:1.1.1.2:1" (from --nb-address): its addresses have different schemes; want tcp: for all or ssl: for all`},
		{"AC-13", "-init-node=n1 -nb-address=tcp://192.0.2.10:6641", config.Sources{}, func(o Options) any { return o.NB }, "[tcp:192.0.2.10:6641]"},
		{"AC-14", "-init-node=n1 -nb-address=tcp:192.0.2.10:6641 -nb-client-cert=/x", config.Sources{}, nil, `!bad nb-cert "/x" (from --nb-client-cert): ovn-nb has no ssl: address; was ssl: meant there?`},
		{"AC-15 node", "-init-node=n1 -nb-address=ssl:192.0.2.10:6641", config.Sources{}, func(o Options) any { return o.NB }, "[ssl:192.0.2.10:6641]"},
		{"AC-15 removal", "-remove-node=n2 -nb-address=ssl:192.0.2.10:6641", config.Sources{Exists: files(key)}, nil, `!bad nb-cert "` + cert + `" (from default): there is no such file, which an ssl: address in ovn-nb needs`},
		{"AC-15", "-init-master=n1 -nb-address=ssl:192.0.2.10:6641", config.Sources{Exists: files(cert)}, nil, `!bad nb-privkey "` + key + `" (from default): there is no such file, which an ssl: address in ovn-nb needs`},
		{"AC-16", "-init-node=n1 -gateway-nexthop=1.1.1.1", config.Sources{}, nil, `!bad gateway-nexthop "1.1.1.1" (from --gateway-nexthop): it has no effect without a gateway; give gateway-mode, too, or remove it`},
		{"VLAN of a local gateway", "-init-node=n1 -gateway-mode=local -gateway-vlanid=7", config.Sources{}, nil, `!bad gateway-vlanid "7" (from --gateway-vlanid): a local gateway sends by the routes of the host, without a VLAN; remove it, or give gateway-mode shared or spare`},
		{"VLAN of a former local gateway", "-init-node=n1 -init-gateways -gateway-local", config.Sources{File: map[string]string{"gateway.vlan-id": "5000"}}, nil, `!bad gateway-vlanid "5000" (from ovn_k8s.conf: [gateway] vlan-id): a local gateway sends by the routes of the host, without a VLAN; remove it, or give gateway-mode shared or spare`},
		{"no VLAN of a local gateway", "-init-node=n1 -gateway-mode=local -gateway-vlanid=0", config.Sources{}, mode, Local},
		{"VLAN of a shared gateway", "-init-node=n1 -gateway-mode=shared -gateway-vlanid=7", config.Sources{}, func(o Options) any { return o.Gateway }, "{shared  [] 7 false}"},
		{"NIC of a local gateway", "-init-node=n1 -gateway-mode=local -gateway-interface=eth1", config.Sources{File: map[string]string{"gateway.next-hop": "192.0.2.1"}}, func(o Options) any { return fmt.Sprint(o.Gateway, o.Advice) }, "{local  [] 0 false} [--gateway-interface has no effect: a local gateway sends by the routes of the host; remove it ovn_k8s.conf: [gateway] next-hop has no effect: a local gateway sends by the routes of the host; remove it]"},
		{"bad next hop of a local gateway", "-init-node=n1 -gateway-mode=local -gateway-nexthop=x", config.Sources{}, nil, `!bad gateway-nexthop "x" (from --gateway-nexthop): "x" is not an address; want an IP address, several with commas`},
		{"AC-17", "-init-node=n1 -init-gateways -gateway-local", config.Sources{}, mode, Local},
		{"AC-17 localnet", "-init-node=n1 -init-gateways -gateway-localnet", config.Sources{}, mode, Local},
		{"AC-17 spare", "-init-node=n1 -init-gateways -gateway-spare-interface -gateway-local", config.Sources{}, mode, Spare},
		{"AC-17 mode", "-init-node=n1 -init-gateways -gateway-mode=shared -gateway-local", config.Sources{}, mode, Shared},
		{"AC-17 modifiers alone", "-init-node=n1 -gateway-local", config.Sources{}, mode, ""},
		{"AC-18", "", config.Sources{}, nil, `!no role is given: want --init-master=NAME, --init-node=NAME or both`},
		{"AC-18 empty", "-init-master=", config.Sources{}, nil, `!bad init-master "" (from --init-master): want the name of a Node`},
		{"AC-19", "-init-node=n1 -k8s-apiserver=https://a", config.Sources{}, nil, `!bad k8s-api-server "https://a" (from --k8s-apiserver): a node needs a token for https; want --k8s-api-token-file, --k8s-token or --k8s-kubeconfig`},
		{"AC-19 kubeconfig", "-init-node=n1 -k8s-apiserver=https://a -k8s-kubeconfig=/k", config.Sources{Exists: files("/k")}, server, "https://a"},
		{"AC-19 environment", "-init-node=n1 -k8s-apiserver=https://a", config.Sources{Env: map[string]string{"K8S_TOKEN": "t"}}, server, "https://a"},

		{"clean-up", "-cleanup-node=n1 -init-node=n1", config.Sources{}, nil, `!bad cleanup-node "n1" (from --cleanup-node): it cannot be combined with another role`},
		{"kubeconfig", "-init-node=n1 -k8s-kubeconfig=/k", config.Sources{}, nil, `!bad k8s-kubeconfig "/k" (from --k8s-kubeconfig): kubeconfig file not found`},
		{"KUBECONFIG", "-init-node=n1", config.Sources{Env: map[string]string{"KUBECONFIG": "/k"}, Exists: files("/k")}, func(o Options) any { return o.Kubeconfig }, "/k"},
		{"KUBECONFIG beside options", "-cleanup-node=n1 -k8s-apiserver=https://a -k8s-api-token-file=/t", shell(nil, nil), connection, "https://a /t [environment: KUBECONFIG has no effect: --k8s-apiserver counts in its place; remove it] -"},
		{"KUBECONFIG beside external_ids", "-init-node=n1", shell(map[string]string{"k8s-api-server": "http://y"}, nil), connection, "http://y [environment: KUBECONFIG has no effect: external_ids:k8s-api-server counts in its place; remove it] -"},
		{"KUBECONFIG beside a token", "-init-node=n1 -k8s-api-token-file=/t", shell(nil, map[string]string{"K8S_APISERVER": "https://a"}), connection, "https://a /t [environment: KUBECONFIG has no effect: --k8s-api-token-file counts in its place; remove it] -"},
		{"KUBECONFIG beside no token for https", "-init-node=n1 -k8s-apiserver=https://a", shell(nil, nil), connection, "/k https://a [] /k"},
		{"KUBECONFIG beside a token for no server", "-init-node=n1 -k8s-api-token-file=/t", shell(nil, nil), connection, "/k http://localhost:8080 /t [] /k"},
		{"KUBECONFIG beside variables", "-init-node=n1", shell(nil, map[string]string{"K8S_APISERVER": "https://a", "K8S_TOKEN": "t"}), connection, "/k https://a [] /k"},
		{"kubeconfig of the file beside options", "-init-node=n1 -k8s-apiserver=https://a", config.Sources{File: map[string]string{"kubernetes.kubeconfig": "/k"}, Exists: files("/k")}, connection, "/k https://a [] /k"},
		{"CA", "-init-node=n1 -k8s-cacert=/ca", config.Sources{}, nil, `!bad k8s-ca-certificate "/ca" (from --k8s-cacert): Kubernetes CA certificate file not found`},
		{"form", "-init-master=n1 -cluster-subnets=10.0.0.0", config.Sources{}, nil, `!bad cluster-subnets "10.0.0.0" (from --cluster-subnets): "10.0.0.0" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23`},
		{"length", "-init-master=n1 -cluster-subnets=10.0.0.0/24/24", config.Sources{}, nil, `!bad cluster-subnets "10.0.0.0/24/24" (from --cluster-subnets): "10.0.0.0/24/24": nodes would get subnets of length 24; want a length from 25 to 29`},
		{"no room", "-init-master=n1 -cluster-subnets=10.0.0.0/16/30", config.Sources{}, nil, `!bad cluster-subnets "10.0.0.0/16/30" (from --cluster-subnets): "10.0.0.0/16/30": nodes would get subnets of length 30; want a length from 17 to 29`},
		{"no subnet", "-init-master=n1 -cluster-subnets=,", config.Sources{}, nil, `!bad cluster-subnets "," (from --cluster-subnets): no subnet; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23`},
		{"IPv6 length", "-init-master=n1 -cluster-subnets=fd01::/48/72 -k8s-service-cidr=fd02::/112", config.Sources{}, nil, `!bad cluster-subnets "fd01::/48/72" (from --cluster-subnets): "fd01::/48/72": nodes would get subnets of length 72; want 64, as IPv6 needs`},
		{"two bad words", "-init-master=n1 -cluster-subnets=x,10.0.0.0/16,10.1.0.1/16", config.Sources{}, nil, `!bad cluster-subnets "x,10.0.0.0/16,10.1.0.1/16" (from --cluster-subnets): "x" is not properly formatted; want CIDR or CIDR/LENGTH, as in 10.128.0.0/14/23
bad cluster-subnets "x,10.0.0.0/16,10.1.0.1/16" (from --cluster-subnets): "10.1.0.1/16" has bits of the host set; want 10.1.0.0/16`},
		{"Services", "-init-master=n1 -cluster-subnets=172.16.0.0/12", config.Sources{}, nil, `!bad cluster-subnets "172.16.0.0/12" (from --cluster-subnets): 172.16.0.0/12 overlaps 172.16.1.0/24 of the Services`},
		{"join", "-init-master=n1 -cluster-subnets=100.64.0.0/10", config.Sources{}, nil, `!bad cluster-subnets "100.64.0.0/10" (from --cluster-subnets): 100.64.0.0/10 overlaps the join network 100.64.0.0/16; set join-subnet to another`},
		{"families", "-init-master=n1 -cluster-subnets=10.0.0.0/16,fd00::/48", config.Sources{}, nil, `!bad service-cidr "172.16.1.0/24" (from default): it has no subnet of IPv6, and cluster-subnets one; want the same address families`},
		{"mode", "-init-node=n1 -gateway-mode=both", config.Sources{}, nil, `!bad gateway-mode "both" (from --gateway-mode): want shared, spare or local`},
		{"encap-ip", "-init-node=n1 -encap-ip=host", config.Sources{}, nil, `!bad ovn-encap-ip "host" (from --encap-ip): "host" is not an address; want an IP address, several with commas`},
		{"encap-ip of IPv4 as IPv6", "-init-node=n1 -encap-ip=::ffff:192.0.2.1", config.Sources{}, nil, `!bad ovn-encap-ip "::ffff:192.0.2.1" (from --encap-ip): "::ffff:192.0.2.1" is an address of IPv4 in the form of IPv6; want 192.0.2.1`},
		{"encap-ip with a zone", "-init-node=n1 -encap-ip=fd00::1%eth0", config.Sources{}, nil, `!bad ovn-encap-ip "fd00::1%eth0" (from --encap-ip): "fd00::1%eth0" has a zone; want fd00::1`},
		{"encap-type", "-init-node=n1 -encap-type=genev", config.Sources{}, nil, `!bad ovn-encap-type "genev" (from --encap-type): "genev" is no type of tunnels; want geneve or vxlan, both with a comma and no space`},
		{"an operator's encap-type", "-init-node=n1", config.Sources{ExternalIDs: map[string]string{"ovn-encap-type": "geneve,stt"}}, nil, `!bad ovn-encap-type "geneve,stt" (from external_ids:ovn-encap-type): tunnels of type stt were removed from Open vSwitch 3.6 and OVN 25.09, and need a kernel module of releases before 3.0; want geneve`},
		{"several encap-types", "-init-node=n1 -encap-type=geneve,vxlan", config.Sources{}, func(o Options) any { return o.EncapType }, "geneve,vxlan"},
		{"next hop of IPv4 as IPv6", "-init-node=n1 -gateway-mode=shared -gateway-nexthop=fe80::1,::ffff:192.0.2.1", config.Sources{}, nil, `!bad gateway-nexthop "fe80::1,::ffff:192.0.2.1" (from --gateway-nexthop): "::ffff:192.0.2.1" is an address of IPv4 in the form of IPv6; want 192.0.2.1`},
		{"next hop with a zone", "-init-node=n1 -gateway-mode=shared -gateway-nexthop=192.0.2.1,fe80::1%eth0", config.Sources{}, nil, `!bad gateway-nexthop "192.0.2.1,fe80::1%eth0" (from --gateway-nexthop): "fe80::1%eth0" has a zone; want fe80::1, and the interface in gateway-interface`},
		{"link-local next hop", "-init-node=n1 -gateway-mode=shared -gateway-interface=eth0 -gateway-nexthop=fe80::1", config.Sources{}, func(o Options) any { return o.Gateway }, "{shared eth0 [fe80::1] 0 false}"},
		{"lease", "-init-master=n1 -ha-election-lease-duration=30", config.Sources{}, nil, `!bad ha-election-lease-duration "30" (from --ha-election-lease-duration): want more than ha-election-renew-deadline, 30`},
		{"lease of default times", "-init-master=n1", config.Sources{}, times, "{0s 0s 0s}"},
		{"lease duration", "-init-master=n1 -ha-election-lease-duration=31", config.Sources{}, times, "{31s 30s 20s}"},
		{"renew deadline", "-init-master=n1 -ha-election-renew-deadline=25", config.Sources{}, times, "{1m0s 25s 20s}"},
		{"retry period", "-init-master=n1", config.Sources{File: map[string]string{"masterha.election-retry-period": "24"}}, times, "{1m0s 30s 24s}"},
		{"short lease", "-init-master=n1 -ha-election-lease-duration=3 -ha-election-renew-deadline=2 -ha-election-retry-period=1", config.Sources{}, times, "{3s 2s 1s}"},
		{"late deadline", "-init-master=n1 -ha-election-renew-deadline=60", config.Sources{}, nil, `!bad ha-election-renew-deadline "60" (from --ha-election-renew-deadline): want less than ha-election-lease-duration, 60`},
		{"early deadline", "-init-master=n1 -ha-election-renew-deadline=24", config.Sources{}, nil, `!bad ha-election-renew-deadline "24" (from --ha-election-renew-deadline): want more than 1.2 times ha-election-retry-period, 20`},
		{"rare tries", "-init-master=n1 -ha-election-retry-period=25", config.Sources{}, nil, `!bad ha-election-retry-period "25" (from --ha-election-retry-period): want less than ha-election-renew-deadline, 30, divided by 1.2`},
		{"no lease", "-init-master=n1 -ha-election-lease-duration=0", config.Sources{}, nil, `!bad ha-election-lease-duration "0" (from --ha-election-lease-duration): want a number from 1 to 3600`},
		{"lease in words", "-init-master=n1 -ha-election-retry-period=2s", config.Sources{}, nil, `!bad ha-election-retry-period "2s" (from --ha-election-retry-period): want a number from 1 to 3600`},
		{"no rotation", "-init-node=n1 -logfile=/x.log", config.Sources{}, rotated, "{0 0 0s}"},
		{"rotation at a size", "-init-node=n1 -logfile-maxsize=9", config.Sources{}, rotated, "{9437184 5 120h0m0s}"},
		{"rotation never", "-init-node=n1 -logfile-maxsize=0", config.Sources{File: map[string]string{"logging.logfile-maxsize": "9"}}, rotated, "{0 5 120h0m0s}"},
		{"number of backups", "-init-node=n1", config.Sources{File: map[string]string{"logging.logfile-maxbackups": "0"}}, rotated, "{104857600 0 120h0m0s}"},
		{"age of backups", "-init-node=n1 -logfile-maxage=2", config.Sources{File: map[string]string{"logging.logfile-maxbackups": "7"}}, rotated, "{104857600 7 48h0m0s}"},
		{"any age", "-init-node=n1 -logfile-maxage=2147483647", config.Sources{}, rotated, "{104857600 5 876600h0m0s}"},
		{"negative size", "-init-node=n1 -logfile-maxsize=-1", config.Sources{}, nil, `!bad logfile-maxsize "-1" (from --logfile-maxsize): want a number from 0 to 2147483647`},
		{"number in words", "-init-node=n1", config.Sources{File: map[string]string{"logging.logfile-maxbackups": "many"}}, nil, `!bad logfile-maxbackups "many" (from ovn_k8s.conf: [logging] logfile-maxbackups): want a number from 0 to 2147483647`},
		{"part of a day", "-init-node=n1 -logfile-maxage=1.5", config.Sources{}, nil, `!bad logfile-maxage "1.5" (from --logfile-maxage): want a number from 0 to 2147483647`},
		{"boolean", "-init-master=n1 -nodeport=maybe", config.Sources{}, nil, `!bad nodeport "maybe" (from --nodeport): want true or false`},
		{"false wins", "-init-node=n1 -nodeport=false", config.Sources{File: map[string]string{"gateway.nodeport": "true"}}, func(o Options) any { return o.Gateway.NodePort }, "false"},
		{"not supported", "-init-node=n1 -enable-hybrid-overlay", config.Sources{}, nil, `!bad enable-hybrid-overlay "true" (from --enable-hybrid-overlay): it is not supported; remove it`},
		{"Windows", "-init-node=n1 -win-hnsnetwork-id=x", config.Sources{}, nil, `!bad win-hnsnetwork-id "x" (from --win-hnsnetwork-id): it is not supported; remove it`},
	} {
		t.Run(tt.check, func(t *testing.T) {
			tt.sources.Flags = flags(t, tt.line)
			o, err := Resolve(tt.sources)
			got := ""
			if err != nil {
				got = "!" + err.Error()
			} else if tt.got != nil {
				got = fmt.Sprint(tt.got(o))
			}
			if got != tt.want {
				t.Errorf("%s:\n got %s\nwant %s", tt.line, got, tt.want)
			}
		})
	}
}

func server(o Options) any  { return o.APIServer }
func mode(o Options) any    { return o.Gateway.Mode }
func times(o Options) any   { return o.Lease }
func rotated(o Options) any { return o.Rotation }
func advised(o Options) any { return strings.Join(o.Advice, "; ") }

// shell are the sources of a command in a shell with a kubeconfig.
func shell(ids, env map[string]string) config.Sources {
	all := map[string]string{"KUBECONFIG": "/k"}
	maps.Copy(all, env)
	return config.Sources{ExternalIDs: ids, Env: all, Exists: files("/k")}
}

// connection is how the API server is reached, and the kubeconfig that --show-config prints.
func connection(o Options) any {
	_, shown, _ := strings.Cut(o.Show(), "k8s-kubeconfig")
	return strings.Join(strings.Fields(fmt.Sprint(o.Kubeconfig, " ", o.APIServer, " ", o.APITokenFile, " ", o.Advice, " ", strings.Fields(shown)[0])), " ")
}

// layers has an API server in each of some sources.
func layers(names ...string) config.Sources {
	all := config.Sources{}
	for _, n := range names {
		switch n {
		case "external_ids":
			all.ExternalIDs = map[string]string{"k8s-api-server": "http://y"}
		case "file":
			all.File = map[string]string{"kubernetes.apiserver": "http://x"}
		case "environment":
			all.Env = map[string]string{"K8S_APISERVER": "http://z"}
		}
	}
	return all
}

// AC-20: not in the output of --show-config, either.
func TestTheTokenIsMasked(t *testing.T) {
	o, err := Resolve(config.Sources{Flags: flags(t, base+"-init-node=n1 -k8s-token=canary")})
	if err != nil || strings.Contains(o.Show(), "canary") || !strings.Contains(o.Show(), "--k8s-token") {
		t.Errorf("%v\n%s", err, o.Show())
	}
	if text := fmt.Sprintf("%v %+v", o, o); strings.Contains(text, "canary") {
		t.Error(text)
	}
}

// Every option of the specification is known, and no name is there twice.
func TestEveryOptionIsKnown(t *testing.T) {
	known, keys, variables := map[string]bool{}, map[string]bool{}, map[string]bool{}
	once := func(seen map[string]bool, names config.Names) {
		for _, n := range names {
			name := strings.ReplaceAll(n.Text, "_", "-")
			if seen[name] {
				t.Errorf("%s is there twice", name)
			}
			seen[name] = true
		}
	}
	for _, s := range Settings() {
		once(known, s.Flags)
		once(keys, s.Keys)
		once(variables, s.Env)
	}
	for _, name := range strings.Fields(`init-master init-node net-controller remove-node cleanup-node ha cluster-subnet cluster-subnets
		service-cluster-ip-range k8s-service-cidr k8s-service-cidrs init-gateways gateway-interface gateway-nexthop gateway-spare-interface
		gateway-localnet gateway-local gateway-mode gateway-vlanid nodeport mtu conntrack-zone encap-type encap-ip encap-port
		inactivity-probe openflow-probe loglevel logfile logfile-maxsize logfile-maxbackups logfile-maxage cnilogfile cni-conf-dir
		cni-plugin win-hnsnetwork-id k8s-kubeconfig k8s-apiserver k8s-cacert k8s-token ovn-config-namespace nb-address sb-address
		nb-client-privkey nb-client-cert nb-client-cacert sb-client-privkey sb-client-cert sb-client-cacert nb-server-privkey
		nb-server-cert nb-server-cacert sb-server-privkey sb-server-cert sb-server-cacert nbctl-daemon-mode unprivileged-mode
		enable-multicast ovn-empty-lb-events metrics-bind-address metrics-enable-pprof no-hostsubnet-nodes ha-election-lease-duration
		ha-election-renew-deadline ha-election-retry-period pod-ip manage-db-servers enable-hybrid-overlay hybrid-overlay-cluster-subnets`) {
		if !known[name] {
			t.Errorf("--%s is unknown", name)
		}
	}
	for _, name := range strings.Fields(`mtu conntrack-zone encap-type encap-ip encap-port inactivity-probe openflow-probe cluster-subnets
		logging.logfile logging.loglevel logging.cnilogfile logging.logfile-maxsize logging.logfile-maxbackups logging.logfile-maxage
		cni.conf-dir cni.plugin cni.win-hnsnetwork-id kubernetes.kubeconfig kubernetes.cacert kubernetes.apiserver kubernetes.token
		kubernetes.service-cidr kubernetes.service-cidrs kubernetes.ovn-config-namespace kubernetes.metrics-bind-address
		kubernetes.metrics-enable-pprof kubernetes.ovn-empty-lb-events kubernetes.pod-ip kubernetes.no-hostsubnet-nodes
		ovnnorth.address ovnnorth.client-privkey ovnnorth.client-cert ovnnorth.client-cacert ovnnorth.server-privkey ovnnorth.server-cert
		ovnnorth.server-cacert ovnsouth.address ovnsouth.client-privkey ovnsouth.client-cert ovnsouth.client-cacert ovnsouth.server-privkey
		ovnsouth.server-cert ovnsouth.server-cacert gateway.mode gateway.interface gateway.next-hop gateway.vlan-id gateway.nodeport
		masterha.election-lease-duration masterha.election-renew-deadline masterha.election-retry-period hybridoverlay.enabled
		hybridoverlay.cluster-subnets hybridoverlay.hybrid-overlay-vxlan-port`) {
		if !keys[name] {
			t.Errorf("the key %s is unknown", name)
		}
	}
	for _, name := range strings.Fields("KUBECONFIG K8S-CACERT K8S-APISERVER K8S-TOKEN") {
		if !variables[name] {
			t.Errorf("the variable %s is unknown", name)
		}
	}
}

// Each option, key and variable reaches its setting, and wins over the next source.
func TestEverySource(t *testing.T) {
	for _, e := range table() {
		var sources []func(*config.Sources, string)
		var places []string
		add := func(names config.Names, prefix string, put func(s *config.Sources, name, value string)) {
			for _, old := range []bool{true, false} {
				for _, n := range names {
					if n.Text != "" && n.Old == old && !strings.HasPrefix(n.Text, "KUBERNETES_") {
						sources = append(sources, func(s *config.Sources, v string) { put(s, n.Text, v) })
						places = append(places, prefix+n.Text)
					}
				}
			}
		}
		add(e.Flags, "--", func(s *config.Sources, n, v string) { s.Flags[n] = v })
		add(config.Named(e.ExternalID), "external_ids:", func(s *config.Sources, n, v string) { s.ExternalIDs[n] = v })
		add(e.Keys, "ovn_k8s.conf: ", func(s *config.Sources, n, v string) { s.File[n] = v })
		add(e.Env, "environment: ", func(s *config.Sources, n, v string) { s.Env[n] = v })
		for i, put := range sources {
			s := config.Sources{Flags: map[string]string{}, ExternalIDs: map[string]string{}, File: map[string]string{}, Env: map[string]string{}}
			put(&s, "higher")
			if i+1 < len(sources) {
				sources[i+1](&s, "lower")
			}
			o, _ := Resolve(s) // most values are wrong
			line := shown(o.Show(), e.Name)
			want := places[i]
			if section, key, ok := strings.Cut(strings.TrimPrefix(want, "ovn_k8s.conf: "), "."); ok && strings.HasPrefix(want, "ovn_k8s.conf: ") {
				want = "ovn_k8s.conf: [" + section + "] " + key
			}
			if strings.Contains(line, "lower") || !strings.HasSuffix(line, " "+want) || !e.Secret && !strings.Contains(line, "higher") {
				t.Errorf("%s by %s: %s", e.Name, places[i], line)
			}
		}
	}
}

// A setting without effect has a line that names its source, whichever it is.
func TestEverySettingWithoutEffect(t *testing.T) {
	for _, e := range table() {
		if !e.idle {
			continue
		}
		value := e.Default
		if value == "" {
			value = "/x"
		}
		given := map[string]config.Sources{}
		for _, n := range e.Flags {
			given["--"+n.Text] = config.Sources{Flags: map[string]string{n.Text: value}}
		}
		for _, n := range e.Keys {
			section, key, ok := strings.Cut(n.Text, ".")
			place := "[" + section + "] " + key
			if !ok {
				place = n.Text
			}
			given["ovn_k8s.conf: "+place] = config.Sources{File: map[string]string{n.Text: value}}
		}
		for _, n := range e.Env {
			given["environment: "+n.Text] = config.Sources{Env: map[string]string{n.Text: value}}
		}
		if e.ExternalID != "" {
			given["external_ids:"+e.ExternalID] = config.Sources{ExternalIDs: map[string]string{e.ExternalID: value}}
		}
		for source, s := range given {
			if s.Flags == nil {
				s.Flags = map[string]string{}
			}
			s.Flags[initMaster] = "n1"
			o, err := Resolve(s)
			if err != nil || len(o.Advice) != 1 || !strings.HasPrefix(o.Advice[0], source+" has no effect") {
				t.Errorf("%s: %q, %v", source, o.Advice, err)
			}
		}
	}
}

// shown is the line of a setting.
func shown(text, name string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, name+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// Old names and what is not supported are not in --help.
func TestHelp(t *testing.T) {
	var out strings.Builder
	cli.Main(cli.Program{Name: "ovnkube", Options: &program{}, Groups: Groups(), Values: map[string]string{}, OneDash: true}, []string{"-help"}, cli.IO{Out: &out, Err: io.Discard})
	for _, e := range table() {
		for _, n := range e.Flags {
			if listed := strings.Contains(out.String(), " --"+n.Text+"="); listed == n.Old {
				t.Errorf("--%s: listed %v, old %v", n.Text, listed, n.Old)
			}
		}
		if e.Text == "" {
			t.Errorf("%s has no text", e.Name)
		}
	}
	for _, group := range slices.Sorted(maps.Keys(map[string]bool{roles: true, gateways: true, kubernetes: true, north: true, south: true, logging: true, cni: true, common: true})) {
		if !strings.Contains(out.String(), "\n"+group+":\n") {
			t.Errorf("no heading %s in\n%s", group, out.String())
		}
	}
}

// The texts name nothing that only other programs have: their commands do not run on hosts of ovnkube, and it has an option
// for a token.
func TestTexts(t *testing.T) {
	known := map[string]bool{}
	for _, e := range table() {
		known[e.Name] = true
		for _, other := range []string{"master-init", "minion-init", "gateway-init", "watcher", "helper", "no option"} {
			if strings.Contains(e.Text, other) {
				t.Errorf("%s: %q speaks of %s", e.Name, e.Text, other)
			}
		}
	}
	for name := range texts {
		if !known[name] {
			t.Errorf("there is a text of %s, which is no setting", name)
		}
	}
}

// Roles get the options from the settings of a session: the same as those of the command line, without their sources.
func TestOptionsOfAConfiguration(t *testing.T) {
	for _, line := range append(historical, base+"-init-node=n1 -gateway-mode=spare -gateway-vlanid=7 -encap-ip=192.0.2.1 -loglevel=5 -logfile-maxage=3 -ha-election-retry-period=5") {
		want, err := Resolve(config.Sources{Flags: flags(t, line), Exists: files("kubeconfig.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		got := Of(want.Config)
		if want.Advice = nil; fmt.Sprintf("%#v", options(got)) != fmt.Sprintf("%#v", options(want)) {
			t.Errorf("%s:\n%#v\n%#v", line, options(got), options(want))
		}
	}
}

// What the node role has set in external_ids is not an operator's, and loses against the file. The address of tunnels is
// the default.
func TestOwnExternalIDs(t *testing.T) {
	resolve := func(ids, file map[string]string) Options {
		t.Helper()
		o, err := Resolve(config.Sources{Flags: flags(t, "-init-node=n1"), ExternalIDs: ids, File: file})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	file := map[string]string{"ovnsouth.address": "tcp:192.0.2.2:6642"}
	ids := map[string]string{"ovn-remote": "tcp:192.0.2.1:6642", "ovn-encap-ip": "192.0.2.9"}
	if o := resolve(ids, file); o.OVNRemote != "tcp:192.0.2.1:6642" || o.TunnelIP != "192.0.2.9" || o.EncapIP != "192.0.2.9" {
		t.Errorf("an operator's: %q, %q, %q", o.OVNRemote, o.TunnelIP, o.EncapIP)
	}
	ids[names.FormerIDs] = `{"ovn-remote":{"set":"tcp:192.0.2.1:6642"},"ovn-encap-ip":{"set":"192.0.2.9"}}`
	if o := resolve(ids, file); o.OVNRemote != "tcp:192.0.2.2:6642" || o.TunnelIP != "" || o.EncapIP != "192.0.2.9" || len(o.Ignored) > 0 {
		t.Errorf("our own: %q, %q, %q, %q", o.OVNRemote, o.TunnelIP, o.EncapIP, o.Ignored)
	}
	if o := resolve(ids, nil); o.OVNRemote != "" || o.InactivityProbe != 100000 || o.OpenflowProbe != 180 {
		t.Errorf("our own, without a file: %q, %d, %d", o.OVNRemote, o.InactivityProbe, o.OpenflowProbe)
	}
}

// options is a value without Config, whose text has the sources.
func options(o Options) any {
	return []any{o.Master, o.Node, o.Cleanup, o.Remove, o.ClusterSubnets, o.SB, o.Gateway, o.LogLevel, o.LogFile, o.Rotation, o.Lease, o.Advice, o.Kubeconfig, o.SBPrivateKey, o.APIServer}
}

// A changed setting makes the roles that read it serve again; each setting has an effect somewhere.
func TestReaders(t *testing.T) {
	want := map[string]string{
		clusterSubnets: "[master]", sbAddress: "[master node]", nbAddress: "[master node]", gatewayNextHop: "[node]", nodePort: "[node]",
		logLevel: "[restart]", "mtu": "[node]", "join-subnet": "[master node]", "nb-server-cert": "[master]", "sb-client-cert": "[master node]",
		encapIP: "[node]", encapType: "[node]", kubeconfig: "[master node]", "pod-ip": "[]", encapPort: "[]", logSize: "[restart]", leaseDuration: "[master]", retryPeriod: "[master]", "log-path": "[]",
	}
	for _, e := range table() {
		if w, ok := want[e.Name]; ok && fmt.Sprint(e.Readers) != w {
			t.Errorf("%s: %v, want %s", e.Name, e.Readers, w)
		}
		if len(e.Readers) == 0 && !e.unsupported && !e.idle {
			t.Errorf("%s has no reader", e.Name)
		}
	}
}
