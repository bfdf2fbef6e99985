package config_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ovn-k8s/lib/config"
)

// certificate is a self-signed test certificate.
const certificate = `-----BEGIN CERTIFICATE-----
MIIBLDCB36ADAgECAgEBMAUGAytlcDARMQ8wDQYDVQQDEwZrOHMtY2EwHhcNMjYw
-----END CERTIFICATE-----
`

func exists(paths ...string) func(string) bool {
	return func(p string) bool {
		for _, q := range paths {
			if p == q {
				return true
			}
		}
		return false
	}
}

func TestDefaults(t *testing.T) {
	got, err := config.Resolve(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Config{
		NBPrivateKey: "/etc/openvswitch/ovncontroller-privkey.pem", NBCertificate: "/etc/openvswitch/ovncontroller-cert.pem",
		NBCACert: "/etc/openvswitch/ovnnb-ca.cert", NBSocket: "/var/run/ovn/ovnnb_db.sock",
		SBPrivateKey: "/etc/openvswitch/ovncontroller-privkey.pem", SBCertificate: "/etc/openvswitch/ovncontroller-cert.pem",
		SBCACert:        "/etc/openvswitch/ovnnb-ca.cert",
		ConfigNamespace: "kube-system", MTU: 1400, ConntrackZone: 64000, ExternalIPs: true,
		JoinSubnets:  []netip.Prefix{netip.MustParsePrefix("100.64.0.0/16"), netip.MustParsePrefix("fd98::/64")},
		LocalSubnets: []netip.Prefix{netip.MustParsePrefix("169.254.33.0/24"), netip.MustParsePrefix("fd69:254:33::/64")},
		GatewayPorts: "10000-29999",
		Firewall:     config.AnyFirewall,
		Healthz:      ":10256",
		CNIConfDir:   "/etc/cni/net.d", CNIBinDir: "/opt/cni/bin", CNIPlugin: "ovn-k8s-cni-overlay",
		CNILogFile: "/var/log/openvswitch/ovn-k8s-cni-overlay.log", CNITimeout: time.Minute,
		RunDir: "/var/run/openvswitch", LogDir: "/var/log/openvswitch",
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(config.Config{}), cmp.Comparer(samePrefix)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func samePrefix(a, b netip.Prefix) bool { return a == b }

func TestResolve(t *testing.T) {
	pem := strings.ReplaceAll(certificate, "\n", `\n`)
	for _, tt := range []struct {
		name    string
		sources config.Sources
		got     func(config.Config) any
		want    any
	}{
		{"flag before everything", config.Sources{
			Flags: map[string]string{"mtu": "1500"}, ExternalIDs: map[string]string{"ovn-k8s-mtu": "1450"}, File: map[string]string{"mtu": "1350"},
		}, func(c config.Config) any { return c.MTU }, 1500},
		{"external_ids before the file", config.Sources{
			ExternalIDs: map[string]string{"ovn-k8s-mtu": "1450"}, File: map[string]string{"mtu": "1350"},
		}, func(c config.Config) any { return c.MTU }, 1450},
		{"Check18 mtu from the file", config.Sources{File: map[string]string{"mtu": "1350"}}, func(c config.Config) any { return c.MTU }, 1350},
		{"hyphens in the file", config.Sources{File: map[string]string{"conntrack-zone": "64321"}}, func(c config.Config) any { return c.ConntrackZone }, 64321},
		{"an empty value is none", config.Sources{
			Flags: map[string]string{"mtu": " "}, ExternalIDs: map[string]string{"ovn-k8s-mtu": ""}, File: map[string]string{"mtu": "1350"},
		}, func(c config.Config) any { return c.MTU }, 1350},
		{"environment before the default", config.Sources{Env: map[string]string{"OVN_NB_DB": "tcp:1.2.3.4:6641"}},
			func(c config.Config) any { return c.NB }, []string{"tcp:1.2.3.4:6641"}},
		{"NB cluster, other spelling", config.Sources{ExternalIDs: map[string]string{"ovn-nb": "tcp://10.0.0.1:6641, ssl:[fd00::1]:6641"}},
			func(c config.Config) any { return c.NB }, []string{"tcp:10.0.0.1:6641", "ssl:[fd00::1]:6641"}},
		{"NB on this host", config.Sources{Exists: exists("/var/run/ovn/ovnnb_db.sock")},
			func(c config.Config) any { return c.NB }, []string{"unix:/var/run/ovn/ovnnb_db.sock"}},
		{"NB on this host, directory moved", config.Sources{Env: map[string]string{"OVN_RUNDIR": "/x"}, Exists: exists("/x/ovnnb_db.sock")},
			func(c config.Config) any { return c.NB }, []string{"unix:/x/ovnnb_db.sock"}},
		{"NB on this host, old place", config.Sources{Env: map[string]string{"OVS_RUNDIR": "/y"}, Exists: exists("/y/ovnnb_db.sock")},
			func(c config.Config) any { return c.NB }, []string{"unix:/y/ovnnb_db.sock"}},
		{"NB socket configured", config.Sources{File: map[string]string{"unix_socket": "/z/nb.sock"}, Exists: exists("/z/nb.sock")},
			func(c config.Config) any { return c.NB }, []string{"unix:/z/nb.sock"}},
		{"API server without a scheme", config.Sources{ExternalIDs: map[string]string{"k8s-api-server": "10.0.0.1:8080"}},
			func(c config.Config) any { return c.APIServer }, "http://10.0.0.1:8080"},
		{"API server with one", config.Sources{ExternalIDs: map[string]string{"k8s-api-server": "https://k8s.example:6443/"}},
			func(c config.Config) any { return c.APIServer }, "https://k8s.example:6443"},
		{"API server in a pod", config.Sources{Env: map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}},
			func(c config.Config) any { return c.APIServer }, "https://[fd00::1]:443"},
		{"token", config.Sources{ExternalIDs: map[string]string{"k8s-api-token": "abc"}},
			func(c config.Config) any { return c.APIToken.Reveal() + c.APITokenFile }, "abc"},
		{"token file on the command line wins over the token", config.Sources{
			Flags: map[string]string{"k8s-api-token-file": "/t"}, ExternalIDs: map[string]string{"k8s-api-token": "abc"},
		}, func(c config.Config) any { return c.APIToken.Reveal() + c.APITokenFile }, "/t"},
		{"token wins over the service account's", config.Sources{
			ExternalIDs: map[string]string{"k8s-api-token": "abc"}, Exists: exists(config.ServiceAccountToken),
		}, func(c config.Config) any { return c.APIToken.Reveal() + c.APITokenFile }, "abc"},
		{"service account", config.Sources{Exists: exists(config.ServiceAccountToken, config.ServiceAccountCA)},
			func(c config.Config) any { return c.APITokenFile + c.APICAFile }, config.ServiceAccountToken + config.ServiceAccountCA},
		{"CA as text with escapes", config.Sources{ExternalIDs: map[string]string{"k8s-ca-certificate": pem}},
			func(c config.Config) any { return strings.TrimSpace(c.APICA) }, strings.TrimSpace(certificate)},
		{"CA as a file", config.Sources{ExternalIDs: map[string]string{"k8s-ca-certificate": "/etc/ca.crt"}},
			func(c config.Config) any { return c.APICAFile }, "/etc/ca.crt"},
		{"CA in its usual place", config.Sources{Exists: exists("/etc/openvswitch/k8s-ca.crt")},
			func(c config.Config) any { return c.APICAFile }, "/etc/openvswitch/k8s-ca.crt"},
		{"time in seconds", config.Sources{ExternalIDs: map[string]string{"ovn-k8s-cni-timeout": "90"}},
			func(c config.Config) any { return c.CNITimeout }, 90 * time.Second},
		{"unknown keys are named", config.Sources{
			ExternalIDs: map[string]string{
				"ovn-k8s-mut": "1", "ovn-k8s-other": "1", "k8s-api-sever": "x", "hostname": "x", "ovn-encap-tos": "0", "ovn-bridge": "br-int", "rundir": "/",
				"ovn-k8s-wait-before-clear": "8000", "ovn-k8s-flow-restore-wait": "true", "ovn-k8s-former-ids": "{}",
			},
			File: map[string]string{"mtuu": "1", "mtu": "1400"},
		}, func(c config.Config) any { return c.Ignored }, []string{
			"external_ids:k8s-api-sever is no setting: it is ignored; did you mean k8s-api-server?",
			"external_ids:ovn-k8s-mut is no setting: it is ignored; did you mean ovn-k8s-mtu?",
			"external_ids:ovn-k8s-other is no setting: it is ignored",
			"ovn_k8s.conf: mtuu is no setting: it is ignored; did you mean mtu?"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := config.Resolve(tt.sources)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tt.got(c)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Each error names the value, its source and the valid values.
func TestResolveNamesEveryProblem(t *testing.T) {
	_, err := config.Resolve(config.Sources{
		Flags: map[string]string{"mtu": "14OO"},
		ExternalIDs: map[string]string{
			"ovn-nb": "tcp:10.0.0.1", "k8s-api-server": "ftp://x", "k8s-ca-certificate": "ca.crt",
			"ovn-k8s-join-subnet": "100.64.0.1/16", "ovn-k8s-service-cidr": "10.96.0.0/12,10.112.0.0/16",
		},
		File:     map[string]string{"conntrack_zone": "70000", "cni_conf_path": "net.d", "cni_timeout": "0", "ovn_mode": "underlay", "Kubernetes.ovn_config_namespace": "OVN"},
		FileName: "/etc/openvswitch/ovn_k8s.conf",
	})
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		`bad cni-conf-path "net.d" (from /etc/openvswitch/ovn_k8s.conf: cni_conf_path): want an absolute path`,
		`bad ovn-nb "tcp:10.0.0.1" (from external_ids:ovn-nb): "tcp:10.0.0.1": missing port in address: want tcp:HOST:PORT, as in tcp:10.0.0.1:6641`,
		`bad k8s-api-server "ftp://x" (from external_ids:k8s-api-server): want HOST:PORT, http://HOST:PORT or https://HOST:PORT`,
		`bad k8s-ca-certificate "ca.crt" (from external_ids:k8s-ca-certificate): want PEM text that starts with -----BEGIN CERTIFICATE-----, or an absolute path`,
		`bad ovn-config-namespace "OVN" (from /etc/openvswitch/ovn_k8s.conf: [Kubernetes] ovn_config_namespace): want the name of a namespace: at most 63 lower case letters, digits and hyphens, no hyphen first or last`,
		`bad mtu "14OO" (from --mtu): want a number from 576 to 65535`,
		`bad conntrack-zone "70000" (from /etc/openvswitch/ovn_k8s.conf: conntrack_zone): want a number from 1 to 65535`,
		`bad cni-timeout "0" (from /etc/openvswitch/ovn_k8s.conf: cni_timeout): want a time from 1s to 1h`,
		`bad join-subnet "100.64.0.1/16" (from external_ids:ovn-k8s-join-subnet): "100.64.0.1/16" has bits of the host set; want 100.64.0.0/16`,
		`bad ovn-mode "underlay" (from /etc/openvswitch/ovn_k8s.conf: ovn_mode): want overlay`,
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	const secret = "s3cr3t"
	c, err := config.Resolve(config.Sources{ExternalIDs: map[string]string{"k8s-api-token": secret}})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %v %+v %#v %q %x %s", c, c, c, c.Show(), c.APIToken, &c, &c, c.APIToken, c.APIToken, text)
	if strings.Contains(all, secret) || strings.Contains(all, fmt.Sprintf("%x", secret)) {
		t.Errorf("the token is printed:\n%s", all)
	}
	for _, bad := range []map[string]string{
		{"k8s-api-token": secret + " x"},
		{"k8s-api-server": "https://admin:" + secret + "@host"},
		{"k8s-ca-certificate": "-----BEGIN PRIVATE KEY-----\n" + secret + "AA\n-----END PRIVATE KEY-----"},
	} {
		c, err := config.Resolve(config.Sources{ExternalIDs: bad})
		if err == nil {
			t.Errorf("%v: no error", bad)
			continue
		}
		if strings.Contains(err.Error(), secret) || strings.Contains(c.Show(), secret) {
			t.Errorf("a secret is printed: %v\n%s", err, c.Show())
		}
	}
}

func TestShow(t *testing.T) {
	c, err := config.Resolve(config.Sources{
		Flags:       map[string]string{"mtu": "1500"},
		ExternalIDs: map[string]string{"k8s-api-token": "abc", "ovn-nb": "tcp://10.0.0.1:6641"},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(c.Show(), "\n")
	for _, want := range []string{
		"NAME VALUE SOURCE", "mtu 1500 --mtu", "k8s-api-token ******** external_ids:k8s-api-token",
		"ovn-nb tcp:10.0.0.1:6641 external_ids:ovn-nb", "conntrack-zone 64000 default", "k8s-api-server - -",
	} {
		found := false
		for _, l := range lines {
			found = found || strings.Join(strings.Fields(l), " ") == want
		}
		if !found {
			t.Errorf("no line %q in\n%s", want, c.Show())
		}
	}
}

// Every setting has at least one source, and names of its own.
func TestSettings(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range config.Settings() {
		if s.Text == "" || s.Flags.Current()+s.ExternalID+s.Keys.Current() == "" {
			t.Errorf("%s: no text or no way to set it", s.Name)
		}
		for source, names := range map[string]config.Names{"--": s.Flags, "external_ids:": config.Named(s.ExternalID), "file: ": s.Keys, "environment: ": s.Env} {
			for _, n := range names {
				if n.Text != "" && seen[source+n.Text] {
					t.Errorf("%s%s is there twice", source, n.Text)
				}
				seen[source+n.Text] = true
			}
		}
		if !strings.Contains(config.Markdown(config.Settings()), "| "+s.Name+": ") {
			t.Errorf("%s is not in the table", s.Name)
		}
	}
}

func TestParseRemotes(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"unix:/run/x.sock":                     "unix:/run/x.sock",
		"unix:///run/x.sock":                   "unix:/run/x.sock",
		"tcp:h:1":                              "tcp:h:1",
		"tcp:a:1,tcp:b:2,tcp:a:1":              "tcp:a:1 tcp:b:2",
		"ssl://[fd00::1]:6641":                 "ssl:[fd00::1]:6641",
		"tcp:fd00::1:6641":                     `error "tcp:fd00::1:6641": too many colons in address: want tcp:HOST:PORT, as in tcp:10.0.0.1:6641`,
		"tcp:1.2.3.4:0":                        `error "tcp:1.2.3.4:0": bad port "0": want tcp:HOST:PORT, as in tcp:10.0.0.1:6641`,
		"unix:db.sock":                         `error "unix:db.sock": the file of unix: must be an absolute path`,
		"http://1.2.3.4:6641, 10.0.0.1, x:y:z": "error \"http://1.2.3.4:6641\": want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT\n\"10.0.0.1\": want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT\n\"x:y:z\": want unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT",
	} {
		remotes, err := config.ParseRemotes(in)
		got := strings.Join(remotes, " ")
		if err != nil {
			got = "error " + err.Error()
		}
		if got != want {
			t.Errorf("%q:\n got %s\nwant %s", in, got, want)
		}
	}
}

func FuzzParseRemotes(f *testing.F) {
	f.Add("tcp:10.0.0.1:6641,ssl://[::1]:6642,unix:/x")
	f.Fuzz(func(t *testing.T, in string) {
		remotes, err := config.ParseRemotes(in)
		if err != nil {
			return
		}
		again, err := config.ParseRemotes(strings.Join(remotes, ","))
		if err != nil || cmp.Diff(remotes, again) != "" {
			t.Errorf("%q gives %q, and that gives %q, %v", in, remotes, again, err)
		}
	})
}

func FuzzResolve(f *testing.F) {
	f.Add("k8s-ca-certificate", certificate)
	f.Add("k8s-api-server", "10.0.0.1:8080")
	f.Add("ovn-k8s-join-subnet", "100.64.0.0/16")
	f.Fuzz(func(t *testing.T, key, value string) {
		c, err := config.Resolve(config.Sources{ExternalIDs: map[string]string{key: value}, File: map[string]string{key: value}})
		if err == nil && strings.Count(c.Show(), "\n") < len(config.Settings()) {
			t.Errorf("%q=%q: settings are missing:\n%s", key, value, c.Show())
		}
	})
}

// samples has a value for each setting, other than the default.
var samples = map[string]string{
	"ovn-nb": "tcp:10.0.0.1:6641", "nb-privkey": "/key", "nb-cert": "/cert", "nb-cacert": "/ca", "k8s-api-server": "https://10.0.0.1",
	"k8s-api-token": "token", "k8s-api-token-file": "/token", "k8s-ca-certificate": "/ca", "ovn-config-namespace": "ovn-kubernetes", "mtu": "1300", "conntrack-zone": "1",
	"cluster-cidr": "10.0.0.0/8", "join-subnet": "10.0.0.0/8", "service-cidr": "10.0.0.0/8", "external-ips": "false", "gateway-port-range": "1-2", "firewall": "nftables", "healthz-bind-address": "off",
	"local-gateway-subnet": "10.0.0.0/8", "ovn-remote": "tcp:10.0.0.1:6642", "ovn-encap-ip": "10.0.0.1", "ovn-encap-type": "stt",
	"system-id": "x", "cni-conf-path": "/conf", "cni-link-path": "/bin", "cni-plugin": "/plugin", "log-path": "/log", "cni-timeout": "2m",
	"unix-socket": "/socket", "rundir": "/run", "logdir": "/log", "ovn-mode": "",
}

// T11: no setting is forgotten when two configurations are compared.
func TestChanges(t *testing.T) {
	before, _ := config.Resolve(config.Sources{})
	compared := map[string]bool{"Ignored": true, "APICA": true, "Kubeconfig": true} // no setting, below, and ovnkube's
	for _, set := range config.Settings() {
		s := config.Sources{ExternalIDs: map[string]string{set.ExternalID: samples[set.Name]}}
		if set.ExternalID == "" {
			s = config.Sources{File: map[string]string{set.Keys.Current(): samples[set.Name]}}
		}
		now, err := config.Resolve(s)
		var names []string
		for _, c := range before.Changes(now) {
			names = append(names, c.Name)
		}
		if err != nil || set.Name != "ovn-mode" && !slices.Equal(names, []string{set.Name}) || len(now.Changes(now)) > 0 {
			t.Errorf("%s: %v, changes %q", set.Name, err, names)
		}
		for i := range reflect.TypeFor[config.Config]().NumField() {
			if f := reflect.TypeFor[config.Config]().Field(i); f.IsExported() && !reflect.DeepEqual(reflect.ValueOf(before).Field(i).Interface(), reflect.ValueOf(now).Field(i).Interface()) {
				compared[f.Name] = true
			}
		}
	}
	for i := range reflect.TypeFor[config.Config]().NumField() {
		if f := reflect.TypeFor[config.Config]().Field(i); f.IsExported() && !compared[f.Name] {
			t.Errorf("%s is not compared", f.Name)
		}
	}
	with := func(key, value string) config.Config {
		c, err := config.Resolve(config.Sources{ExternalIDs: map[string]string{key: value}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if c := with("k8s-api-token", "old").Changes(with("k8s-api-token", "new")); len(c) > 0 {
		t.Errorf("another token is a change: %+v", c)
	}
	other := strings.Replace(certificate, "MII", "MIJ", 1)
	if c := with("k8s-ca-certificate", certificate).Changes(with("k8s-ca-certificate", other)); len(c) != 1 || strings.Contains(fmt.Sprint(c), "MIJ") {
		t.Errorf("another certificate: %+v", c)
	}
}

// The API server and its credentials can be taken from another configuration, and nothing else of it.
func TestWithAPIServer(t *testing.T) {
	ids := map[string]string{}
	for _, set := range config.Settings() {
		ids[set.ExternalID] = samples[set.Name]
	}
	now, err := config.Resolve(config.Sources{ExternalIDs: ids})
	if err != nil {
		t.Fatal(err)
	}
	before, err := config.Resolve(config.Sources{})
	if err != nil {
		t.Fatal(err)
	}
	shown := before.Show()
	mixed := before.WithAPIServer(now)
	var names []string
	for _, c := range before.Changes(mixed) {
		names = append(names, c.Name)
	}
	if want := []string{"k8s-api-server", "k8s-api-token", "k8s-ca-certificate"}; !slices.Equal(names, want) {
		t.Errorf("%q of %q", names, want)
	}
	if mixed.APIServer != now.APIServer || mixed.APIToken != now.APIToken || mixed.APICAFile != now.APICAFile || mixed.MTU != before.MTU {
		t.Errorf("%v", mixed)
	}
	if before.Show() != shown {
		t.Error("the former configuration was changed")
	}
}
