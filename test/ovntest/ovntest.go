// Package ovntest runs OVN central for tests: the Northbound and Southbound
// databases and ovn-northd. It does not need root.
//
// It takes no *testing.T, so scripts, tests and the demo can use it. All its
// processes end with the program that started them, even if that is killed.
package ovntest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ovn-k8s/test/limit"
	"ovn-k8s/test/netfault"
	"ovn-k8s/test/reaper"
)

const (
	// schemas is the directory of OVN's database schemas in distributions.
	schemas = "/usr/share/ovn"

	readyTimeout = time.Minute
	toolTimeout  = 60 * time.Second
	pollInterval = 5 * time.Millisecond
)

// Options configure Start. The zero value means a private Central listening on unix
// sockets only.
type Options struct {
	// Dir keeps the databases, sockets and logs. Default: a temporary directory.
	// Close removes it in either case. It must be short: the path of a unix socket
	// has at most 107 bytes.
	Dir string
	// Listen is an address to listen on by TCP, such as "127.0.0.1" or "::".
	Listen string
	// NBPort and SBPort are the TCP ports. Default: free ports of this namespace.
	// OVN's standard ports are 6641 and 6642.
	NBPort, SBPort int
	// NBArgs and SBArgs are additional arguments of the ovsdb-servers, such as
	// "--remote=pssl:6641" with its certificates.
	NBArgs, SBArgs []string
	// Command runs the programs elsewhere, such as in a test host. Dir must have
	// the same path there.
	Command reaper.Command
	// Members have both databases as RAFT clusters, which listen at NBPort and SBPort; none: one server of each.
	Members []Member
}

// A Central is a running pair of databases and their ovn-northd.
type Central struct {
	// Dir contains the files under OVN's standard names, so it can serve as
	// OVN_RUNDIR: ovnnb_db.sock, ovnnb_db.db, ovnnb_db.log and so on.
	Dir string
	// NB and SB are the databases' remotes by unix socket.
	NB, SB string
	// NBTCP and SBTCP are the databases' remotes by TCP, if Options.Listen is set.
	NBTCP, SBTCP string
	// NBCluster and SBCluster are nil without Options.Members.
	NBCluster, SBCluster *Cluster

	opts       Options
	nb, sb, nd *reaper.Process
}

// Missing names a prerequisite of Start missing on this machine, or is "".
func Missing() string {
	for _, tool := range []string{
		"ovsdb-tool", "ovsdb-server", "ovn-northd", "ovn-nbctl", "ovn-sbctl", "ovn-trace", "ovn-appctl",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	if file := schema("nb"); !exists(file) {
		return file
	}
	return ""
}

// Version returns the version of a program of OVN or Open vSwitch: the last word of the
// first line of --version, as in "ovn-northd 23.03.1".
func Version(program string) string {
	out, _ := exec.Command(program, "--version").Output()
	first, _, _ := strings.Cut(string(out), "\n")
	words := strings.Fields(first)
	if len(words) == 0 {
		return "unknown"
	}
	return words[len(words)-1]
}

// Start starts a Central with empty databases. The caller must Close it.
func Start(o Options) (*Central, error) {
	c, err := prepare(o)
	if err != nil {
		return nil, fmt.Errorf("starting OVN central: %w", err)
	}
	steps := []func() error{c.StartNB, c.StartSB, c.StartNorthd}
	if len(o.Members) > 0 {
		steps = []func() error{c.startClusters, c.StartNorthd}
	}
	for _, start := range steps {
		if err := start(); err != nil {
			c.Close()
			return nil, fmt.Errorf("starting OVN central: %w", err)
		}
	}
	return c, nil
}

// prepare creates the directory and empty databases, and chooses the ports.
func prepare(o Options) (*Central, error) {
	if o.Dir == "" {
		dir, err := os.MkdirTemp("", "ovn")
		if err != nil {
			return nil, err
		}
		o.Dir = dir
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	c := &Central{Dir: o.Dir, opts: o}
	if len(o.Members) > 0 {
		return c, nil
	}
	c.NB, c.SB = "unix:"+c.path("nb", ".sock"), "unix:"+c.path("sb", ".sock")
	for _, db := range []string{"nb", "sb"} {
		if err := c.create(db); err != nil {
			c.Close()
			return nil, err
		}
	}
	if o.Listen == "" {
		return c, nil
	}
	var err error
	if c.NBTCP, err = listen(o.Listen, o.NBPort, &c.opts.NBArgs); err == nil {
		c.SBTCP, err = listen(o.Listen, o.SBPort, &c.opts.SBArgs)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// startClusters starts the RAFT clusters of both databases.
func (c *Central) startClusters() (err error) {
	ports := map[string]int{"nb": c.opts.NBPort, "sb": c.opts.SBPort}
	if c.NBCluster, err = c.startCluster("nb", ports); err != nil {
		return err
	}
	if c.SBCluster, err = c.startCluster("sb", ports); err != nil {
		return err
	}
	c.NB, c.NBTCP, c.SB, c.SBTCP = c.NBCluster.Unix, c.NBCluster.TCP, c.SBCluster.Unix, c.SBCluster.TCP
	return nil
}

// listen adds the argument for a TCP port to args and returns the remote.
func listen(addr string, port int, args *[]string) (remote string, err error) {
	if port == 0 {
		if port, err = netfault.FreePort(addr); err != nil {
			return "", err
		}
	}
	if strings.Contains(addr, ":") {
		addr = "[" + addr + "]"
	}
	*args = append((*args)[:len(*args):len(*args)], fmt.Sprintf("--remote=ptcp:%d:%s", port, addr))
	return fmt.Sprintf("tcp:%s:%d", addr, port), nil
}

// Close kills the daemons and removes the files.
func (c *Central) Close() {
	c.StopNorthd()
	c.StopNB()
	c.StopSB()
	for _, k := range []*Cluster{c.NBCluster, c.SBCluster} {
		if k != nil {
			k.close()
		}
	}
	_ = os.RemoveAll(c.Dir)
}

// StartNB starts the Northbound database server on the existing data. It does
// nothing if the server runs.
func (c *Central) StartNB() error { return c.serve(&c.nb, "nb", c.opts.NBArgs) }

// StartSB is StartNB for the Southbound database.
func (c *Central) StartSB() error { return c.serve(&c.sb, "sb", c.opts.SBArgs) }

// StopSB kills the Southbound database server with SIGKILL.
func (c *Central) StopSB() { stop(&c.sb) }

// StartEmptySB kills the Southbound database server, if it runs, and starts it with
// an empty database.
func (c *Central) StartEmptySB() error {
	c.StopSB()
	if err := c.create("sb"); err != nil {
		return err
	}
	return c.StartSB()
}

// StopNB kills the Northbound database server with SIGKILL.
func (c *Central) StopNB() { stop(&c.nb) }

// StartEmptyNB kills the Northbound database server, if it runs, and starts it with
// an empty database.
func (c *Central) StartEmptyNB() error {
	c.StopNB()
	if err := c.create("nb"); err != nil {
		return err
	}
	return c.StartNB()
}

// StartNorthd starts ovn-northd. It does nothing if ovn-northd runs.
func (c *Central) StartNorthd() error {
	if c.nd != nil {
		return nil
	}
	p, err := c.daemon("ovn-northd", "ovn-northd", "--ovnnb-db="+c.NB, "--ovnsb-db="+c.SB)
	if err != nil {
		return err
	}
	c.nd = p
	return await(p, c.northdReady)
}

// northdReady returns an error until ovn-northd is active: it has connected to both
// databases.
func (c *Central) northdReady() error {
	out, err := c.run("ovn-appctl", "-t", filepath.Join(c.Dir, "ovn-northd.ctl"), "status")
	if err == nil && !strings.Contains(out, "active") {
		err = fmt.Errorf("ovn-northd says %q", out)
	}
	return err
}

// StopNorthd kills ovn-northd with SIGKILL.
func (c *Central) StopNorthd() { stop(&c.nd) }

// NBCtl runs ovn-nbctl on the Northbound database and returns its output without
// the last newline. It waits for ovn-northd only with --wait in args.
func (c *Central) NBCtl(args ...string) (string, error) {
	return c.run("ovn-nbctl", append([]string{"--db=" + c.NB, "--timeout=50"}, args...)...)
}

// NBLog lists the transactions of a Northbound database without a cluster: see Cluster.Log.
func (c *Central) NBLog() (string, error) {
	return c.run("ovsdb-tool", "-mm", "show-log", c.path("nb", ".db"))
}

// SBCtl runs ovn-sbctl on the Southbound database and returns its output without
// the last newline.
func (c *Central) SBCtl(args ...string) (string, error) {
	return c.run("ovn-sbctl", append([]string{"--db=" + c.SB, "--timeout=50"}, args...)...)
}

// Sync waits until all chassis have applied the Northbound database or, without
// chassis, until ovn-northd has.
func (c *Central) Sync() error {
	chassis, err := c.SBCtl("--bare", "--columns=name", "list", "Chassis")
	if err != nil {
		return err
	}
	wait := "--wait=hv"
	if chassis == "" {
		wait = "--wait=sb"
	}
	_, err = c.NBCtl(wait, "sync")
	return err
}

// Trace returns the output port of a packet entering a datapath, or "drop". The
// packet is an expression of ovn-trace(8), such as `inport == "a" && eth.src ==
// 0a:00:00:00:00:01 && …`.
func (c *Central) Trace(datapath, packet string) (string, error) {
	out, err := c.run("ovn-trace", "--db="+c.SB, "--minimal", datapath, packet)
	if err != nil {
		return "", err
	}
	_, rest, found := strings.Cut(out, `output("`)
	if !found {
		return "drop", nil
	}
	port, _, _ := strings.Cut(rest, `"`)
	return port, nil
}

// create replaces a database by an empty one.
func (c *Central) create(db string) error {
	file := c.path(db, ".db")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err := c.run("ovsdb-tool", "create", file, schema(db))
	return err
}

// convert converts a database to the schema of the programs if it has another one, as ovn-ctl(8) does.
func (c *Central) convert(db string) error {
	file := c.path(db, ".db")
	needed, err := c.run("ovsdb-tool", "needs-conversion", file, schema(db))
	if err == nil && needed != "no" {
		_, err = c.run("ovsdb-tool", "convert", file, schema(db))
	}
	return err
}

// serve starts an ovsdb-server, unless *p is one, and waits for its socket.
func (c *Central) serve(p **reaper.Process, db string, args []string) error {
	if *p != nil {
		return nil
	}
	if err := c.convert(db); err != nil {
		return err
	}
	socket := c.path(db, ".sock")
	_ = os.Remove(socket) // left by a killed server: it would look ready
	args = slices.Concat([]string{"--remote=punix:" + socket}, rows(db), args)
	started, err := c.daemon("ovsdb-server", "ovn"+db+"_db", append(args, c.path(db, ".db"))...)
	if err != nil {
		return err
	}
	*p = started
	return await(started, func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// rows have a server listen as the rows of its database say, as under ovn-ctl(8).
func rows(db string) []string {
	name, root := "OVN_Northbound", "NB_Global"
	if db == "sb" {
		name, root = "OVN_Southbound", "SB_Global"
	}
	args := []string{"--remote=db:" + name + "," + root + ",connections"}
	for option, column := range map[string]string{"private-key": "private_key", "certificate": "certificate", "ca-cert": "ca_cert"} {
		args = append(args, "--"+option+"=db:"+name+",SSL,"+column)
	}
	return args
}

// daemon starts an OVS daemon. name is the base name of its files.
func (c *Central) daemon(prog, name string, args ...string) (*reaper.Process, error) {
	file := filepath.Join(c.Dir, name)
	common := []string{"-vconsole:off", "--log-file=" + file + ".log", "--unixctl=" + file + ".ctl"}
	return reaper.Start(c.opts.Command, prog, append(common, args...)...)
}

// path returns the path of a file of the database nb or sb.
func (c *Central) path(db, ext string) string {
	return filepath.Join(c.Dir, "ovn"+db+"_db"+ext)
}

// run runs a tool and returns its standard output.
func (c *Central) run(prog string, args ...string) (string, error) {
	command := c.opts.Command
	if command == nil {
		command = exec.Command
	}
	cmd := command(prog, args...)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("running %s: %w", prog, err)
	}
	late := time.AfterFunc(limit.Of(toolTimeout), func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("running %s %s: %w: %s", prog, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return strings.TrimRight(out.String(), "\n"), nil
}

// await polls until ready returns no error, p ended, or time is up.
func await(p *reaper.Process, ready func() error) error {
	deadline := time.After(limit.Of(readyTimeout))
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return p.Err()
		case <-deadline:
			return fmt.Errorf("not ready after %s: %w", limit.Of(readyTimeout), err)
		case <-time.After(pollInterval):
		}
	}
}

// stop kills a daemon, if it runs.
func stop(p **reaper.Process) {
	if *p != nil {
		(*p).Stop()
		*p = nil
	}
}

func schema(db string) string { return filepath.Join(schemas, "ovn-"+db+".ovsschema") }

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
