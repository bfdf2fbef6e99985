package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Section 5 of the findings: a watcher on standby with a refused token blamed a silent API server.
func TestStandbyNamesARefusedToken(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	w.start("--unixctl="+w.dir+"/first.ctl").becomesActive(1, takeover)
	refuse(w, http.StatusUnauthorized, func(path string) bool { return strings.Contains(path, "/leases/") })
	socket := w.dir + "/second.ctl"
	status := statusOf(w)
	w.start("--unixctl=" + socket)
	status("waiting: the API server refuses this host's token or rights: ", "Unauthorized")
	w.eventually("the remedy", func() bool {
		out, _ := exec.Command("ovs-appctl", "-t", socket, "pod/show").CombinedOutput()
		return strings.Contains(string(out), "standby: the API server refuses this watcher's token or rights: Unauthorized; renew k8s-api-token or k8s-api-token-file")
	})
}

// refuse has the API server refuse requests for some paths from now on.
func refuse(w *world, code int, refused func(path string) bool) {
	w.Helper()
	target, err := url.Parse(cluster.URL)
	if err != nil {
		w.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = insecure(), -1
	reason := map[int]string{http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden"}[code]
	w.url = httptestServer(w.T, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !refused(r.URL.Path) {
			proxy.ServeHTTP(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		fmt.Fprintf(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, reason, reason, code)
	})).URL
}

// statusOf is the end of NOTIFY_SOCKET for the next processes. The function waits for a line "Status:" of systemctl with texts.
func statusOf(w *world) (shows func(texts ...string)) {
	w.Helper()
	addr := &net.UnixAddr{Name: w.dir + "/notify", Net: "unixgram"}
	socket, err := net.ListenUnixgram("unixgram", addr)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = socket.Close() })
	w.Setenv("NOTIFY_SOCKET", addr.Name)
	return func(texts ...string) {
		w.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(takeover))
		for b := make([]byte, 4096); ; {
			n, err := socket.Read(b)
			if err != nil {
				w.Fatalf("no status with %q: %v", texts, err)
			}
			line, is := strings.CutPrefix(string(b[:n]), "STATUS=")
			if is && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
				return
			}
		}
	}
}

// A leader without the right to read one kind of objects gives pods no addresses. It said that it serves, and the commands had no
// reason.
func TestALeaderNamesTheObjectsThatItWaitsFor(t *testing.T) {
	w := newWorld(t, map[string]string{"node1": "192.168.2.0/24"})
	var granted atomic.Bool
	refuse(w, http.StatusForbidden, func(path string) bool { return strings.HasSuffix(path, "/endpointslices") && !granted.Load() })
	status := statusOf(w)
	w.start("--unixctl=" + w.dir + "/ctl")
	w.pod("a", "node1", nil)
	status("waiting: endpointslices: the API server refuses this host's token or rights: ")
	for command, want := range map[string]string{
		"reconcile/show":     `(?m)^waits for +endpointslices: the API server refuses `,
		"pod/show default/a": `(?m)^! incomplete, waits for endpointslices: the API server refuses (.*\n)+default/a .* not assigned yet$`,
	} {
		w.eventually(command, func() bool {
			out, _ := exec.Command("ovs-appctl", append([]string{"-t", w.dir + "/ctl"}, strings.Fields(command)...)...).Output()
			return regexp.MustCompile(want).Match(out)
		})
	}
	granted.Store(true)
	w.annotation("a")
	status("serving")
}
