package main

import (
	"strings"
	"testing"
)

// common is a command line without faults but for a role, as in the specification's checks.
const common = " -cluster-subnets=10.128.0.0/14/23 -k8s-service-cidr=172.30.0.0/16 -nb-address=tcp:192.0.2.10:6641 -sb-address=tcp:192.0.2.10:6642"

// TestRefusals: bad input ends the program with status 1 and one line, before anything is changed: with Open vSwitch, or
// while it is down if the command line alone is wrong.
func TestRefusals(t *testing.T) {
	up, down := newHost(t), newHost(t)
	up.startSwitch()
	file := func(h *host, text string) string { return h.write("x.conf", text) }
	before := up.vsctl("list", "Open_vSwitch")
	for _, tt := range []struct{ check, line, want string }{
		{"AC-09 no file", "-init-node=n1 -config-file=/nowhere/x.conf", "reading the configuration: open /nowhere/x.conf: no such file or directory"},
		{"AC-11 overlap", "-init-master=n1 -cluster-subnets=10.0.0.0/16,10.0.128.0/17", `bad cluster-subnets "10.0.0.0/16,10.0.128.0/17" (from --cluster-subnets): 10.0.128.0/17 overlaps 10.0.0.0/16`},
		{"AC-12 no port", "-init-node=n1 -nb-address=tcp:192.0.2.10", `bad ovn-nb "tcp:192.0.2.10" (from --nb-address): "tcp:192.0.2.10": missing port in address: want tcp:HOST:PORT, as in tcp:10.0.0.1:6641`},
		{"AC-12 scheme", "-init-node=n1 -nb-address=http:1.1.1.1:1", `bad ovn-nb "http:1.1.1.1:1" (from --nb-address): "http:1.1.1.1:1": want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT`},
		{"AC-12 mixed", "-init-node=n1 -nb-address=tcp:1.1.1.1:1,ssl:1.1.1.2:1", `bad ovn-nb "tcp:1.1.1.1:1,ssl:1.1.1.2:1" (from --nb-address): its addresses have different schemes; want tcp: for all or ssl: for all`},
		{"AC-14 tcp with a certificate", "-init-node=n1 -nb-address=tcp:1.1.1.1:1 -nb-client-cert=/x", `bad nb-cert "/x" (from --nb-client-cert): ovn-nb has no ssl: address; was ssl: meant there?`},
		{"AC-16 next hop without gateway", "-init-node=n1 -gateway-nexthop=1.1.1.1", `bad gateway-nexthop "1.1.1.1" (from --gateway-nexthop): it has no effect without a gateway; give gateway-mode, too, or remove it`},
		{"AC-18 no role", common, "no role is given: want --init-master=NAME, --init-node=NAME or both"},
		{"role without name", "-init-node=", `bad init-node "" (from --init-node): want the name of a Node`},
		{"clean-up beside a role", "-init-node=n1 -cleanup-node=n1", `bad cleanup-node "n1" (from --cleanup-node): it cannot be combined with another role`},
		{"kubeconfig", "-init-node=n1 -k8s-kubeconfig=/nowhere", `bad k8s-kubeconfig "/nowhere" (from --k8s-kubeconfig): kubeconfig file not found`},
		{"CA", "-init-node=n1 -k8s-cacert=/nowhere", `bad k8s-ca-certificate "/nowhere" (from --k8s-cacert): Kubernetes CA certificate file not found`},
		{"URL", "-init-node=n1 -k8s-apiserver=ftp://a", `bad k8s-api-server "ftp://a" (from --k8s-apiserver): want HOST:PORT, http://HOST:PORT or https://HOST:PORT`},
		{"Services", "-init-master=n1 -k8s-service-cidr=10.0.0.0", `bad service-cidr "10.0.0.0" (from --k8s-service-cidr): "10.0.0.0" is not a subnet; want ADDRESS/LENGTH, as in 10.96.0.0/12`},
		{"prefix", "-init-master=n1 -cluster-subnets=10.0.0.0/24/24", `bad cluster-subnets "10.0.0.0/24/24" (from --cluster-subnets): "10.0.0.0/24/24": nodes would get subnets of length 24; want a length from 25 to 29`},
		{"mode", "-init-node=n1 -gateway-mode=both", `bad gateway-mode "both" (from --gateway-mode): want shared, spare or local`},
		{"encap-ip", "-init-node=n1 -encap-ip=here", `bad ovn-encap-ip "here" (from --encap-ip): "here" is not an address; want an IP address, several with commas`},
		{"encap-port", "-init-node=n1 -encap-port=6082", `bad encap-port "6082" (from --encap-port): tunnels have port 6081, since ovn-controller has no setting for another; want 6081, or no encap-port`},
		{"boolean", "-init-node=n1 -nodeport=maybe", `bad nodeport "maybe" (from --nodeport): want true or false`},
		{"not supported", "-init-node=n1 -unprivileged-mode", `bad unprivileged-mode "true" (from --unprivileged-mode): it is not supported; remove it`},
		{"lease", "-init-master=n1 -ha-election-lease-duration=10", `bad ha-election-lease-duration "10" (from --ha-election-lease-duration): want more than ha-election-renew-deadline, 30`},
		{"retry period", "-init-master=n1 -ha-election-retry-period=25", `bad ha-election-retry-period "25" (from --ha-election-retry-period): want less than ha-election-renew-deadline, 30, divided by 1.2`},
		{"size of the log", "-init-node=n1 -logfile-maxsize=-1", `bad logfile-maxsize "-1" (from --logfile-maxsize): want a number from 0 to 2147483647`},
	} {
		t.Run(tt.check, func(t *testing.T) {
			for _, h := range []*host{up, down} {
				status, out, errs := h.once(strings.Fields(tt.line))
				if status != 1 || out != "" || errs != "ovnkube: "+tt.want+"\n" {
					t.Errorf("status %d, %q, %s", status, out, errs)
				}
			}
		})
	}
	// these need the keys of the local Open vSwitch, or files
	for _, tt := range []struct{ check, line, want string }{
		{"AC-15 ssl without keys", "-init-node=n1 -sb-address=ssl:1.1.1.1:1 -sb-client-privkey=/nowhere -sb-client-cert=" + up.write("cert.pem", ""), `bad sb-client-privkey "/nowhere" (from --sb-client-privkey): there is no such file, which an ssl: address in ovn-remote needs`},
		{"AC-19 no token", "-init-node=n1 -k8s-apiserver=https://192.0.2.1", `bad k8s-api-server "https://192.0.2.1" (from --k8s-apiserver): a node needs a token for https; want --k8s-api-token-file, --k8s-token or --k8s-kubeconfig`},
		{"not a file", "-init-node=n1 -config-file=" + file(up, "[default\n"), `reading the configuration: ` + up.path("x.conf") + `:1: unclosed section: [default`},
	} {
		t.Run(tt.check, func(t *testing.T) {
			if status, _, errs := up.once(strings.Fields(tt.line)); status != 1 || strings.TrimSpace(errs) != "ovnkube: "+tt.want {
				t.Errorf("status %d, %s", status, errs)
			}
		})
	}
	if after := up.vsctl("list", "Open_vSwitch"); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
	if status, _, errs := up.once([]string{"-no-such-option=1"}); status != 2 || errs != "ovnkube: unknown option -no-such-option (try 'ovnkube --help')\n" {
		t.Errorf("status %d, %s", status, errs)
	}
}

// TestSettings: checks about values that are taken, as --show-config prints them.
func TestSettings(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	for _, tt := range []struct{ check, line, file, externalID, env, want string }{
		{"AC-03", "-mtu=1350", "[default]\nmtu=1300", "", "", "mtu 1350 --mtu"},
		{"AC-04", "", "[default]\ncluster-subnets=10.1.0.0/16/24", "", "", "cluster-subnets 10.1.0.0/16/24 FILE: cluster-subnets"},
		{"AC-05 flag", "-k8s-apiserver=http://w", "[Kubernetes]\napiserver=http://x", "http://y", "http://z", "k8s-api-server http://w --k8s-apiserver"},
		{"AC-05 external_ids", "", "[Kubernetes]\napiserver=http://x", "http://y", "http://z", "k8s-api-server http://y external_ids:k8s-api-server"},
		{"AC-05 file", "", "[Kubernetes]\nApiServer=http://x", "", "http://z", "k8s-api-server http://x FILE: [kubernetes] apiserver"},
		{"AC-05 environment", "", "", "", "http://z", "k8s-api-server http://z environment: K8S_APISERVER"},
		{"AC-05 default, AC-06, AC-10", "", "", "", "", "k8s-api-server http://localhost:8080 default"},
		{"AC-07", "-cluster-subnet=10.1.0.0/16 -cluster-subnets=10.2.0.0/16", "", "", "", "cluster-subnets 10.1.0.0/16 --cluster-subnet"},
		{"AC-08", "-service-cluster-ip-range=10.1.0.0/16 -k8s-service-cidr=10.2.0.0/16", "", "", "", "service-cidr 10.1.0.0/16 --service-cluster-ip-range"},
		{"AC-12 name", "-nb-address=tcp:a.b:1", "", "", "", "ovn-nb tcp:a.b:1 --nb-address"},
		{"AC-13", "-nb-address=tcp://192.0.2.10:6641", "", "", "", "ovn-nb tcp:192.0.2.10:6641 --nb-address"},
		{"AC-20", "-k8s-token=canary-3f9a", "", "", "", "k8s-api-token ******** --k8s-token"},
	} {
		t.Run(tt.check, func(t *testing.T) {
			line, env := strings.Fields(tt.line+" -show-config"), []string{"K8S_APISERVER=" + tt.env}
			file := h.write("etc/openvswitch/ovn_k8s.conf", tt.file)
			h.vsctl("remove", "Open_vSwitch", ".", "external_ids", "k8s-api-server")
			if tt.externalID != "" {
				h.vsctl("set", "Open_vSwitch", ".", `external_ids:k8s-api-server="`+tt.externalID+`"`)
			}
			status, out, errs := h.once(line, env...)
			want := strings.ReplaceAll(tt.want, "FILE", file)
			if status != 0 || errs != "" || shown(out, want) != want {
				t.Errorf("status %d, %s\n%s\nwant %s", status, errs, shown(out, want), want)
			}
		})
	}
}

// shown is the line of --show-config with the first word of want, its spaces reduced to one.
func shown(out, want string) string {
	name, _, _ := strings.Cut(want, " ")
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == name {
			return strings.Join(words, " ")
		}
	}
	return ""
}
