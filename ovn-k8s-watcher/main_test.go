package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"ovn-k8s/test/kubetest"
	"ovn-k8s/test/require"
)

func TestCheck35_Modes(t *testing.T) {
	w := newWorld(t, nil)
	for _, tt := range []struct{ flag, want string }{
		{"", "Atleast one of --overlay, --underlay or --openstack needed"},
		{"--underlay", "Underlay mode not implemented"},
		{"--openstack", "OpenStack mode not implemented"},
	} {
		var args []string
		if tt.flag != "" {
			args = append(args, tt.flag)
		}
		if status, _, stderr := w.once(args...); status != 1 || stderr != "ovn-k8s-watcher: "+tt.want+"\n" {
			t.Errorf("%q: status %d, %q", tt.flag, status, stderr)
		}
	}
}

func TestCheck36_Preconditions(t *testing.T) {
	w := newWorld(t, nil)
	w.write("wrong", "not-a-token")
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"no database", "OVN NB database does not have unix socket", []string{"--overlay", "--k8s-api-server=" + cluster.URL}},
		{"no API server", "K8S_API_SERVER not set", []string{"--overlay", "--ovn-nb=" + w.central.NB}},
		{"no cluster router", "K8S_CLUSTER_ROUTER not set", w.args()},
		{"bad database", "tcp:1.2.3.4", append(w.args(), "--ovn-nb=tcp:1.2.3.4")},
		{"wrong token", "nauthorized", append(w.args(), "--k8s-api-token-file="+filepath.Join(w.dir, "wrong"))},
	} {
		for _, detach := range []string{"", "--detach"} {
			t.Run(tt.name+detach, func(t *testing.T) {
				args := tt.args
				if detach != "" {
					args = append(args, detach, "--pidfile")
				}
				status, _, stderr := w.once(args...)
				if status != 1 || !strings.Contains(stderr, tt.want) || errorLines(stderr) != 1 {
					t.Errorf("status %d, %q", status, stderr)
				}
			})
		}
	}
}

// H4: the watcher waits for a late database, and reports the reason to its starter, once.
func TestALateDatabaseIsWaitedFor(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	late := w.central.NB
	socket := filepath.Join(w.dir, "late.sock")
	w.central.NB = "unix:" + socket
	args := w.args("--pidfile", "--log-file", "-vconsole:emer", "--detach")
	w.central.NB = late
	status, _, stderr := w.once(args...)
	t.Cleanup(func() { w.signal("ovn-k8s-watcher.pid", syscall.SIGKILL) })
	if status != 0 || !strings.HasPrefix(stderr, "ovn-k8s-watcher: waiting: connecting to NB at unix:"+socket+": ") || strings.Count(stderr, "\n") != 1 {
		t.Fatalf("status %d, %q", status, stderr)
	}
	w.pod("a", "node1", nil)
	time.Sleep(2 * time.Second) // several attempts
	if err := os.Symlink(strings.TrimPrefix(late, "unix:"), socket); err != nil {
		t.Fatal(err)
	}
	w.annotation("a")
	log, err := os.ReadFile(filepath.Join(w.dir, "ovn-k8s-watcher.log"))
	if err != nil || strings.Count(string(log), "waiting: ") != 1 {
		t.Errorf("%v; want one line about what is waited for:\n%s", err, log)
	}
}

// errorLines counts the lines of standard error outside of the log.
func errorLines(stderr string) int {
	n := 0
	for l := range strings.Lines(stderr) {
		if strings.HasPrefix(l, "ovn-k8s-watcher: ") {
			n++
		}
	}
	return n
}

func TestCheck37_Daemon(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	status, _, stderr := w.once(w.args("--pidfile", "--log-file", "-vfile:info", "-vconsole:emer", "--detach")...)
	if status != 0 || stderr != "" {
		t.Fatalf("status %d, %q", status, stderr)
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "ovn-k8s-watcher.pid"))
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(text), &pid)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if _, err := os.Stat(filepath.Join(w.dir, fmt.Sprintf("ovn-k8s-watcher.%d.ctl", pid))); err != nil {
		t.Error(err)
	}
	appctl := func(args ...string) string {
		cmd := exec.Command("ovs-appctl", append([]string{"-t", "ovn-k8s-watcher"}, args...)...)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+w.dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	help := appctl("help")
	for _, c := range []string{"exit", "vlog/set", "vlog/list", "vlog/reopen", "vlog/close", "version", "reconcile/show", "reconcile/resync", "topology/show", "pod/show", "policy/show", "policy/check"} {
		if !strings.Contains(help, c) {
			t.Errorf("help lacks %s:\n%s", c, help)
		}
	}
	w.pod("a", "node1", nil)
	w.pod("lost", "node9", nil)
	w.annotation("a")
	w.event("Pod", "lost", "NoLogicalSwitch")
	if out := appctl("topology/show"); !strings.Contains(out, "node node1       192.168.2.0/24") {
		t.Error(out)
	}
	if out := appctl("pod/show", "default/a"); !strings.Contains(out, "default/a  node1  0a:58:c0:a8:02:03  192.168.2.3/24  written") {
		t.Error(out)
	}
	if out := appctl("reconcile/show"); !strings.Contains(out, "pod/default/lost  node node9 has no logical switch") {
		t.Error(out)
	}
	if status, _, stderr := w.once(w.args("--pidfile", "--detach")...); status != 1 || !strings.Contains(stderr, fmt.Sprintf("already running as pid %d", pid)) {
		t.Errorf("second start: status %d, %q", status, stderr)
	}
	appctl("exit")
	w.eventually("the pidfile is gone", func() bool {
		_, err := os.Stat(filepath.Join(w.dir, "ovn-k8s-watcher.pid"))
		return os.IsNotExist(err)
	})
}

func TestCheck42_RestartKeepsAddressesAndWritesNothing(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24", "node2": "192.168.3.0/24"})
	p := w.start()
	before := map[string]string{}
	for i := range 6 {
		name := fmt.Sprint("p", i)
		w.pod(name, fmt.Sprint("node", 1+i%2), nil)
		if i == 3 {
			w.annotation("p2")
			w.delete("p2") // leaves a hole; a new watcher must not move other pods into it
		}
	}
	for i := range 6 {
		if i != 2 {
			before[fmt.Sprint("p", i)] = line(w.annotation(fmt.Sprint("p", i)))
		}
	}
	w.eventually("the deleted pod's port is gone", func() bool { return w.port("default_p2", "name") == "" })
	p.kill()
	transactions, err := w.central.NBTransactions()
	if err != nil {
		t.Fatal(err)
	}
	requests := recorder(t, w)
	w.start()
	w.eventually("the new watcher has read everything", func() bool {
		for _, r := range requests() {
			if r.Method == http.MethodGet && r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("watch") != "" {
				return true
			}
		}
		return false
	})
	w.pod("new", "node1", nil)
	w.annotation("new")
	for name, want := range before {
		if got := line(w.annotation(name)); got != want {
			t.Errorf("%s moved from %s to %s", name, want, got)
		}
	}
	if after, err := w.central.NBTransactions(); err != nil || after != transactions+2 {
		t.Errorf("the restart and one pod took %d transactions (%v), want 2: the term and the pod", after-transactions, err)
	}
	for _, r := range requests() {
		if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/leases") && !strings.Contains(r.URL.Path, "/pods/new/") {
			t.Errorf("the restart wrote %s %s", r.Method, r.URL.Path)
		}
	}
}

func TestCheck56_APIServerRestart(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.pod("before", "node1", nil)
	w.annotation("before")
	cluster.Stop()
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.pod("after", "node1", nil)
	w.annotation("after")
	if p.cmd.ProcessState != nil {
		t.Error("the watcher ended")
	}
}

func TestProblemsBecomeEventsAndEndByThemselves(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/29"})
	p := w.start()
	w.pod("nowhere", "node2", nil)
	want := `node node2 has no logical switch: run "ovn-k8s-overlay minion-init --node-name=node2" on it`
	if got := w.event("Pod", "nowhere", "NoLogicalSwitch"); got != want {
		t.Errorf("Event %q", got)
	}
	if _, err := cluster.CreateNode(t.Context(), "node3"); err != nil {
		t.Fatal(err)
	}
	w.event("Node", "node3", "NoLogicalSwitch")
	for i := range 5 {
		w.pod(fmt.Sprint("p", i), "node1", nil)
	}
	var full string
	w.eventually("one of five pods has no address", func() bool {
		for i := range 5 {
			if strings.Contains(p.log.String(), fmt.Sprintf("unit=pod/default/p%d", i)) && strings.Contains(p.log.String(), "has no free address") {
				full = ""
				for l := range strings.Lines(p.log.String()) {
					if strings.Contains(l, "has no free address") {
						_, full, _ = strings.Cut(l, "unit=pod/default/")
					}
				}
				return full != ""
			}
		}
		return false
	})
	full = strings.TrimSpace(full)
	if got := w.event("Pod", full, "SubnetFull"); got != "subnet 192.168.2.0/29 of node node1 has no free address: all 4 are in use" {
		t.Errorf("Event %q", got)
	}
	for i := range 5 {
		if name := fmt.Sprint("p", i); name != full {
			w.delete(name)
			break
		}
	}
	w.annotation(full)
	w.topology(map[string]string{"node1": "192.168.2.0/29", "node2": "192.168.3.0/24"})
	w.annotation("nowhere")
	if n := strings.Count(p.log.String(), "WARN|"+want); n != 1 {
		t.Errorf("%d WARN lines about one problem:\n%s", n, p.log)
	}
}

// withoutPatch is a service account with all rights of a watcher except for writing annotations.
const withoutPatch = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: limited, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: limited}
rules:
- {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
- {apiGroups: ["", networking.k8s.io, discovery.k8s.io], resources: [namespaces, networkpolicies, services, endpointslices], verbs: [list, watch]}
- {apiGroups: [""], resources: [configmaps, events], verbs: [get, create, update, patch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: limited}
subjects: [{kind: ServiceAccount, name: limited, namespace: default}]
`

func TestAForbiddenAnnotationIsToldOnceAndTriedAgain(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	if err := cluster.Apply(t.Context(), []byte(withoutPatch)); err != nil {
		t.Fatal(err)
	}
	token, err := cluster.ServiceAccountToken(t.Context(), "default", "limited")
	if err != nil {
		t.Fatal(err)
	}
	w.write("token", token)
	p := w.start("--unixctl=" + w.dir + "/ctl")
	w.pod("a", "node1", nil)
	triedAgain := regexp.MustCompile(`pod/default/a .*tries ([3-9]|\d\d)`)
	w.eventually("the annotation was tried three times", func() bool {
		out, _ := exec.Command("ovs-appctl", "-t", w.dir+"/ctl", "reconcile/show").Output()
		return triedAgain.Match(out)
	})
	if n := strings.Count(p.log.String(), "WARN|annotating pod default/a: "); n != 1 {
		t.Errorf("%d WARN lines about one problem", n)
	}
	granted := strings.Replace(withoutPatch, `verbs: [get, list, watch]}`, `verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}`, 1)
	if err := cluster.Apply(t.Context(), []byte(granted)); err != nil {
		t.Fatal(err)
	}
	w.annotation("a")
	w.eventually("the end of the problem is told", func() bool {
		return strings.Contains(p.log.String(), "recovered unit=pod/default/a")
	})
}

func TestCheckComparesOnce(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	p := w.start()
	w.pod("a", "node1", nil)
	w.annotation("a")
	p.kill()
	if status, stdout, stderr := w.once(w.args("--check")...); status != 0 || stdout != "" {
		t.Errorf("nothing differs: status %d\n%s%s", status, stdout, stderr)
	}
	w.nbctl("lsp-del", "default_a", "--", "set", "logical_switch_port", "k8s-node1", "addresses=unknown")
	w.pod("b", "node1", nil)
	status, stdout, _ := w.once(w.args("--check")...)
	for _, want := range []string{
		"+ Logical_Switch_Port default_a addresses=", "+ Logical_Switch_Port default_b", "~ Pod default/b annotation: ",
		`~ Logical_Switch_Port k8s-node1 addresses: ["unknown"] → ["0a:58:c0:a8:02:02 192.168.2.2"]`,
	} {
		if status != 1 || !strings.Contains(stdout, want) {
			t.Errorf("status %d, no %q in\n%s", status, want, stdout)
		}
	}
}

func TestBadCommandLines(t *testing.T) {
	require.Nothing(t, require.Cluster, kubetest.Missing())
	w := newWorld(t, nil)
	for _, args := range [][]string{{"--no-such"}, {"--overlay", "stray"}, {"--overlay", "--pidfile", "/x"}} {
		if status, _, stderr := w.once(args...); status != 2 || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: status %d, %q", args, status, stderr)
		}
	}
}
