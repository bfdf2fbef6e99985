package ovnkube

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

// Directory of certificates on hosts.
const etc = "/etc/openvswitch"

// A pki is an authority of ovs-pki(8), with pairs for servers and clients.
type pki struct{ dir string }

func newPKI(c *cluster) pki {
	c.Helper()
	p := pki{c.TempDir()}
	for _, args := range []string{"init", "req+sign ovnnb", "req+sign ovnsb", "req+sign ovncontroller"} {
		cmd := exec.Command("ovs-pki", append([]string{"--dir=" + p.dir + "/pki", "--log=" + p.dir + "/log", "--force"}, strings.Fields(args)...)...)
		cmd.Dir = p.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			c.Fatalf("ovs-pki %s: %v: %s", args, err, out)
		}
	}
	return p
}

func (p pki) ca() string { return p.dir + "/pki/switchca/cacert.pem" }

// install replaces files of a host at once.
func (c *cluster) install(n *world.Node, files map[string]string) {
	c.Helper()
	for name, from := range files {
		text, err := os.ReadFile(from)
		c.must(err)
		to := n.Path(filepath.Join(etc, name))
		c.must(errors.Join(os.WriteFile(to+".new", text, 0o600), os.Rename(to+".new", to)))
	}
}

// pairs are the files of a host, but for the CA certificate of clients.
func (p pki) pairs(master bool) map[string]string {
	names := []string{"ovncontroller"}
	files := map[string]string{}
	if master {
		names = append(names, "ovnnb", "ovnsb")
		files["cacert.pem"] = p.ca()
	}
	for _, name := range names {
		for _, kind := range []string{"-privkey.pem", "-cert.pem"} {
			files[name+kind] = p.dir + "/" + name + kind
		}
	}
	return files
}

// clientFiles are the names of the CA certificates that are fetched.
var clientFiles = map[string]string{"nb": "fetched-nb.pem", "sb": "fetched-sb.pem"}

// sslArguments are the options of a host.
func (c *cluster) sslArguments(n *world.Node) (args []string) {
	for db, port := range map[string]int{"nb": 6641, "sb": 6642} {
		args = append(args, fmt.Sprintf("-%s-address=ssl:%v:%d", db, c.Master().IPv4(), port),
			fmt.Sprintf("-%s-client-privkey=%s/ovncontroller-privkey.pem", db, etc), fmt.Sprintf("-%s-client-cert=%s/ovncontroller-cert.pem", db, etc),
			fmt.Sprintf("-%s-client-cacert=%s/%s", db, etc, clientFiles[db]))
		if n == c.Master() {
			args = append(args, fmt.Sprintf("-%s-server-privkey=%s/ovn%[1]s-privkey.pem", db, etc), fmt.Sprintf("-%s-server-cert=%s/ovn%[1]s-cert.pem", db, etc),
				fmt.Sprintf("-%s-server-cacert=%s/cacert.pem", db, etc))
		}
	}
	return args
}

// AC-101: with a real ovs-pki the master connects to both databases by SSL, ovn-controller of every node to the Southbound
// database, and each fetches a missing CA certificate. The SSL files of a node come before ovn-remote. Then all certificates,
// also those of the CA, are replaced while everything runs; and a wrong CA and a wrong key of either database have lines of
// their own.
func TestCheck101_SSL(t *testing.T) {
	if _, err := exec.LookPath("ovs-pki"); err != nil {
		require.Nothing(t, require.Central, "ovs-pki")
	}
	c := newCluster(t, world.Options{Minions: 1})
	first, second := newPKI(c), newPKI(c)
	for _, n := range c.Nodes {
		c.install(n, first.pairs(n == c.Master()))
		n.SetArguments(c.sslArguments(n)...)
	}
	c.onlySSL()
	c.run()
	for _, n := range c.Nodes {
		c.filesComeFirst(n)
	}
	c.connected(first)
	c.losesFiles()
	c.must(c.create(c.ctx, "first-0", "master"))
	c.must(c.create(c.ctx, "first-1", "minion1"))
	c.await("first-0")
	c.await("first-1")
	c.rotate(second)
	c.connected(second)
	c.must(c.create(c.ctx, "second-0", "master"))
	c.must(c.create(c.ctx, "second-1", "minion1"))
	for _, a := range world.Try(c.ctx, world.Matrix([]world.Endpoint{c.await("second-0")}, []world.Endpoint{c.await("second-1"), c.await("first-1")})) {
		t.Errorf("%v: %v", a, a.Err)
	}
	c.wrongFiles(first)
}

// onlySSL ends the servers' other connections from hosts.
func (c *cluster) onlySSL() {
	c.Helper()
	for db, port := range map[string]int{"nb": 6641, "sb": 6642} {
		_, _, err := c.Master().Run(c.ctx, "ovn-appctl", "-t", c.Central.Dir+"/ovn"+db+"_db.ctl", "ovsdb-server/remove-remote", fmt.Sprintf("ptcp:%d:[::]", port))
		c.must(err)
	}
}

// filesComeFirst fails unless the local database had the SSL files when ovn-remote became an ssl: address.
func (c *cluster) filesComeFirst(n *world.Node) {
	c.Helper()
	c.everyNode(fmt.Sprintf("ssl:%v:6642", c.Master().IPv4()), "get", "Open_vSwitch", ".", "external_ids:ovn-remote")
	log, _, err := n.Run(c.ctx, "ovsdb-tool", "-mm", "show-log", "/etc/openvswitch/conf.db")
	c.must(err)
	files, remote := strings.Index(log, "table SSL insert row"), strings.Index(log, fmt.Sprintf("ssl:%v:6642", c.Master().IPv4()))
	if files < 0 || remote < files {
		c.Errorf("%s: the SSL files are at %d, ovn-remote is at %d of the log", n.Name, files, remote)
	}
}

// connected waits until all clients of both databases are connected by SSL, with CA certificates of a pki.
func (c *cluster) connected(p pki) {
	c.Helper()
	want, err := os.ReadFile(p.ca())
	c.must(err)
	for _, n := range c.Nodes {
		c.eventually("ovn-controller of "+n.Name, func() error {
			out, _, err := n.Run(c.ctx, "ovn-appctl", "-t", "ovn-controller", "connection-status")
			if err == nil && strings.TrimSpace(out) != "connected" {
				err = errors.New(out)
			}
			return err
		})
		for db, file := range clientFiles {
			got, err := os.ReadFile(n.Path(filepath.Join(etc, file)))
			if db == "nb" && n != c.Master() {
				if err == nil {
					c.Errorf("%s has connected to the Northbound database", n.Name)
				}
				continue
			}
			if err != nil || !strings.Contains(string(want), strings.TrimSpace(string(got))) { // want has a text before the certificate
				c.Errorf("%s: the CA certificate of %s is %q, %v", n.Name, db, got, err)
			}
		}
	}
	// The master to each, and two ovn-controllers.
	for db, clients := range map[string]int{"nb": 1, "sb": 3} {
		c.eventually("connections of "+db, func() error {
			ctl := c.Central.NBCtl
			if db == "sb" {
				ctl = c.Central.SBCtl
			}
			status, err := ctl("--bare", "--columns=status", "find", "Connection")
			count := 0
			for f := range strings.FieldsSeq(status) {
				if v, ok := strings.CutPrefix(f, "n_connections="); ok {
					_, err = fmt.Sscan(v, &count)
				}
			}
			if err == nil && count == 0 && strings.Contains(status, "sec_since_connect") {
				count = 1 // a single connection is not counted
			}
			if err == nil && count < clients {
				err = fmt.Errorf("%d clients, want %d: %s", count, clients, status)
			}
			return err
		})
	}
}

// losesFiles takes the SSL files out of each host's database: ovnkube check names them, and ovnkube writes them again.
func (c *cluster) losesFiles() {
	c.Helper()
	k := &checker{cluster: c}
	k.repaired("the start")
	for _, n := range c.Nodes {
		k.freeze()
		script(n, "ovs-vsctl del-ssl", "").do(k)
		lines := strings.Join(k.found(n), "\n")
		k.thaw()
		if !strings.Contains(lines, etc+"/ovncontroller-privkey.pem") {
			c.Errorf("%s without SSL files: %s", n.Name, lines)
		}
		k.repaired("the SSL files of " + n.Name)
	}
}

// rotate replaces all files while everything runs, and restarts the servers, so that nobody keeps a connection.
func (c *cluster) rotate(p pki) {
	c.Helper()
	c.Central.StopNB()
	c.Central.StopSB()
	for _, n := range c.Nodes {
		files := p.pairs(n == c.Master())
		files[clientFiles["sb"]] = p.ca()
		if n == c.Master() {
			files[clientFiles["nb"]] = p.ca()
		}
		c.install(n, files)
	}
	c.must(errors.Join(c.Central.StartNB(), c.Central.StartSB()))
	c.onlySSL()
}

// wrongFiles restarts the master with a wrong CA certificate, and with a key of another authority, for either database.
func (c *cluster) wrongFiles(wrong pki) {
	c.Helper()
	master := c.Master()
	c.install(master, map[string]string{"wrong-ca.pem": wrong.ca(), "wrong-privkey.pem": wrong.dir + "/ovncontroller-privkey.pem", "wrong-cert.pem": wrong.dir + "/ovncontroller-cert.pem"})
	for db, name := range map[string]string{"nb": "NB", "sb": "SB"} {
		for what, test := range map[string]struct {
			args []string
			want string
		}{
			"CA":  {[]string{"-" + db + "-client-cacert=" + etc + "/wrong-ca.pem"}, "the server's certificate does not fit the CA certificate " + etc + "/wrong-ca.pem"},
			"key": {[]string{"-" + db + "-client-privkey=" + etc + "/wrong-privkey.pem", "-" + db + "-client-cert=" + etc + "/wrong-cert.pem"}, "the server refuses this host's certificate"},
		} {
			c.must(os.Truncate(master.Path("/var/log/openvswitch/ovnkube.log"), 0))
			c.must(c.RestartOVNKube(c.ctx, master, append(c.sslArguments(master), test.args...)...))
			c.saysLine(master, name, test.want)
			c.Logf("wrong %s of %s: has its line", what, db)
		}
	}
	c.must(c.RestartOVNKube(c.ctx, master, c.sslArguments(master)...))
}

// saysLine waits for a line about a database with a text.
func (c *cluster) saysLine(n *world.Node, db, text string) {
	c.Helper()
	c.eventually(fmt.Sprintf("%s says %q about %s", n.Name, text, db), func() error {
		log, err := os.ReadFile(n.Path("/var/log/openvswitch/ovnkube.log"))
		for l := range strings.Lines(string(log)) {
			if strings.Contains(l, db) && strings.Contains(l, text) {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("the log ends with %.2000s", log[max(0, len(log)-2000):]))
	})
}
