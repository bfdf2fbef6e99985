package ovnkube

import (
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/lib/ovsdb/dbserver"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// Two masters with other files do not rewrite the row SSL of a shared database in turn. The last one to start wins, and the
// other one warns once. Missing rows are written again.
func TestMastersWithOtherFiles(t *testing.T) {
	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	nbctl := func(args ...string) string {
		t.Helper()
		out, err := c.NBCtl(args...)
		if err != nil {
			t.Fatal(out, err)
		}
		return strings.TrimSpace(out)
	}
	log, lines := logtest.NewNullLogger()
	first, second := newConfigured(logrus.NewEntry(log)), newConfigured(logrus.NewEntry(log))
	look := func(master *configured, s dbserver.Server, certificate, line string) {
		t.Helper()
		if err := master.configure(t.Context(), []dbserver.Server{s}); err != nil {
			t.Fatal(err)
		}
		if got := nbctl("--bare", "--columns=certificate", "list", "SSL"); got != certificate {
			t.Errorf("the row SSL has %q, want %q", got, certificate)
		}
		var logged []string
		for _, e := range lines.AllEntries() {
			logged = append(logged, e.Level.String()+" "+e.Message)
		}
		if got := strings.Join(logged, "; "); got != line {
			t.Errorf("the log has %q, want %q", got, line)
		}
		lines.Reset()
	}
	server := func(name string) dbserver.Server {
		return dbserver.Server{Database: dbserver.Northbound, Socket: strings.TrimPrefix(c.NB, "unix:"), Target: "pssl:0:127.0.0.1",
			Files: ovsdb.Files{PrivateKey: name + ".key", Certificate: name + ".cert", CACert: name + ".ca"}}
	}
	nbctl("init") // ovn-northd may not have made the row of NB_Global yet
	a, b := server("/nonexistent/a"), server("/nonexistent/b")
	written := func(name string) string { return "info OVN_Northbound: it listens at pssl:0:127.0.0.1 with " + name }
	const left = "warning OVN_Northbound: another program has set the certificate /nonexistent/b.cert in the row SSL, " +
		"in place of /nonexistent/a.cert; it stays: give all masters the same files"
	look(first, a, a.Certificate, written(a.Certificate))
	look(first, a, a.Certificate, "")
	look(second, b, b.Certificate, written(b.Certificate))
	look(first, a, b.Certificate, left)
	look(second, b, b.Certificate, "")
	look(first, a, b.Certificate, "")
	if differs, err := a.Differs(t.Context(), ourConnection()); !differs || err != nil {
		t.Errorf("check finds a difference: %v, %v", differs, err)
	}
	nbctl("del-ssl", "--", "del-connection") // as in a database that is replaced
	look(first, a, a.Certificate, written(a.Certificate))
	renewed := a
	renewed.Certificate = "/nonexistent/c.cert" // other settings
	look(first, renewed, renewed.Certificate, written(renewed.Certificate))
	look(first, a, a.Certificate, written(a.Certificate))
}

// A server with an address of IPv6 among those of the hosts listens at IPv6, too. The connection of a former release or setting
// goes, since both have one port, and those of others stay.
func TestServersListenAtIPv6(t *testing.T) {
	for remotes, want := range map[string]string{
		"ssl:192.0.2.10:6641": "pssl:6641", "ssl:db.example:6641": "pssl:6641", "ssl:[fd00::10]:6641": "pssl:6641:[::]",
		"ssl:192.0.2.10:6641,ssl:[fd00::11]:6641": "pssl:6641:[::]",
	} {
		o := options.Options{NBServer: options.Files{PrivateKey: "/k"}}
		o.NB = strings.Split(remotes, ",")
		if all := servers(o); len(all) != 1 || all[0].Target != want {
			t.Errorf("%s: %v, want %s", remotes, all, want)
		}
	}

	require.Nothing(t, require.Central, ovntest.Missing())
	c, err := ovntest.Start(ovntest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	before := targets(t, c)
	server := dbserver.Server{Database: dbserver.Northbound, Socket: strings.TrimPrefix(c.NB, "unix:"), Files: ovsdb.Files{PrivateKey: "/nonexistent/key"}}
	if out, err := c.NBCtl("--", "--id=@c", "create", "Connection", `target="pssl:0:127.0.0.2"`, "--", "add", "NB_Global", ".", "connections", "@c"); err != nil {
		t.Fatal(out, err)
	}
	for _, target := range []string{"pssl:0", "pssl:0:[::]", "pssl:0"} {
		server.Target = target
		if err := newConfigured(logrus.NewEntry(logrus.New())).configure(t.Context(), []dbserver.Server{server}); err != nil {
			t.Fatal(err)
		}
		if got, want := targets(t, c), append([]string{"pssl:0:127.0.0.2", target}, before...); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Errorf("with %s it listens at %q, want %q", target, got, want)
		}
		if differs, err := server.Differs(t.Context(), ourConnection()); differs || err != nil {
			t.Errorf("check finds a difference: %v, %v", differs, err)
		}
	}
}

// targets are those of all connections.
func targets(t *testing.T, c *ovntest.Central) []string {
	t.Helper()
	out, err := c.NBCtl("--bare", "--columns=target", "list", "Connection")
	if err != nil {
		t.Fatal(out, err)
	}
	return slices.Sorted(slices.Values(strings.Fields(out)))
}
