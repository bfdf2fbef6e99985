package kubelets

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"ovn-k8s/test/require"
	"ovn-k8s/test/world"
)

//go:embed testdata/dns.yaml
var nameServer []byte

const (
	// suitesLevel is the level of OVNK8S_TEST_NEED for Kubernetes' own suites.
	suitesLevel = "suites"
	// dnsArchive contains the image of testdata/dns.yaml.
	dnsArchive = "coredns.tar"
	// usualNodes is the default number of nodes. Some tests need three, each in its
	// own zone, and some six.
	usualNodes = "3"
	// usualFocus selects tests of network plugins not needing a cloud. usualSkip
	// excludes tests needing other images, kernels or clusters.
	usualFocus = `\[sig-network\]`
	usualSkip  = `\[Disruptive\]|\[Feature:(Ingress|KubeProxy.*|LoadBalancer|OffByDefault|PerformanceDNS|Networking-(DNS|IPv4|IPv6|Performance)|SCTPConnectivity)\]|KubeProxy|kube-proxy|\[Flaky\]|federations`
)

// TestSuites runs Kubernetes' own end-to-end suites, compiled as the program
// $OVNK8S_E2E, on a cluster of $OVNK8S_E2E_NODES nodes that share their NICs with
// gateways, with $GINKGO_FOCUS and $GINKGO_SKIP in place of the defaults, and
// $GINKGO_PROCS tests in parallel. Their report and logs go to $OVNK8S_E2E_REPORT,
// if set.
func TestSuites(t *testing.T) {
	require.Nothing(t, suitesLevel, missingSuites())
	nodes, err := strconv.Atoi(or("OVNK8S_E2E_NODES", usualNodes))
	if err != nil || nodes < 2 {
		t.Fatalf("$OVNK8S_E2E_NODES is %q: it must be a number, 2 or more", os.Getenv("OVNK8S_E2E_NODES"))
	}
	c := newCluster(t, nodes-1)
	if err := c.kube.Apply(c.ctx(t), nameServer); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if _, err := c.AddGateway(c.ctx(t), n, world.Shared); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "--timeout=90s", "deployment/coredns")
	args := suites(c.kube.Kubeconfig, nodes)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("Kubernetes' own suites: %v", err)
	}
	c.keep(t)
}

// suites returns the command: e2e.test itself, or, for several tests in parallel,
// the program ginkgo in the same directory (both are in Kubernetes' test archive).
func suites(kubeconfig string, nodes int) []string {
	program, choice, options := os.Getenv("OVNK8S_E2E"),
		[]string{"focus=" + or("GINKGO_FOCUS", usualFocus), "skip=" + or("GINKGO_SKIP", usualSkip), "v", "no-color", "silence-skips", "timeout=24h"},
		[]string{"--provider=skeleton", fmt.Sprintf("--num-nodes=%d", nodes), "--kubeconfig=" + kubeconfig, "--report-dir=" + os.Getenv("OVNK8S_E2E_REPORT")}
	procs := os.Getenv("GINKGO_PROCS")
	if procs == "" {
		return append(append([]string{program}, prefixed("--ginkgo.", choice)...), options...)
	}
	args := append([]string{filepath.Join(filepath.Dir(program), "ginkgo"), "--procs=" + procs}, prefixed("--", choice)...)
	return append(append(args, program, "--"), options...)
}

func prefixed(prefix string, words []string) (out []string) {
	for _, w := range words {
		out = append(out, prefix+w)
	}
	return out
}

// missingSuites names a prerequisite of TestSuites missing on this machine, or is "".
func missingSuites() string {
	program := os.Getenv("OVNK8S_E2E")
	switch missing := Missing(); {
	case missing != "":
		return missing
	case firstFile(program) == "":
		return "Kubernetes' end-to-end suites: $OVNK8S_E2E must be the path of e2e.test"
	case os.Getenv("GINKGO_PROCS") != "" && firstFile(filepath.Join(filepath.Dir(program), "ginkgo")) == "":
		return "ginkgo: it must be in the directory of $OVNK8S_E2E"
	case firstFile(filepath.Join(os.Getenv("OVNK8S_IMAGES"), dnsArchive)) == "":
		return dnsArchive + ": $OVNK8S_IMAGES must be its directory"
	}
	return ""
}

// or returns an environment variable, or usual if it is not set.
func or(variable, usual string) string {
	if v, ok := os.LookupEnv(variable); ok {
		return v
	}
	return usual
}
