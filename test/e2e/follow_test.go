package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ovn-k8s/docs"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/link"
	"ovn-k8s/lib/names"
	"ovn-k8s/test/kubelet"
	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// A changed setting is a line of the table of TestSettingsAreFollowed: a value of a setting, and its effects on the
// running programs of the master.
type changed struct {
	setting, value string
	// with are more settings with this value, bad values that are refused.
	with map[string]string
	bad  []string
	// effects by reader of the setting; told: the log names the setting, and a reader has no other effect.
	effects map[config.Reader]func() string
}

// follower is the master with programs whose settings change.
type follower struct {
	*testing.T
	*world.Node
	outside netip.Addr                // of a host with servers for the programs
	before  map[string]string         // external_ids
	logs    map[config.Reader]string  // files
	read    map[config.Reader]int     // bytes of logs before the present line of the table
	kube    *recorder                 // requests to the API server
	pods    int                       // number made
	set     map[string]config.Setting // by name
}

const confFile = "/etc/openvswitch/ovn_k8s.conf"

// Each setting of docs/configuration.md is followed by the running programs that the documentation names, or the log
// says the next step. Bad values leave the former ones, with one line.
func TestSettingsAreFollowed(t *testing.T) {
	ofPrograms(t, "./ovnkube")
	require.Nothing(t, require.Cluster, world.Missing())
	if together() {
		t.Skip("the roles have logs and arguments of their own")
	}
	f := newFollower(t)
	table := f.table()
	documented := documentedSettings(t)
	for _, c := range table {
		if !slices.Contains(documented, c.setting) {
			t.Errorf("%s is not in docs/configuration.md", c.setting)
		}
	}
	for _, name := range documented {
		if !slices.ContainsFunc(table, func(c changed) bool { return c.setting == name }) {
			t.Errorf("%s has no line in the table of this test", name)
		}
	}
	for _, c := range table {
		t.Run(c.setting, func(t *testing.T) {
			f.T = t
			f.change(c)
		})
	}
	f.T = t
	consistent(t)
}

// documentedSettings lists the settings in the table of docs/configuration.md.
func documentedSettings(t *testing.T) (all []string) {
	text, err := fs.ReadFile(docs.Files, "configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## All settings")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^\| ([a-z0-9-]+): `).FindAllStringSubmatch(table, -1) {
		all = append(all, m[1])
	}
	return all
}

func newFollower(t *testing.T) *follower {
	f := &follower{T: t, Node: cluster.Master(), outside: cluster.Outside.Addresses[0].Addr(), before: map[string]string{}, read: map[config.Reader]int{}, set: map[string]config.Setting{}}
	f.logs = map[config.Reader]string{
		config.Watcher: "/var/log/openvswitch/ovn-k8s-watcher.log", config.Helper: "/var/log/openvswitch/ovn-k8s-gateway-helper.log", config.Plugin: "/var/log/openvswitch/ovn-k8s-cni-overlay.log",
	}
	for _, s := range config.Settings() {
		f.set[s.Name] = s
		if s.ExternalID != "" {
			f.before[s.Name] = strings.Trim(f.sh("ovs-vsctl --if-exists get Open_vSwitch . external_ids:"+s.ExternalID), `"`)
		}
	}
	t.Cleanup(func() {
		f.T = t
		f.restore(slices.Collect(maps.Keys(f.before))...)
		f.sh("rm -rf " + confFile + " /var/run/ovs2 /var/log/ovs2; ovn-k8s-gateway-helper --remove --physical-bridge=breth0 --physical-interface=eth0 || :")
		if err := cluster.StartHelper(context.Background(), f.Node); err != nil {
			t.Error(err)
		}
	})
	f.startHelper()
	f.kube = serveAPI(f.T, 16443, nil)
	// The Service has frontends at the addresses of servers, and in a subnet that becomes the join subnet. Issue 14: a
	// helper restarted for an API server at such an address did not reach it, with the rules of the helper before.
	createService(t, "followed", kubelet.DefaultPort, 7, func(s *corev1.Service) {
		s.Spec.ExternalIPs = []string{f.outside.String(), "198.51.100.7"}
		for _, port := range []int32{16641, 16642, 16443} {
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", port), Port: port})
		}
	})
	pods(t, map[string]string{"followed": "minion1"})
	f.eventually("rules of the Service", f.rules("-d 198.51.100.7/32", "198.51.100.7 . tcp"))
	return f
}

// startHelper restarts the helper with a shared bridge, and without a token of its own.
func (f *follower) startHelper() {
	f.Helper()
	f.sh(`kill $(cat /var/run/openvswitch/ovn-k8s-gateway-helper.pid /var/run/ovs2/ovn-k8s-gateway-helper.pid 2>/dev/null) || :; sleep 0.2
		ovn-k8s-gateway-helper --physical-bridge=breth0 --physical-interface=eth0 --pidfile --overwrite-pidfile --log-file -vfile:info -vconsole:emer --detach`)
}

// change makes one change, waits for its effects, tries bad values, and takes it back.
func (f *follower) change(c changed) {
	set := f.set[c.setting]
	values := maps.Clone(c.with)
	if values == nil {
		values = map[string]string{}
	}
	if c.value != "" {
		values[c.setting] = c.value
	}
	defer func() { f.takeBack(values) }()
	f.mark()
	f.kube.forget()
	f.use(values)
	for _, r := range set.Readers {
		effect := c.effects[r]
		if effect == nil && r != config.Plugin {
			effect = f.told(r, set)
		}
		if effect != nil && c.value != "" {
			f.eventually(fmt.Sprintf("%s=%s: effect on %s", c.setting, c.value, r), effect)
		}
	}
	for _, value := range c.bad {
		f.mark()
		values[c.setting] = value
		f.use(values)
		line := "keeping the former configuration: bad " + c.setting
		for _, r := range []config.Reader{config.Watcher, config.Helper} {
			f.eventually(fmt.Sprintf("%s=%s is refused by the %s", c.setting, value, r), f.logged(r, line))
			if effect := c.effects[r]; effect != nil && c.value != "" {
				if why := effect(); why != "" {
					f.Errorf("%s=%s: the former value does not stay: %s", c.setting, value, why)
				}
			}
			if n := strings.Count(f.news(r), line); n != 1 {
				f.Errorf("%s=%s: %d lines", c.setting, value, n)
			}
		}
	}
}

// use sets settings: in external_ids, or in the file where there is no other way.
func (f *follower) use(values map[string]string) {
	f.Helper()
	file, ids := "[default]\n", []string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, value := f.set[name], values[name]
		switch {
		case set.ExternalID == "":
			file += set.Keys.Current() + "=" + value + "\n"
		case value == "":
			ids = append(ids, "-- remove Open_vSwitch . external_ids "+set.ExternalID)
		default:
			ids = append(ids, fmt.Sprintf("-- set Open_vSwitch . external_ids:%s='%q'", set.ExternalID, value))
		}
	}
	if len(ids) > 0 {
		f.sh("ovs-vsctl --no-wait " + strings.Join(ids, " "))
	}
	if err := os.WriteFile(f.Path(confFile), []byte(file), 0o644); err != nil {
		f.Fatal(err)
	}
}

// restore sets the former values.
func (f *follower) restore(settings ...string) {
	f.Helper()
	values := map[string]string{}
	for _, name := range settings {
		if f.set[name].ExternalID != "" {
			values[name] = f.before[name]
		}
	}
	f.use(values)
}

// takeBack takes changes back. It waits for the API server's address: otherwise a program may see this and the next change as
// one, in which the address is the same.
func (f *follower) takeBack(values map[string]string) {
	f.Helper()
	f.mark()
	f.restore(slices.Collect(maps.Keys(values))...)
	if values["k8s-api-server"] == "" {
		return
	}
	for _, r := range []config.Reader{config.Watcher, config.Helper} {
		f.eventually(fmt.Sprintf("the %s has the former address of the API server", r), f.told(r, f.set["k8s-api-server"]))
	}
}

// apiRequests are effects of settings of the API server.
func (f *follower) apiRequests(token string) map[config.Reader]func() string {
	return map[config.Reader]func() string{
		config.Watcher: f.requested("ovn-k8s-watcher", token), config.Helper: f.requested("ovn-k8s-gateway-helper", token),
		config.Plugin: f.pod(func(world.Endpoint) string { return f.kube.missing("ovn-k8s-cni-overlay", token) }),
	}
}

func (f *follower) table() []changed {
	nb, sb, api := fmt.Sprintf("tcp:%v:16641", f.outside), fmt.Sprintf("tcp:%v:16642", f.outside), fmt.Sprintf("http://%v:16443", f.outside)
	serveDB(f.T, 16641, nil, cluster.Central.NB)
	serveDB(f.T, 16642, nil, cluster.Central.SB)
	ca := newAuthority(f.T)
	certs := serveDB(f.T, 16643, ca.server(f.outside), cluster.Central.NB)
	serveAPI(f.T, 16444, &tls.Config{Certificates: ca.server(f.outside).Certificates}).also = f.kube
	ca.client("first", 101)
	ca.client("second", 102)
	for name, text := range ca.files {
		if err := os.WriteFile(f.Path("/etc/"+name), text, 0o600); err != nil {
			f.Fatal(err)
		}
	}
	account := f.account("ovn-k8s-watcher")
	if err := os.WriteFile(f.Path("/etc/other.token"), []byte(account), 0o600); err != nil {
		f.Fatal(err)
	}
	ssl := map[string]string{"ovn-nb": fmt.Sprintf("ssl:%v:16643", f.outside), "nb-cacert": "/etc/follow-ca.crt", "nb-cert": "/etc/first.crt", "nb-privkey": "/etc/first.key"}
	serial := func(want int64) func() string {
		return func() string {
			if got := certs.serial(); got != want {
				return fmt.Sprintf("certificate %d", got)
			}
			return ""
		}
	}
	type effects = map[config.Reader]func() string
	const cms = "ovs-vsctl get Open_vSwitch . external_ids:ovn-cms-options"
	return []changed{
		{setting: "ovn-nb", value: nb, bad: []string{"10.0.0.1", "tcp:1.2.3.4:99999"}, effects: effects{
			config.Watcher: f.connected("ovn-k8s-watcher", 16641), config.Helper: f.spared(16641)}},
		{setting: "nb-cert", value: "/etc/first.crt", with: ssl, effects: effects{config.Watcher: serial(101)}},
		{setting: "nb-privkey", value: "/etc/second.key", with: with(ssl, "nb-cert", "/etc/second.crt"), bad: []string{"key"}, effects: effects{config.Watcher: serial(102)}},
		{setting: "nb-cacert", value: "/etc/first.crt", with: ssl, effects: effects{config.Watcher: f.logged(config.Watcher, "trying again: connecting to NB at ssl:")}},
		{setting: "k8s-api-server", value: api, bad: []string{"ftp://10.0.0.1", "http://user:secret@10.0.0.1", "http://10.0.0.1:0"}, effects: f.apiRequests("")},
		{setting: "k8s-api-token", value: cluster.Kube.Token, with: map[string]string{"k8s-api-server": api}, bad: []string{"two words"}, effects: f.apiRequests(cluster.Kube.Token)},
		{setting: "k8s-api-token-file", value: "/etc/other.token", with: map[string]string{"k8s-api-server": api, "k8s-api-token": ""}, bad: []string{"token"}, effects: f.apiRequests(account)},
		{setting: "k8s-ca-certificate", value: "/etc/follow-ca.crt", with: map[string]string{"k8s-api-server": fmt.Sprintf("https://%v:16444", f.outside)}, bad: []string{"ca.crt"}, effects: f.apiRequests("")},
		{setting: "mtu", value: "1300", bad: []string{"much", "100"}, effects: effects{
			config.Helper: f.shell(cms, "ovn-k8s-mtu:1300/1358/"),
			config.Plugin: f.pod(func(e world.Endpoint) string { return contained(output(f.T, e, "cat /sys/class/net/eth0/mtu"), "1300") })}},
		{setting: "conntrack-zone", value: "63000", bad: []string{"many"}, effects: effects{config.Helper: f.shell("ovs-ofctl dump-flows breth0", "zone=63000")}},
		{setting: "cluster-cidr", value: "10.77.0.0/16", bad: []string{"10.77.0.1/16"}, effects: effects{config.Helper: f.shell("ovs-ofctl dump-flows breth0", "nw_dst=10.77.0.0/16")}},
		{setting: "join-subnet", value: "198.51.100.0/24", bad: []string{"10.1.0.0/16,10.2.0.0/16"}, effects: effects{config.Helper: not(f.rules("-d 198.51.100.7/32", "198.51.100.7 . tcp"))}},
		{setting: "service-cidr", value: "10.98.0.0/16", bad: []string{"all"}, effects: effects{
			config.Watcher: func() string {
				out, _ := cluster.Central.NBCtl("--bare", "--columns=match", "list", "acl")
				return contained(out, "10.98.0.0/16")
			},
			config.Helper: f.routed()}},
		{setting: "external-ips", value: "false", bad: []string{"no"}, effects: effects{
			config.Watcher: not(func() string {
				out, _ := cluster.Central.NBCtl("--bare", "--columns=vips", "list", "load_balancer")
				return contained(out, "198.51.100.7:")
			}),
			config.Helper: not(f.rules("-d 198.51.100.7/32", "198.51.100.7 . tcp"))}},
		{setting: "gateway-port-range", value: "20000-20999", bad: []string{"9-1"}, effects: effects{config.Helper: f.rules("--dport 20000:20999", "20000-20999")}},
		{setting: "firewall", value: otherFirewall(), bad: []string{"pf"}, effects: effects{config.Helper: f.moved}},
		{setting: "healthz-bind-address", value: "127.0.0.1:10299", bad: []string{"10299", "localhost:10299", ":0"}, effects: effects{
			config.Helper: f.shell("ss -Hltn", "127.0.0.1:10299")}},
		{setting: "local-gateway-subnet", value: "169.254.44.0/24", bad: []string{"169.254.44.0"}},
		{setting: "ovn-remote", value: sb, effects: effects{config.Watcher: f.connected("ovn-k8s-watcher", 16642), config.Helper: f.spared(16642)}},
		{setting: "ovn-encap-ip", value: "10.9.9.9", effects: effects{config.Helper: f.shell(cms, "ovn-k8s-mtu:1400/1458/0")}},
		{setting: "ovn-encap-type", value: "geneve,stt", effects: effects{config.Helper: f.shell(cms, "ovn-k8s-mtu:1400/1472/")}},
		{setting: "system-id", value: "renamed", effects: effects{config.Watcher: f.leads(names.ConfigNamespace, "renamed/")}},
		{setting: "cni-conf-path", value: "/etc/cni/other", bad: []string{"here"}},
		{setting: "cni-link-path", value: "/opt/cni/other"},
		{setting: "cni-plugin", value: "other"},
		{setting: "log-path", value: "/var/log/openvswitch/other.log", effects: effects{
			config.Plugin: f.pod(func(world.Endpoint) string { return f.shell("cat /var/log/openvswitch/other.log", "follower-")() })}},
		{setting: "cni-timeout", value: "1s", bad: []string{"soon"}, effects: effects{config.Plugin: f.frozen(world.WatcherPidfile, f.failing("POD after 1"))}},
		{setting: "unix-socket", value: "/var/run/follow.sock", with: map[string]string{"ovn-nb": ""}, bad: []string{"socket"}, effects: effects{config.Watcher: serveSocket(f.T, f.Node, "/var/run/follow.sock")}},
		{setting: "rundir", value: "/var/run/ovs2", bad: []string{"run"}, effects: effects{
			config.Plugin:  f.failing("/var/run/ovs2/db.sock"),
			config.Restart: f.restarted("rundir", "mkdir -p /var/run/ovs2; ln -sf /var/run/openvswitch/*.sock /var/run/openvswitch/*.mgmt /var/run/openvswitch/ovs-vswitchd* /var/run/ovs2/", "/var/run/ovs2/ovn-k8s-gateway-helper.pid")}},
		{setting: "logdir", value: "/var/log/ovs2", bad: []string{"log"}, effects: effects{
			config.Restart: f.restarted("logdir", "mkdir -p /var/log/ovs2", "/var/log/ovs2/ovn-k8s-gateway-helper.log")}},
		{setting: "ovn-config-namespace", value: "default", with: map[string]string{"k8s-api-token": cluster.Kube.Token}, bad: []string{"Default"}, effects: effects{config.Watcher: f.leads("default", "")}},
		{setting: "ovn-mode", bad: []string{"underlay"}},
	}
}

// routed waits for the route to the cluster's ServiceCIDR, once it is not in the setting. Older releases of Kubernetes have
// no ServiceCIDRs.
func (f *follower) routed() func() string {
	if !kubetest.Has(kubetest.ServiceCIDRs) {
		return nil
	}
	return f.shell("ip route show 172.30.0.0/16 metric "+fmt.Sprint(link.ServiceMetric), "k8s-master")
}

func with(values map[string]string, name, value string) map[string]string {
	values = maps.Clone(values)
	values[name] = value
	return values
}
