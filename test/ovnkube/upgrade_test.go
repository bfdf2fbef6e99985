package ovnkube

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ovn-k8s/docs"
	"ovn-k8s/test/build"
	"ovn-k8s/test/host"
	"ovn-k8s/test/world"
)

// upgradesKey is the environment variable for all upgrades, which make test-upgrade sets.
const upgradesKey = "OVNK8S_TEST_UPGRADES"

// The orders of an upgrade.
const (
	hostsFirst     = "hosts first"
	databasesFirst = "databases first, ovn-controllers wait"
)

// thisMachine is the release of the test's own root file system.
const thisMachine = "this machine"

// knownAbort is the assertion of ovn-controllers of 23.03 to 26.03 when rows of Chassis_Template_Var return: see docs/debugging.md.
const knownAbort = "assertion smap_count(local_templates) == 0 failed"

// A release is one of Debian, with its OVN and Open vSwitch.
type release struct{ name, root string }

// releases are those of the pairs to upgrade. Without the variable it is this machine's, to itself: all daemons restart as in
// an upgrade.
func releases(t *testing.T) (pairs [][2]release) {
	t.Helper()
	this := release{thisMachine, "/"}
	if os.Getenv(upgradesKey) == "" {
		return [][2]release{{this, this}}
	}
	dir, err := build.Roots()
	if err != nil {
		t.Fatal(err)
	}
	trixie, sid := release{"trixie", filepath.Join(dir, "trixie")}, release{"sid", filepath.Join(dir, "sid")}
	return [][2]release{{this, trixie}, {trixie, sid}, {this, sid}}
}

// An upgrade moves a cluster to another release.
type upgrade struct {
	*cluster
	sessions *sessions
	to       release
	created  []string
	ready    int // of the created pods

	// centralFirst upgrades the databases first. Then ovn-controllers wait for ovn-northd (ovn-match-northd-version): former
	// ones drop logical flows that they do not understand.
	centralFirst bool
}

// Open vSwitch and OVN are upgraded, hosts first or the databases first: no session ends, and pods created in between get their
// ports, at the latest when everything is upgraded.
func TestUpgradeOfOVN(t *testing.T) {
	for _, pair := range releases(t) {
		for _, order := range []string{hostsFirst, databasesFirst} {
			if pair[0] == pair[1] && order == databasesFirst {
				continue // no difference
			}
			t.Run(fmt.Sprintf("%s to %s, %s", pair[0].name, pair[1].name, order), func(t *testing.T) {
				u := newUpgrade(t, pair[0])
				u.to, u.centralFirst = pair[1], order == databasesFirst
				u.run()
			})
		}
	}
}

func newUpgrade(t *testing.T, from release) *upgrade {
	t.Helper()
	o := world.Options{}
	if from.name != thisMachine {
		o.Root = from.root
	}
	c := newHosts(t, o)
	c.run()
	return &upgrade{cluster: c, sessions: c.busy(rampout)}
}

// run upgrades everything.
func (u *upgrade) run() {
	u.Helper()
	for _, n := range u.Nodes {
		u.must(n.VSCtl(u.ctx, "set", "Open_vSwitch", ".", fmt.Sprintf("external_ids:ovn-match-northd-version=%t", u.centralFirst)))
	}
	u.must(u.Central.Sync())
	steps := []func(){u.hosts, u.central}
	if u.centralFirst {
		slices.Reverse(steps)
	}
	for _, step := range steps {
		step()
	}
	u.finish()
}

// hosts upgrades Open vSwitch and then ovn-controller, host by host. Between both, sessions go on with the flows of the former
// ovn-controller. If the databases were first, ovn-controllers wait, so that new sessions with NAT wait for the last host.
func (u *upgrade) hosts() {
	u.Helper()
	resume := func() {}
	if u.centralFirst {
		resume = u.sessions.pause(u.translated)
	}
	for _, n := range u.Nodes {
		u.must(n.Upgrade(u.ctx, u.to.root))
		u.must(n.RestartOVS(u.ctx))
		if !u.centralFirst {
			u.sessions.pause(u.translated)()
			u.goOn("the upgrade of Open vSwitch on " + n.Name)
		}
		u.must(n.ExitController(u.ctx))
		u.must(n.ResumeController(u.ctx))
		u.goOn("the upgrade of " + n.Name)
		u.pods("the upgrade of " + n.Name)
	}
	resume()
	u.goOn("the upgrade of all hosts")
}

// translated reports whether a restart of Open vSwitch loses a session: on the userspace datapath those with NAT.
func (u *upgrade) translated(description string) bool {
	return host.Datapath() == host.Userspace && !strings.Contains(description, betweenPods)
}

// central upgrades the databases and ovn-northd.
func (u *upgrade) central() {
	u.Helper()
	u.must(u.Master().Upgrade(u.ctx, u.to.root))
	u.Central.StopNorthd()
	u.Central.StopNB()
	u.Central.StopSB()
	u.must(u.Central.StartNB())
	u.must(u.Central.StartSB())
	u.must(u.Central.StartNorthd())
	u.goOn("the upgrade of the databases")
	u.pods("the upgrade of the databases")
}

// goOn waits until the sessions go on.
func (u *upgrade) goOn(after string) {
	u.Helper()
	since := time.Now()
	u.sessions.goOn(after)
	u.Logf("after %s sessions go on after %v, the longest silence is %v", after, time.Since(since).Round(time.Millisecond), u.sessions.silence())
}

// pods creates a pod on each node. They run at once, unless ovn-controllers wait for ovn-northd.
func (u *upgrade) pods(after string) {
	u.Helper()
	for _, n := range u.Nodes {
		name := fmt.Sprintf("%s-%d", n.Name, len(u.created))
		u.must(u.create(u.ctx, name, n.Name))
		u.created = append(u.created, name)
	}
	if u.centralFirst {
		return
	}
	u.ports()
	u.Logf("after %s all %d pods run", after, u.ready)
}

// ports waits until all created pods run.
func (u *upgrade) ports() {
	u.Helper()
	for ; u.ready < len(u.created); u.ready++ {
		u.await(u.created[u.ready])
	}
}

// finish waits for all pods, and for a comparison without a difference.
func (u *upgrade) finish() {
	u.Helper()
	u.ports()
	u.sessions.goOn("everything")
	u.eventually("the comparison", func() error { return u.Check(u.ctx) })
	u.newRelease()
	u.keepsTunnels(u.Nodes[1])
	for _, n := range u.Nodes {
		lines, err := n.Aborts()
		u.must(err)
		for _, l := range lines {
			if strings.Contains(l, knownAbort) {
				u.Log(l)
				continue
			}
			u.Error(l)
		}
	}
}

// keepsTunnels restarts ovn-controller of a host by the documented drop-in file of its unit, and fails the test if a tunnel was
// replaced: flows would not know the new one.
func (u *upgrade) keepsTunnels(n *world.Node) {
	u.Helper()
	unit, err := docs.Files.ReadFile("systemd/ovn-controller.conf")
	u.must(err)
	_, stop, _ := strings.Cut(string(unit), "\nExecStop=/")
	tunnels := func() string {
		out, err := n.VSGet(u.ctx, "--bare", "--columns=name,ofport", "find", "Interface", "type=geneve")
		u.must(err)
		return out
	}
	before := tunnels()
	_, err = n.Script(u.ctx, "/"+stop)
	u.must(err)
	u.must(n.ResumeController(u.ctx))
	u.must(u.Central.Sync())
	u.goOn("a restart of ovn-controller on " + n.Name)
	if after := tunnels(); before == "" || after != before {
		u.Errorf("tunnels of %s before\n%s\nafter\n%s", n.Name, before, after)
	}
}

// newRelease fails the test if a host has another ovn-controller than ovn-northd.
func (u *upgrade) newRelease() {
	u.Helper()
	want, err := u.Central.SBCtl("get", "SB_Global", ".", "options:northd_internal_version")
	u.must(err)
	for _, n := range u.Nodes {
		out, _, err := n.Run(u.ctx, "ovn-appctl", "--target=ovn-controller", "version")
		u.must(err)
		version := strings.Fields(out)[1]
		if !strings.HasPrefix(strings.Trim(want, `"`), version) {
			u.Errorf("%s has ovn-controller %s, ovn-northd is %s", n.Name, version, want)
		}
	}
	u.Logf("upgraded to %s", want)
}
