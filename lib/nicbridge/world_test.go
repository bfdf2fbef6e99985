package nicbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/link"
	"ovn-k8s/lib/link/ifstate"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/test/host"
	"ovn-k8s/test/limit"
	"ovn-k8s/test/require"
)

// A world is a host with Open vSwitch; the test runs in its network namespace. Its eth0 and eth1 lead to another
// namespace, "outside".
type world struct {
	t *testing.T
	h *host.Host
	s *session
}

func newWorld(t *testing.T) *world {
	t.Helper()
	require.Nothing(t, require.Node, host.Missing())
	ctx, cancel := context.WithTimeout(t.Context(), limit.Of(time.Minute))
	defer cancel()
	h, err := host.New(host.Options{Name: "host"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	if err := h.StartSwitch(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Script(ctx, `set -e
		sysctl -qw net.ipv6.conf.default.accept_dad=0 # or the state before is one of transition
		ip netns add outside
		for n in 0 1; do
			ip link add eth$n type veth peer name eth$n netns outside
			ip link set eth$n up
			ip -n outside link set eth$n up
			ip netns exec outside ethtool -K eth$n tx off >/dev/null
		done`); err != nil {
		t.Fatal(err)
	}
	sw, err := vswitch.Connect(ctx, h.Path("/var/run/openvswitch"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sw.Close)
	runtime.LockOSThread() // for good, see Enter
	ns, err := link.OpenNamespace(h.Netns())
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if err := ns.Enter(); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, h: h}
	w.s = &session{Command: Command{Out: io.Discard, Err: io.Discard}, store: store{h.Path("/run")}, sw: sw, mover: mover{sw: sw}, limits: usual()}
	w.s.limits.askBefore = time.Millisecond
	return w
}

// batch passes lines to ip(8). A batch accepts no options, so lines starting with "-4" or "-6" are run separately
// afterwards.
func (w *world) batch(lines []string) error {
	by := map[string][]string{}
	for _, line := range lines {
		family := ""
		if rest, ok := strings.CutPrefix(line, "-"); ok {
			family, line = "-"+rest[:1], rest[2:]
		}
		by[family] = append(by[family], line)
	}
	var errs []error
	for _, family := range slices.Sorted(maps.Keys(by)) {
		cmd := exec.Command("ip", append(strings.Fields(family), "-force", "-batch", "-")...)
		cmd.Stdin = strings.NewReader(strings.Join(by[family], "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("ip %s: %w: %s", family, err, bytes.TrimSpace(out)))
		}
	}
	return errors.Join(errs...)
}

// state is the host's network state, without timers and indices.
func (w *world) state() string {
	w.t.Helper()
	var all []string
	// The kernel adds the local routes of IPv6 addresses a moment later.
	w.await("local routes", func() bool {
		all = w.lines()
		have, local := 0, 0
		for _, line := range all {
			if strings.Contains(line, `"addr_info"`) {
				have += strings.Count(line, `"family":"inet6"`)
			}
			if strings.HasPrefix(line, "local ") && strings.Contains(line, `"metric":`) && strings.Contains(line, `"type":"local"`) {
				local++
			}
		}
		return have == local && !slices.ContainsFunc(all, func(line string) bool { return strings.Contains(line, "NO-CARRIER") })
	})
	for _, name := range []string{"eth0", "eth1"} {
		i, err := ifstate.Find(name)
		if err != nil {
			w.t.Fatal(err)
		}
		joining, err := ifstate.Joining(i)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, fmt.Sprint(name, " joins ", joining))
		for _, family := range []string{"ipv4", "ipv6"} {
			dir := "/proc/sys/net/" + family + "/conf/" + name
			files, _ := os.ReadDir(dir) // an interface may have no IPv6
			for _, f := range files {
				text, _ := os.ReadFile(filepath.Join(dir, f.Name())) // stable_secret may be unset
				all = append(all, dir+"/"+f.Name()+" "+string(text))
			}
		}
	}
	return strings.Join(all, "\n")
}

// lines is the output of ip(8), one entry a line.
func (w *world) lines() []string {
	w.t.Helper()
	var all, local []string
	for args, commands := range map[string]string{
		"-j -d -batch -": "address show\nroute show table all\nrule show\nneigh show nud permanent\nneigh show proxy\n",
		"-j -6 -batch -": "rule show\n",
	} {
		cmd := exec.Command("ip", strings.Fields(args)...)
		cmd.Stdin = strings.NewReader(commands)
		out, err := cmd.Output()
		if err != nil {
			w.t.Fatalf("ip %s: %v", args, err)
		}
		for n, dec := 0, json.NewDecoder(bytes.NewReader(out)); dec.More(); n++ {
			var v []any
			if err := dec.Decode(&v); err != nil {
				w.t.Fatalf("ip %s: %v: %s", args, err, out)
			}
			for _, entry := range timeless(v).([]any) {
				text, err := json.Marshal(entry)
				line := string(text)
				switch {
				case err != nil:
					w.t.Fatal(err)
				case strings.Contains(line, strconv.Quote(host.DatapathDevice())) || line == "{}" || strings.Contains(line, `"dev":"lo"`) || strings.Contains(line, `"ifname":"lo"`):
				case strings.Contains(line, `"table":"local"`) && strings.Contains(line, `"protocol":"kernel"`):
					local = append(local, "local "+line) // their order has no meaning
				default:
					all = append(all, fmt.Sprintf("%s %d %s", args, n, line))
				}
			}
		}
	}
	slices.Sort(local)
	slices.SortStableFunc(all, func(a, b string) int { return strings.Compare(a[:16], b[:16]) })
	return append(all, local...)
}

// lanes runs a test several times in parallel, each with a world of its own: worlds mostly wait for the kernel or
// ovs-vswitchd.
func lanes(t *testing.T, n int, test func(w *world, lane int)) {
	require.Nothing(t, require.Node, host.Missing())
	var wg sync.WaitGroup
	for lane := range n {
		wg.Go(func() {
			t.Run(fmt.Sprint("lane", lane), func(t *testing.T) { test(newWorld(t), lane) })
		})
	}
	wg.Wait()
}

// await polls until done.
func (w *world) await(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(limit.Of(time.Minute)); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("waiting for %s: time is up: %s", what, strings.Join(w.lines(), "\n"))
		}
	}
}

// timeless removes timers and indices from the output of ip -j.
func timeless(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = timeless(v[i])
		}
	case map[string]any:
		delete(v, "tentative") // the kernel takes a moment, even without duplicate address detection
		for k := range v {
			switch k {
			case "ifindex", "link_index", "expires", "used", "age":
				v[k] = "some"
			case "operstate":
				if v[k] == "UNKNOWN" { // until the kernel's linkwatch runs, at most a second later
					v[k] = "UP"
				}
			case "valid_life_time", "preferred_life_time":
				if n, ok := v[k].(float64); ok && n != 0 && n != 1<<32-1 {
					v[k] = "some"
				}
			default:
				v[k] = timeless(v[k])
			}
		}
	}
	return v
}

// same fails the test if two states differ.
func (w *world) same(what, want, got string) {
	w.t.Helper()
	if want != got {
		w.t.Errorf("%s (-want +got)\n%s", what, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
}

// move moves eth0 or breth0.
func (w *world) move(d Direction) error {
	name := "eth0"
	if d == ToNIC {
		name = "breth0"
	}
	return w.s.move(w.t.Context(), d, name)
}

// reset removes a configuration.
func (w *world) reset() {
	w.t.Helper()
	_, err := w.h.Script(w.t.Context(), `
		for f in -4 -6; do
			printf 'rule flush\nrule add pref 32766 lookup main\n' | ip $f -batch -
		done
		ip -batch - <<END
rule add pref 32767 lookup default
link del eth0
link del eth1
link add eth0 type veth peer name eth0 netns outside
link add eth1 type veth peer name eth1 netns outside
END
		printf 'link set eth0 up\nlink set eth1 up\n' | ip -n outside -batch -
		printf 'link set eth0 up\nlink set eth1 up\n' | ip -batch -`)
	if err != nil {
		w.t.Fatal(err)
	}
}

// A configuration is a random network configuration.
type configuration struct {
	r     *rand.Rand
	lines []string
}

func (c *configuration) add(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

func (c *configuration) chance(percent int) bool { return c.r.IntN(100) < percent }

func (c *configuration) oneOf(words ...string) string { return words[c.r.IntN(len(words))] }
