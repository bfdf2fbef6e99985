package cni_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ktypes "k8s.io/apimachinery/pkg/types"
)

// A sandbox is a pod's network namespace, as created by a runtime.
type sandbox struct {
	w         *world
	pod       string // in namespace default
	id, netns string
	ip4, ip6  string // empty: none
	uid       string
}

// sandbox creates a pod and its sandbox, without addresses.
func (w *world) sandbox(t *testing.T, edit func(*corev1.Pod)) *sandbox {
	t.Helper()
	n := serial.Add(1)
	s := &sandbox{w: w, pod: fmt.Sprintf("pod-%d", n), ip4: fmt.Sprintf("10.1.%d.%d", n/200, n%200+10)}
	pod, err := w.kube.CreatePod(t.Context(), "default", s.pod, "node1", edit)
	if err != nil {
		t.Fatal(err)
	}
	s.uid = string(pod.UID)
	s.renew(t)
	return s
}

// renew gives the pod a new sandbox, as the kubelet does when the sandbox has died.
func (s *sandbox) renew(t *testing.T) {
	t.Helper()
	s.id = fmt.Sprintf("%08x%056x", os.Getpid(), serial.Add(1))
	s.id = s.id[56:] + s.id[:56] // the first 15 characters make the device's name
	s.netns = "/run/netns/cnitest-" + s.id[:8] + fmt.Sprint(os.Getpid())
	name := filepath.Base(s.netns)
	s.w.must(t, exec.Command("ip", "netns", "add", name))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
}

// mac is the pod's, as the watcher chooses it.
func (s *sandbox) mac() string {
	ip := net.ParseIP(s.ip4).To4()
	return fmt.Sprintf("0a:58:%02x:%02x:%02x:%02x", ip[0], ip[1], ip[2], ip[3])
}

// annotation is the pod's, as the watcher writes it.
func (s *sandbox) annotation() string {
	ip, gw := s.ip4+"/16", "10.1.0.1"
	if s.ip6 != "" {
		ip, gw = ip+","+s.ip6+"/64", gw+",fd01::1"
	}
	return fmt.Sprintf(`{"ip_address": %q, "mac_address": %q, "gateway_ip": %q}`, ip, s.mac(), gw)
}

// assign acts as the watcher for the pod.
func (s *sandbox) assign(t *testing.T) {
	t.Helper()
	s.w.nbctl(t, s.port()...)
	s.annotate(t, s.annotation())
}

// port is the pod's logical port as arguments of ovn-nbctl.
func (s *sandbox) port() []string {
	lsp := "default_" + s.pod
	addr := strings.TrimSpace(s.mac() + " " + s.ip4 + " " + s.ip6)
	return []string{"lsp-add", "node1", lsp, "--", "lsp-set-addresses", lsp, addr, "--", "lsp-set-port-security", lsp, addr,
		"--", "lsp-set-options", lsp, "iface-id-ver=" + s.uid}
}

func (s *sandbox) annotate(t *testing.T, value string) {
	t.Helper()
	s.annotateAs(t, "ovn", value)
}

func (s *sandbox) annotateAs(t *testing.T, key, value string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.w.kube.Client().CoreV1().Pods("default").Patch(context.Background(), s.pod, ktypes.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// A run is one call of the plugin: its input and its process.
type run struct {
	command, version string // the latter defaults to 1.1.0
	env              map[string]string
	setup            string         // shell commands before, in mounts of its own
	stdin            string         // replaces the configuration
	program          string         // instead of the world's
	conf             map[string]any // adds to it

	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
	err    error
}

// A result is the plugin's output, in any version, or an error.
type result struct {
	CNIVersion string
	Interfaces []struct {
		Name, Mac, Sandbox string
		Mtu                int
	}
	IPs []struct {
		Address, Gateway string
		Interface        *int
	}
	Routes       []struct{ Dst, GW string }
	Code         int
	Msg, Details string
}

// start calls the plugin for a sandbox, as a runtime does.
func (s *sandbox) start(t *testing.T, r run) *run {
	t.Helper()
	env := map[string]string{
		"CNI_COMMAND": r.command, "CNI_CONTAINERID": s.id, "CNI_NETNS": s.netns, "CNI_IFNAME": "eth0", "CNI_PATH": s.w.dir,
		"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod + ";K8S_POD_INFRA_CONTAINER_ID=" + s.id + ";K8S_POD_UID=" + s.uid,
	}
	for k, v := range r.env {
		env[k] = v
	}
	if r.version == "" {
		r.version = "1.1.0"
	}
	conf := map[string]any{"cniVersion": r.version, "name": "ovn-k8s", "type": "ovn-k8s-cni-overlay"}
	for k, v := range r.conf {
		conf[k] = v
	}
	stdin, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	if r.stdin != "" {
		stdin = []byte(r.stdin)
	}
	out := r
	out.cmd = s.w.in("sh", "-c", r.setup+"\nexec "+cmp.Or(r.program, s.w.bin))
	for k, v := range env {
		out.cmd.Env = append(out.cmd.Env, k+"="+v)
	}
	out.cmd.Stdin, out.cmd.Stdout, out.cmd.Stderr = bytes.NewReader(stdin), &out.stdout, &out.stderr
	if err := out.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &out
}

// end waits for the plugin and parses its output.
func (r *run) end(t *testing.T) result {
	t.Helper()
	r.err = r.cmd.Wait()
	var res result
	if r.stdout.Len() > 0 {
		if err := json.Unmarshal(r.stdout.Bytes(), &res); err != nil {
			t.Errorf("%s printed %q: %v", r.command, r.stdout.String(), err)
		}
	}
	if (r.err != nil) != (res.Code != 0) {
		t.Errorf("%s: %v with output %q and stderr %q", r.command, r.err, r.stdout.String(), r.stderr.String())
	}
	return res
}

// call calls the plugin and returns its output.
func (s *sandbox) call(t *testing.T, r run) result {
	t.Helper()
	return s.start(t, r).end(t)
}

// add is a successful ADD.
func (s *sandbox) add(t *testing.T) result {
	t.Helper()
	res := s.call(t, run{command: "ADD"})
	if res.Code != 0 {
		t.Fatalf("ADD of %s: %+v", s.pod, res)
	}
	return res
}

func (s *sandbox) host() string { return s.id[:15] }

// exec returns a command inside the sandbox.
func (s *sandbox) exec(name string, args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", filepath.Base(s.netns), name}, args...)...)
}

// ping sends one packet, once.
func (s *sandbox) ping(t *testing.T, to string) {
	t.Helper()
	if out, err := s.exec("ping", "-n", "-c1", "-W3", to).CombinedOutput(); err != nil {
		t.Errorf("ping from %s to %s: %v\n%s", s.pod, to, err, out)
	}
}

func (r *run) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil && !strings.Contains(err.Error(), "finished") {
		t.Fatal(err)
	}
}
