package ovnkube

import (
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

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
	if differs, err := a.Differs(t.Context()); !differs || err != nil {
		t.Errorf("check finds a difference: %v, %v", differs, err)
	}
	nbctl("del-ssl", "--", "del-connection") // as in a database that is replaced
	look(first, a, a.Certificate, written(a.Certificate))
	renewed := a
	renewed.Certificate = "/nonexistent/c.cert" // other settings
	look(first, renewed, renewed.Certificate, written(renewed.Certificate))
	look(first, a, a.Certificate, written(a.Certificate))
}
