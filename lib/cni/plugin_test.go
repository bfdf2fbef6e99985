package cni_test

import (
	"strings"
	"testing"
)

// TestPlugin runs the program on a real node. Its subtests share the node and leave it as they found it.
func TestPlugin(t *testing.T) {
	runParts(t, newWorld(t, false), parts())
}

// A part is a test in a world.
type part struct {
	name string
	run  func(*testing.T, *world)
}

// parts are the tests for the stand-alone plugin as well as for the CNI server with its shim: for that, they are the checks
// AC-62 (Add), AC-63 (AnnotationNever), AC-64 (Del), AC-65 and AC-66 (Bandwidth) of ovnkube.
func parts() []part {
	return []part{
		{"Check58_Add", testAdd},
		{"Check58_DualStack", testDualStack},
		{"Check59_OldAnnotation", testOldAnnotation},
		{"Check60_AnnotationLater", testAnnotationLater},
		{"Check60_AnnotationNever", testAnnotationNever},
		{"CopiedAnnotation", testCopiedAnnotation},
		{"Check61_Del", testDel},
		{"Check62_Variables", testVariables},
		{"Check63_Versions", testVersions},
		{"BadInput", testBadInput},
		{"IDsThatBeginAlike", testIDsThatBeginAlike},
		{"PodNamedAsANIC", testPodNamedAsANIC},
		{"FullDisk", testFullDisk},
		{"FullDatabase", testFullDatabase},
		{"HugeInput", testHugeInput},
		{"AddAndDelAtOnce", testAddAndDelAtOnce},
		{"AddTwice", testAddTwice},
		{"NewSandbox", testNewSandbox},
		{"OtherPodOfThatName", testOtherPod},
		{"StaticPod", testStaticPod},
		{"DelOfTheOriginals", testDelOfTheOriginals},
		{"ForgedAnnotation", testForgedAnnotation},
		{"Parallel", testParallel},
		{"Check", testCheck},
		{"GC", testGC},
		{"Status", testStatus},
		{"StatusOverRestarts", testStatusOverRestarts},
		{"Bandwidth", testBandwidth},
		{"ResultNotWritten", testResultNotWritten},
		{"Sigterm", testSigterm},
		{"Kill", testKill},
		{"MissingStage", testMissingStage},
		{"WithoutOpenVSwitch", testWithoutOpenVSwitch},
		{"SilentOpenVSwitch", testSilentOpenVSwitch},
		{"WithoutIPv6", testWithoutIPv6},
		{"Secrets", testSecrets},
	}
}

func runParts(t *testing.T, w *world, parts []part) {
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.run(t, w)
			w.clean(t, "by this part")
		})
	}
}

func testVariables(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	res := s.call(t, run{command: "ADD", env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_INFRA_CONTAINER_ID=" + s.id}})
	if res.Code != 100 || res.Msg != "required CNI variables missing" || res.Details != "K8S_POD_NAME in CNI_ARGS" {
		t.Errorf("%+v", res)
	}
	for _, v := range []string{"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"} {
		if res := s.call(t, run{command: "ADD", env: map[string]string{v: ""}}); res.Code != 4 || !strings.Contains(res.Msg, v) {
			t.Errorf("without %s: %+v", v, res)
		}
	}
}

func testVersions(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, v := range []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		r := s.start(t, run{command: "ADD", version: v, env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + s.pod}})
		if res := r.end(t); res.Code != 0 || res.CNIVersion != v {
			t.Errorf("version %s: %+v", v, res)
		}
		// TestCheck63_ResultVersions checks the converted results
		s.del(t)
	}
	r := s.start(t, run{command: "VERSION"})
	r.end(t)
	if want := `"supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`; !strings.Contains(r.stdout.String(), want) {
		t.Errorf("VERSION printed %s", r.stdout.String())
	}
}

// A badInput is a call with an error.
type badInput struct {
	name string
	run  run
	code int
	want string // in message or details
}

func badInputs() []badInput {
	return []badInput{
		{"not JSON", run{stdin: "x"}, 6, "invalid character"},
		{"another type", run{stdin: `[]`}, 6, "cannot unmarshal"},
		{"no name", run{stdin: `{"cniVersion":"1.1.0"}`}, 7, "missing network name"},
		{"unknown version", run{version: "9.9.9"}, 1, "9.9.9"},
		{"no version at all", run{version: "new"}, 1, "new"},
		{"no such namespace", run{env: map[string]string{"CNI_NETNS": "/run/netns/nonexistent"}}, 3, "/run/netns/nonexistent"},
		{"not a namespace", run{env: map[string]string{"CNI_NETNS": "/etc/hosts"}}, 4, "/etc/hosts"},
		{"the host's namespace", run{env: map[string]string{"CNI_NETNS": "/proc/self/ns/net"}}, 4, "host's own"},
		{"container ID with a path", run{env: map[string]string{"CNI_CONTAINERID": "../../etc"}}, 4, "../../etc"},
		{"long interface name", run{env: map[string]string{"CNI_IFNAME": "abcdefghijklmnop"}}, 4, "too long"},
		{"pod name", run{env: map[string]string{"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=a/b"}}, 4, "a/b"},
		{"not the first plugin", run{conf: map[string]any{"prevResult": map[string]any{"cniVersion": "1.1.0"}}}, 2, "prevResult"},
		{"unknown command", run{command: "SING"}, 4, "SING"},
		{"lo is there already", run{env: map[string]string{"CNI_IFNAME": "lo"}}, 4, "lo in the container"},
	}
}

func testBadInput(t *testing.T, w *world) {
	s := w.sandbox(t, nil)
	s.assign(t)
	for _, test := range badInputs() {
		t.Run(test.name, func(t *testing.T) {
			if test.run.command == "" {
				test.run.command = "ADD"
			}
			res := s.call(t, test.run)
			if res.Code != test.code || !strings.Contains(res.Msg+" "+res.Details, test.want) || res.CNIVersion == "" {
				t.Errorf("%+v", res)
			}
			if strings.Contains(res.Msg+res.Details, "\n") {
				t.Errorf("more than one line: %+v", res)
			}
			w.clean(t, "by bad input")
		})
	}
	w.setIDs(t, "ovn-k8s-mtu=big")
	defer w.setIDs(t, "ovn-k8s-mtu=1400")
	if res := s.call(t, run{command: "ADD"}); res.Code != 7 || !strings.Contains(res.Details, `"big"`) {
		t.Errorf("a bad setting: %+v", res)
	}
	s.del(t)
}

func testSecrets(t *testing.T, w *world) {
	w.setIDs(t, "k8s-api-token="+canary, "ovn-k8s-cni-timeout=4s")
	defer w.setIDs(t, "k8s-api-token="+w.kube.Token, "ovn-k8s-cni-timeout=60s")
	s := w.sandbox(t, nil)
	s.assign(t)
	r := s.start(t, run{command: "ADD"})
	res := r.end(t)
	// The server's watch began with a valid token.
	if !w.served && (res.Code != 11 || !strings.Contains(res.Details, "Unauthorized")) || w.served && res.Code != 0 {
		t.Errorf("%+v", res)
	}
	defer s.del(t)
	for name, text := range map[string]string{"output": r.stdout.String(), "standard error": r.stderr.String(), "log": w.log(t)} {
		for _, secret := range []string{canary, w.kube.Token} {
			if strings.Contains(text, secret) {
				t.Errorf("the %s has a secret", name)
			}
		}
	}
}
