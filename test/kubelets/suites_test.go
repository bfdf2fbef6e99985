package kubelets

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"ovn-k8s/test/need"
	"ovn-k8s/test/world"
)

//go:embed testdata/dns.yaml
var nameServer []byte

const (
	// suitesLevel is demanded by those who have Kubernetes' own suites.
	suitesLevel = "suites"
	// dnsArchive has the image of testdata/dns.yaml.
	dnsArchive = "coredns.tar"
	// usualNodes is how many nodes there are: some tests need three, each in a
	// zone of its own, and some six.
	usualNodes = "3"
	// usualFocus chooses what concerns a network plugin and needs no cloud, and
	// usualSkip what needs images, kernels or clusters that this one has not.
	usualFocus = `\[sig-network\]`
	usualSkip  = `\[Disruptive\]|\[Feature:(Ingress|KubeProxy.*|LoadBalancer|OffByDefault|PerformanceDNS|Networking-(DNS|IPv4|IPv6|Performance)|SCTPConnectivity)\]|KubeProxy|kube-proxy|\[Flaky\]|federations`
)

// TestSuites runs Kubernetes' own end-to-end suites, compiled as the program
// $OVNK8S_E2E, on a cluster of $OVNK8S_E2E_NODES nodes that share their NICs with
// gateways, with $GINKGO_FOCUS and $GINKGO_SKIP in place of the usual choice, and
// $GINKGO_PROCS tests at once.
// Their report and logs go to $OVNK8S_E2E_REPORT, if that is set.
func TestSuites(t *testing.T) {
	need.Nothing(t, suitesLevel, missingSuites())
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

// suites is the command that runs them: e2e.test itself, or, for several tests
// at once, the program ginkgo, which Kubernetes delivers in the same directory.
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

// missingSuites names what TestSuites would miss on this machine, or is "".
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

// or is a variable of the environment, or what to use if it is not set.
func or(variable, usual string) string {
	if v, ok := os.LookupEnv(variable); ok {
		return v
	}
	return usual
}
