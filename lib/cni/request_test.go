package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"ovn-k8s/lib/cni/protocol"
	"ovn-k8s/lib/config"
	"ovn-k8s/lib/desired/pod/annotation"
	"ovn-k8s/lib/names"
)

func code(t *testing.T, err error) uint {
	t.Helper()
	if err == nil {
		return 0
	}
	var e *types.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a CNI error", err)
	}
	return e.Code
}

func TestUnknownCommand(t *testing.T) {
	if got := (Host{}).Serve(t.Context(), Request{Command: "VERSION"}, nil); got.Err == nil || got.Err.Code != types.ErrInvalidEnvironmentVariables {
		t.Errorf("answer %+v", got)
	}
}

// A request that ends while it waits for Open vSwitch may be tried again: the runtime must not take that for a rejected port. Other
// errors keep their codes.
func TestEndOfARequest(t *testing.T) {
	deleted := errors.New("the runtime called DEL")
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	for _, test := range []struct {
		name          string
		err           error
		plugging, any uint
	}{
		{"before", deleted, protocol.Plugging, protocol.Failed},
		{"by its cause", deleted, types.ErrTryAgainLater, types.ErrTryAgainLater},
		{"canceled", context.Canceled, types.ErrTryAgainLater, types.ErrTryAgainLater},
		{"another error", errors.New("constraint violation"), protocol.Plugging, protocol.Failed},
	} {
		err := fmt.Errorf("detaching ports: %w", test.err)
		if got := cniError(ctx, plugging(ctx, err)); got.Code != test.plugging || !strings.Contains(got.Msg+got.Details, test.err.Error()) {
			t.Errorf("%s: %+v, want code %d", test.name, got, test.plugging)
		}
		if got := cniError(ctx, err); got.Code != test.any {
			t.Errorf("%s: code %d, want %d", test.name, got.Code, test.any)
		}
		end(deleted)
	}
}

// faultyPods panics, as by a defect.
type faultyPods struct{}

func (faultyPods) Refused() error { return nil }

func (faultyPods) Wait(context.Context, string, string, func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
	panic("as by a defect")
}

// A panic while an ADD waits for its pod ends this ADD only, at once. The log has the stack.
func TestPanicOfAWatch(t *testing.T) {
	var text strings.Builder
	log := logrus.New()
	log.SetOutput(&text)
	a := &addition{node: &node{log: logrus.NewEntry(log), pods: faultyPods{}, config: config.Config{APIServer: "https://api"}}, pod: podRef{namespace: "default", name: "web-0"}}
	watch, err := a.watchPod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer watch.stop()
	if _, err := watch.first(t.Context()); code(t, err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "a defect of this program: as by a defect") {
		t.Errorf("the panic became %v", err)
	}
	if strings.Count(text.String(), "faultyPods") != 1 {
		t.Errorf("the log lacks the stack: %s", text.String())
	}
}

// bare is a pod without annotations.
type bare struct{ faultyPods }

func (bare) Wait(ctx context.Context, _, _ string, ready func(*metav1.ObjectMeta) bool) (*metav1.ObjectMeta, error) {
	ready(&metav1.ObjectMeta{})
	<-ctx.Done()
	return nil, ctx.Err()
}

// Errors name the programs of the host: one of ovnkube has neither a watcher nor minion-init.
func TestHints(t *testing.T) {
	t.Setenv("OVS_RUNDIR", t.TempDir())
	l := logrus.New()
	l.SetOutput(io.Discard)
	for _, test := range []struct {
		hints            Hints
		annotation, none string
	}{
		{Hints{}, "is ovn-k8s-watcher running?", "ovnkube"},
		{Hints{Annotation: "is a master of ovnkube running?"}, "is a master of ovnkube running?", "watcher"},
	} {
		h := Host{Pods: bare{}, Log: logrus.NewEntry(l), Hints: test.hints}
		n, closeNode := h.open(t.Context(), Request{Command: "STATUS"}, time.Now())
		defer closeNode()
		n.config.APIServer = "https://api"
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		watch, err := (&addition{node: n, pod: podRef{namespace: "default", name: "web-0"}}).watchPod(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.stop()
		if _, err := watch.first(ctx); err == nil || !strings.Contains(err.Error(), `it has no annotation "ovn": `+test.annotation) || strings.Contains(err.Error(), test.none) {
			t.Errorf("with %+v: %v", test.hints, err)
		}
	}
}

// A daemon with a kubeconfig needs no other setting of the API server; the plugin has no kubeconfig.
func TestKubeconfig(t *testing.T) {
	type pods struct{ Pods }
	for _, test := range []struct {
		config config.Config
		code   uint
	}{
		{config.Config{}, protocol.Unavailable},
		{config.Config{APIServer: "https://10.0.0.1"}, 0},
		{config.Config{Kubeconfig: "/etc/kubeconfig"}, 0},
		{config.Config{APIServer: "https://10.0.0.1", APIToken: config.Secret("e30.eyJleHAiOjE3MDAwMDAwMDB9.c2ln")}, protocol.Unavailable},
		{config.Config{Kubeconfig: "/etc/kubeconfig", APIToken: config.Secret("e30.eyJleHAiOjE3MDAwMDAwMDB9.c2ln")}, 0},
	} {
		n := &node{config: test.config, pods: pods{}}
		if got := code(t, n.checkAPIServer(time.Now())); got != test.code {
			t.Errorf("%+v: code %d, want %d", test.config, got, test.code)
		}
		if _, shared := source(t, n).(pods); shared != (test.config.APIServer+test.config.Kubeconfig != "") {
			t.Errorf("%+v: the daemon's pods %v", test.config, shared)
		}
	}
}

// source is the source of a pod, nil without an API server.
func source(t *testing.T, n *node) PodReader {
	t.Helper()
	r, err := n.reader()
	if err != nil && !errors.Is(err, config.ErrNoAPIServer) {
		t.Fatal(err)
	}
	return r
}

func TestParsePod(t *testing.T) {
	for _, test := range []struct {
		name, args string
		code       uint
		detail     string // in the error
		want       podRef
	}{
		{"containerd", "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=abc;K8S_POD_UID=11-22", 0, "", podRef{"default", "web-0", "11-22"}},
		{"Check63_no container ID", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0", 0, "", podRef{"default", "web-0", ""}},
		{"other keys", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;COLOUR=blue", 0, "", podRef{"default", "web-0", ""}},
		{"Check62_no name", "K8S_POD_NAMESPACE=default;K8S_POD_INFRA_CONTAINER_ID=abc", 100, "K8S_POD_NAME in CNI_ARGS", podRef{}},
		{"Check62_no namespace", "K8S_POD_NAME=web-0", 100, "K8S_POD_NAMESPACE in CNI_ARGS", podRef{}},
		{"Check62_nothing", "", 100, "K8S_POD_NAMESPACE in CNI_ARGS", podRef{}},
		{"Check62_no pair", "K8S_POD_NAME", 100, `invalid pair "K8S_POD_NAME"`, podRef{}},
		{"Check62_two equal signs", "K8S_POD_NAME=a=b", 100, `invalid pair "K8S_POD_NAME=a=b"`, podRef{}},
		{"not a name", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=../web", types.ErrInvalidEnvironmentVariables, `K8S_POD_NAME in CNI_ARGS is "../web"`, podRef{}},
		{"a field of the struct", "CommonArgs=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0", 100, "CommonArgs", podRef{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parsePod(test.args)
			if code(t, err) != test.code || got != test.want {
				t.Errorf("got %+v, %v", got, err)
			}
			if err == nil {
				return
			}
			if !strings.Contains(err.Error(), test.detail) {
				t.Errorf("%v does not name %s", err, test.detail)
			}
			if test.code == 100 && !strings.HasPrefix(err.Error(), "required CNI variables missing") {
				t.Errorf("%v is not the message that scripts match", err)
			}
		})
	}
}

func FuzzParsePod(f *testing.F) {
	f.Add("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID=1")
	f.Add(";;=;K8S_POD_NAME==")
	f.Add("IgnoreUnknown=0;x=y")
	f.Fuzz(func(t *testing.T, args string) {
		p, err := parsePod(args)
		if err != nil {
			if c := code(t, err); c != errMissing && c != types.ErrInvalidEnvironmentVariables {
				t.Errorf("code %d", c)
			}
			return
		}
		if validation.IsDNS1123Subdomain(p.name) != nil || validation.IsDNS1123Subdomain(p.namespace) != nil {
			t.Errorf("accepted %+v", p)
		}
	})
}

func FuzzParseConf(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"net","prevResult":{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","sandbox":"/x"}],"ips":[{"interface":0,"address":"10.1.1.3/24","gateway":"10.1.1.1"}]}}`))
	f.Add([]byte(`{"cniVersion":"0.1.0","name":"net","prevResult":{"ip4":{"ip":"10.1.1.3/24"}}}`))
	f.Add([]byte(`{"prevResult":[]}`))
	f.Add([]byte(`{"cni.dev/valid-attachments":[{"containerID":"a","ifname":"b"}]}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		conf, err := parseConf(stdin)
		if err != nil {
			code(t, err)
			return
		}
		r, err := parsePrevious(conf)
		if err != nil {
			code(t, err)
			return
		}
		expected(r, "eth0")
	})
}

func FuzzParseAlias(f *testing.F) {
	f.Add("ovn-k8s net 0123 eth0")
	f.Add("ovn-k8s   ")
	f.Fuzz(func(t *testing.T, s string) {
		if a, ok := parseAlias(s); ok && a.alias() != s {
			t.Errorf("%q became %q", s, a.alias())
		}
	})
}

func TestParseBandwidth(t *testing.T) {
	for _, test := range []struct {
		ingress, egress string
		code            uint
		want            bandwidth
	}{
		{"10M", "", 0, bandwidth{10_000_000, 0}},
		{"1k", "1P", 0, bandwidth{1_000, 1_000_000_000_000_000}},
		{"", "1Mi", 0, bandwidth{0, 1 << 20}},
		{"999", "", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"", "2P", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"", "-5M", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"much", "", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"", "9999999999999999999999E", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"1.5M", "1e7", 0, bandwidth{1_500_000, 10_000_000}},
		{"1e-2147483647", "", types.ErrInvalidNetworkConfig, bandwidth{}},
		{"", "0e2147483647", types.ErrInvalidNetworkConfig, bandwidth{}},
	} {
		annotations := map[string]string{"other": "x"}
		if test.ingress != "" {
			annotations[names.IngressBandwidth] = test.ingress
		}
		if test.egress != "" {
			annotations[names.EgressBandwidth] = test.egress
		}
		got, err := parseBandwidth(annotations)
		if got != test.want || code(t, err) != test.code {
			t.Errorf("%q %q: got %+v, %v", test.ingress, test.egress, got, err)
		}
		if err != nil && !strings.Contains(err.Error(), test.ingress+test.egress) {
			t.Errorf("%v does not name the value", err)
		}
	}
}

func FuzzParseBandwidth(f *testing.F) {
	f.Add("10M")
	f.Add("1e3")
	f.Add("1e-100000000")
	f.Fuzz(func(t *testing.T, s string) {
		b, err := parseBandwidth(map[string]string{names.IngressBandwidth: s})
		if err == nil && (b.ingress < minBandwidth || b.ingress > maxBandwidth) {
			t.Errorf("%q became %d", s, b.ingress)
		}
	})
}

// CHECK accepts the result of ADD in any version.
func TestCheck63_ResultVersions(t *testing.T) {
	addresses, err := annotation.Parse(`{"ip_address": "10.1.1.3/24,fd01::3/64", "mac_address": "0a:58:0a:01:01:03", "gateway_ip": "10.1.1.1,fd01::1"}`)
	if err != nil {
		t.Fatal(err)
	}
	a := attachment{network: "net", container: "0123456789abcdef", ifname: "eth0", netns: "/run/netns/x"}
	full := result(a, addresses, 1400, "aa:bb:cc:dd:ee:ff")
	want, ok := expected(full, "eth0")
	if !ok || len(want.Addresses) != 2 || len(want.Routes) != 2 || want.MTU != 1400 || want.MAC.String() != addresses.MAC {
		t.Fatalf("expected %+v, %v", want, ok)
	}
	for _, v := range version.All.SupportedVersions() {
		converted, err := full.GetAsVersion(v)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(converted)
		if err != nil {
			t.Fatal(err)
		}
		var prev map[string]any
		if err := json.Unmarshal(raw, &prev); err != nil {
			t.Fatal(err)
		}
		if prev["cniVersion"] != v {
			t.Errorf("version %s: cniVersion is %v", v, prev["cniVersion"])
		}
		stdin, err := json.Marshal(map[string]any{"cniVersion": v, "name": "net", "type": "ovn_cni", "prevResult": prev})
		if err != nil {
			t.Fatal(err)
		}
		conf, err := parseConf(stdin)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parsePrevious(conf)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := expected(back, "eth0")
		if v == "0.1.0" || v == "0.2.0" { // without interfaces, and without CHECK
			if len(back.IPs) != 2 {
				t.Errorf("version %s has %d addresses", v, len(back.IPs))
			}
			continue
		}
		if v != types100.ImplementedSpecVersion {
			got.MTU = want.MTU // since 1.1.0
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b interface{ String() string }) bool { return a.String() == b.String() })); !ok || diff != "" {
			t.Errorf("version %s (-want +got)\n%s", v, diff)
		}
	}
}
