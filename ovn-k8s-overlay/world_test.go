package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/ovntest"
	"ovn-k8s/test/require"
)

// bin is a directory with the command and the plugin, built once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ovn-k8s-overlay")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	if out, err := exec.Command("go", "build", "-o", dir+"/", "ovn-k8s/ovn-k8s-overlay", "ovn-k8s/ovn-k8s-cni-overlay").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building: %v: %s\n", err, out)
		return 1
	}
	return m.Run()
}

// The commands of the specification's checks.
const (
	masterInitArgs = "master-init --cluster-ip-subnet=192.168.0.0/16 --master-switch-subnet=192.168.1.0/24 --node-name=Kube-Master"
	minionInitArgs = "minion-init --cluster-ip-subnet=192.168.0.0/16 --minion-switch-subnet=192.168.2.0/24 --node-name=node2"
	complete       = "Initialization complete.\n"
)

// A node is a host with Open vSwitch.
type node struct {
	*host.Host
	t   *testing.T
	ctx context.Context
}

// A world is a list of nodes, with OVN's central half on the first one.
type world struct {
	t       *testing.T
	central *ovntest.Central
	nodes   []*node
}

// newWorld makes a world of nodes with the given names. ovn-nb and ovn-remote are set, and br-int is absent.
func newWorld(t *testing.T, names ...string) *world {
	t.Helper()
	return newWorldWith(t, nil, names...)
}

// newWorldWith gives the Northbound database's server further arguments.
func newWorldWith(t *testing.T, nbArgs []string, names ...string) *world {
	t.Helper()
	require.Nothing(t, require.Central, ovntest.Missing())
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(context.Background(), limit.Of(3*time.Minute))
	t.Cleanup(cancel)
	fabric, err := host.NewFabric()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fabric.Close)
	w := &world{t: t}
	for _, name := range names {
		h, err := host.New(host.Options{Name: name, Fabric: fabric, SecondNIC: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		n := &node{h, t, ctx}
		w.nodes = append(w.nodes, n)
		if w.central == nil {
			w.startCentral(n, nbArgs)
		}
		if err := h.StartOVS(ctx); err != nil {
			t.Fatal(err)
		}
		n.script("ovs-vsctl set Open_vSwitch . external_ids:ovn-nb=" + w.central.NBTCP + " external_ids:ovn-remote=" + w.central.SBTCP)
	}
	return w
}

// startCentral starts OVN's central half, without the sockets by which a host finds its database by itself.
func (w *world) startCentral(n *node, nbArgs []string) {
	w.t.Helper()
	c, err := ovntest.Start(ovntest.Options{Listen: "::", NBPort: 6641, SBPort: 6642, NBArgs: nbArgs, Command: n.Command})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	c.NBTCP = fmt.Sprintf("tcp:%v:6641", n.IPv4())
	c.SBTCP = fmt.Sprintf("tcp:%v:6642", n.IPv4())
	w.central = c
}

// nb runs ovn-nbctl.
func (w *world) nb(args ...string) string {
	w.t.Helper()
	out, err := w.central.NBCtl(args...)
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// transactions counts the transactions of the Northbound database.
func (w *world) transactions() int {
	w.t.Helper()
	n, err := w.central.NBTransactions()
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// rows lists rows of all tables, with the given columns.
func (w *world) rows(columns string) string {
	w.t.Helper()
	var all []string
	for _, table := range []string{"Logical_Router", "Logical_Router_Port", "Logical_Switch", "Logical_Switch_Port", "Load_Balancer_Group"} {
		c := columns
		if table == "Load_Balancer_Group" {
			c = strings.Replace(c, ",external_ids", "", 1)
		}
		if strings.HasSuffix(table, "r_Port") {
			c = strings.Replace(c, ",other_config", ",mac,networks", 1)
		} else if strings.HasSuffix(table, "_Port") {
			c = strings.Replace(c, ",other_config", ",type,options,addresses", 1)
		} else if table != "Logical_Switch" {
			c = strings.Replace(c, ",other_config", "", 1)
		}
		all = append(all, w.nb("--format=csv", "--no-headings", "--columns="+c, "list", table))
	}
	return strings.TrimSpace(strings.Join(all, "\n"))
}

// script runs a shell script in the node.
func (n *node) script(text string) string {
	n.t.Helper()
	out, err := n.Script(n.ctx, text)
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimRight(out, "\n")
}

// run runs the command under test in the node, with the plugin on PATH.
func (n *node) run(args string) host.Result {
	n.t.Helper()
	return n.runIn("PATH=$PATH:"+bin, args)
}

// runIn runs the command under test with settings of the environment.
func (n *node) runIn(env, args string) host.Result {
	n.t.Helper()
	r, err := n.Try(env + " exec " + bin + "/ovn-k8s-overlay " + args)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// init runs a command that must succeed.
func (n *node) init(args string) host.Result {
	n.t.Helper()
	r := n.run(args)
	if r.Status != 0 || r.Out != complete {
		n.t.Fatalf("%s: %+v", args, r)
	}
	return r
}

// fails runs a command that must fail with exit status 1 and these lines.
func (n *node) fails(args string, want ...string) {
	n.t.Helper()
	r := n.run(args)
	if r.Status != 1 || r.Out != "" {
		n.t.Errorf("%s: exit status %d, output %q, want 1 and none", args, r.Status, r.Out)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSuffix(r.Err, "\n"), "\n"), isSlowStage)
	if len(lines) != len(want) {
		n.t.Errorf("%s: %d lines, want %d:\n%s", args, len(lines), len(want), r.Err)
		return
	}
	for i, text := range want {
		if !strings.HasPrefix(lines[i], "ovn-k8s-overlay: ") || !strings.Contains(lines[i], text) {
			n.t.Errorf("%s: line %d is %q, want %q in it", args, i, lines[i], text)
		}
	}
}

// isSlowStage reports whether a line names a stage that takes more than 2 s, which any stage does on a busy machine.
func isSlowStage(line string) bool { return strings.HasSuffix(line, " ...") }

// file reads a file of the node; it is empty if missing.
func (n *node) file(path string) string {
	n.t.Helper()
	text, err := os.ReadFile(n.Path(path))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.t.Fatal(err)
	}
	return string(text)
}

// write writes a file of the node.
func (n *node) write(path, text string) {
	n.t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.Path(path)), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(n.Path(path), []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// setID sets a key of external_ids of the table Open_vSwitch.
func (n *node) setID(key, value string) {
	n.t.Helper()
	n.script(fmt.Sprintf("ovs-vsctl set Open_vSwitch . external_ids:%s='\"%s\"'", key, value))
}

// iface reads a column of an interface, without quotes.
func (n *node) iface(name, column string) string {
	n.t.Helper()
	return strings.Trim(n.script("ovs-vsctl get Interface "+name+" "+column), `"`)
}

// state is the part of a host's state changed by the commands.
func (n *node) state() string {
	n.t.Helper()
	return n.script(`ip -br addr | sort; ip route; ip -6 route; ovs-vsctl --columns=name,external_ids,mac,mtu_request list Interface;
		find /etc/cni /opt/cni /etc/network /etc/sysconfig -printf '%p %m %u %l\n' 2>/dev/null | sort; cat /etc/network/interfaces /etc/cni/net.d/* 2>/dev/null || true`)
}

// same fails the test if two texts differ.
func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n%s\nwant:\n%s", what, got, want)
	}
}
