package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"ovn-k8s/test/netfault"
	"ovn-k8s/test/require"
)

// A pki is an authority of ovs-pki(8).
type pki struct{ dir string }

func (h *host) pki(name string, certificates ...string) pki {
	h.Helper()
	if _, err := exec.LookPath("ovs-pki"); err != nil {
		require.Nothing(h, require.Central, "ovs-pki")
	}
	p := pki{h.path(name)}
	if err := os.Mkdir(p.dir, 0o755); err != nil {
		h.Fatal(err)
	}
	for _, args := range append([][]string{{"init"}}, lines(certificates)...) {
		cmd := exec.Command("ovs-pki", append([]string{"--dir=" + p.dir + "/pki", "--log=" + p.dir + "/log", "--force"}, args...)...)
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			h.Fatalf("ovs-pki %q: %v: %s", args, err, out)
		}
	}
	return p
}

func lines(certificates []string) (all [][]string) {
	for _, c := range certificates {
		all = append(all, []string{"req+sign", c})
	}
	return all
}

func (p pki) key(name string) string         { return p.dir + "/" + name + "-privkey.pem" }
func (p pki) certificate(name string) string { return p.dir + "/" + name + "-cert.pem" }
func (p pki) ca() string                     { return p.dir + "/pki/switchca/cacert.pem" }

func (h *host) port() string {
	h.Helper()
	port, err := netfault.FreePort("127.0.0.1")
	if err != nil {
		h.Fatal(err)
	}
	return fmt.Sprint(port)
}

// central starts the servers of both databases. They listen as their rows say, and at their unix sockets.
func (h *host) central() {
	h.Helper()
	for db, name := range map[string][2]string{"nb": {"OVN_Northbound", "NB_Global"}, "sb": {"OVN_Southbound", "SB_Global"}} {
		schema := "/usr/share/ovn/ovn-" + db + ".ovsschema"
		if _, err := os.Stat(schema); err != nil {
			require.Nothing(h, require.Central, schema)
		}
		file := h.path("db/" + db + ".db")
		h.tool("ovsdb-tool", "create", file, schema)
		from := func(column string) string { return "db:" + name[0] + ",SSL," + column }
		h.serve("ovn"+db, "--remote=punix:"+h.path("run/ovn"+db+"_db.sock"), "--remote=db:"+name[0]+","+name[1]+",connections",
			"--private-key="+from("private_key"), "--certificate="+from("certificate"), "--ca-cert="+from("ca_cert"), file)
		h.tool("ovn-"+db+"ctl", "--timeout=30", "--db=unix:"+h.path("run/ovn"+db+"_db.sock"), "init")
	}
}

// row is the output of ovn-nbctl or ovn-sbctl.
func (h *host) row(db string, args ...string) string {
	h.Helper()
	return h.tool("ovn-"+db+"ctl", append([]string{"--timeout=30", "--db=unix:" + h.path("run/ovn"+db+"_db.sock")}, args...)...)
}

// The server options make the databases of this host listen with ssl:, and keep other connections; the master then connects
// with its client options, and fetches a missing CA certificate. A wrong CA, and a key of another authority, have a line of
// their own, and corrected files are used without a restart.
func TestSSL(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	h.central()
	ours, theirs := h.pki("ours", "server", "client"), h.pki("theirs", "client")
	nb, sb := h.port(), h.port()
	h.row("nb", "set-connection", "ptcp:"+h.port()+":127.0.0.1")
	master := func(client pki, ca string) []string {
		line := "-init-master=n1 -k8s-apiserver=http://127.0.0.1:1"
		for db, port := range map[string]string{"nb": nb, "sb": sb} {
			line += fmt.Sprintf(" -%[1]s-address=ssl:127.0.0.1:%[2]s -%[1]s-client-privkey=%[3]s -%[1]s-client-cert=%[4]s -%[1]s-client-cacert=%[5]s -%[1]s-server-privkey=%[6]s -%[1]s-server-cert=%[7]s -%[1]s-server-cacert=%[8]s",
				db, port, client.key("client"), client.certificate("client"), ca, ours.key("server"), ours.certificate("server"), ours.ca())
		}
		return strings.Fields(line)
	}
	fetched := h.path("fetched.pem")
	p := h.start(master(ours, fetched))
	p.says("waiting: the API server is not available") // after it has read the database
	for db, port := range map[string]string{"nb": nb, "sb": sb} {
		if got := h.row(db, "get-connection"); !strings.Contains(got, "pssl:"+port) || db == "nb" && !strings.Contains(got, "ptcp:") {
			t.Errorf("%s: connections %q", db, got)
		}
		if got := h.row(db, "get-ssl"); !strings.Contains(got, ours.key("server")) || !strings.Contains(got, ours.ca()) {
			t.Errorf("%s: %s", db, got)
		}
	}
	if h.read(fetched) == "" {
		t.Error("no CA certificate was fetched")
	}
	h.losesServers(p, master(ours, fetched))
	p = h.start(master(ours, fetched))
	p.says("OVN_Southbound: it listens at")
	p.stop()
	rows := func() string { // without the status of connections
		return h.row("nb", "list", "NB_Global") + h.row("sb", "--columns=_uuid,target,inactivity_probe,external_ids", "list", "Connection")
	}
	before := rows()
	p = h.start(master(ours, theirs.ca()))
	p.says("the server's certificate does not fit the CA certificate " + theirs.ca())
	p.stop()
	p = h.start(master(theirs, ours.ca()))
	p.says("the server refuses this host's certificate")
	for _, file := range []string{"key", "certificate"} { // corrected while it runs
		from, to := ours.key("client"), theirs.key("client")
		if file == "certificate" {
			from, to = ours.certificate("client"), theirs.certificate("client")
		}
		if err := os.WriteFile(to, []byte(h.read(from)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p.says("waiting: the API server is not available")
	p.stop()
	if after := rows(); after != before {
		t.Errorf("restarts have changed rows:\n%s\n%s", before, after)
	}
}

// losesServers takes the connections and the files out of the databases, as their replacement does: check names that, and the
// running process writes them again.
func (h *host) losesServers(p *process, line []string) {
	h.Helper()
	lose := func() {
		for _, db := range []string{"nb", "sb"} {
			h.row(db, "del-ssl", "--", "del-connection")
		}
	}
	has := func(db string) bool { return h.row(db, "get-connection") != "" && h.row(db, "get-ssl") != "" }
	lose()
	h.eventually("the servers listen again", func() bool { return has("nb") && has("sb") })
	if n := strings.Count(p.out.String(), "OVN_Southbound: it listens at"); n != 2 {
		h.Errorf("%d lines:\n%s", n, p.out.String())
	}
	p.stop()
	lose()
	_, out, _ := h.once(append([]string{"check"}, line...))
	for _, want := range []string{"~ server of OVN_Northbound: listen at pssl:", "~ server of OVN_Southbound: listen at pssl:"} {
		if !strings.Contains(out, want) {
			h.Errorf("check: no %q in\n%s", want, out)
		}
	}
	if has("nb") || has("sb") {
		h.Error("check has changed a database")
	}
}

// A connection of others at the port of a server's own one, as of an installation without SSL, is named by the log and by
// check. Once it is gone, the server listens.
func TestServerPortIsTaken(t *testing.T) {
	h := newHost(t)
	h.startSwitch()
	h.central()
	port, file := h.port(), h.write("file", "")
	h.row("nb", "set-connection", "ptcp:"+port)
	line := strings.Fields(fmt.Sprintf("-init-master=n1 -k8s-apiserver=http://127.0.0.1:1 -nb-address=ssl:127.0.0.1:%[1]s -sb-address=tcp:127.0.0.1:1 -nb-client-privkey=%[2]s -nb-client-cert=%[2]s -nb-server-privkey=%[2]s -nb-server-cert=%[2]s -nb-server-cacert=%[2]s", port, file))
	want := fmt.Sprintf(`cannot listen at pssl:%[1]s: connection ptcp:%[1]s of OVN_Northbound has the port: remove all connections with "ovn-nbctl del-connection", or give --nb-address another port`, port)
	p := h.start(line)
	p.says("waiting: " + want)
	if status, out, _ := h.once(append([]string{"check"}, line...)); status == 0 || !strings.Contains(out, "! server of OVN_Northbound: "+want+"\n") {
		t.Errorf("check: status %d\n%s", status, out)
	}
	if got := h.row("nb", "get-connection") + p.out.String(); strings.Contains(got, "\npssl:") || strings.Contains(got, "it listens at") {
		t.Errorf("it has changed the connections:\n%s", got)
	}
	h.row("nb", "del-connection")
	p.says("OVN_Northbound: it listens at pssl:" + port)
	p.says("recovered: serving")
}

// The files for servers belong together.
func TestServerOptions(t *testing.T) {
	h := newHost(t)
	file := h.write("file", "")
	for line, want := range map[string]string{
		"-nb-server-cert=" + file: `bad nb-server-cert "` + file + `" (from --nb-server-cert): ovn-nb has no ssl: address; want that at which the server shall listen`,
		"-sb-address=ssl:127.0.0.1:1 -sb-client-privkey=" + file + " -sb-client-cert=" + file + " -sb-server-privkey=" + file + " -sb-server-cert=" + file + " -sb-server-cacert=/nowhere": `bad sb-server-cacert "/nowhere" (from --sb-server-cacert): there is no such file`,
	} {
		if status, _, errs := h.once(strings.Fields("-init-master=n1 " + line)); status != 1 || !strings.HasPrefix(errs, "ovnkube: "+want+"\n") {
			t.Errorf("%s: status %d, %s", line, status, errs)
		}
	}
}
