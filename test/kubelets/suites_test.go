package kubelets

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"ovn-k8s/test/need"
	"ovn-k8s/test/world"
)

//go:embed testdata/dns.yaml
var nameServer []byte

const (
	// suitesLevel is demanded by those who have Kubernetes' own suites.
	suitesLevel = "suites"
	// usualFocus chooses what concerns a network plugin and needs no cloud, and
	// usualSkip what needs images, kernels or clusters that this one has not.
	usualFocus = `\[sig-network\]`
	usualSkip  = `\[Disruptive\]|\[Feature:(Ingress|KubeProxy.*|LoadBalancer|OffByDefault|PerformanceDNS|Networking-(DNS|IPv4|IPv6|Performance)|SCTPConnectivity)\]|IngressClass|KubeProxy|\[Flaky\]|federations`
)

// TestSuites runs Kubernetes' own end-to-end suites, compiled as the program
// $OVNK8S_E2E, on a cluster whose nodes share their NICs with gateways, with $GINKGO_FOCUS and $GINKGO_SKIP in place of the usual choice.
// Their report and logs go to $OVNK8S_E2E_REPORT, if that is set.
func TestSuites(t *testing.T) {
	missing := Missing()
	suites := os.Getenv("OVNK8S_E2E")
	if missing == "" && firstFile(suites) == "" {
		missing = "Kubernetes' end-to-end suites: $OVNK8S_E2E must be the path of e2e.test"
	}
	if missing == "" && firstFile(filepath.Join(os.Getenv("OVNK8S_IMAGES"), dnsArchive)) == "" {
		missing = dnsArchive + ": $OVNK8S_IMAGES must be its directory"
	}
	need.Nothing(t, suitesLevel, missing)
	c := newCluster(t)
	if err := c.kube.Apply(c.ctx(t), nameServer); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes {
		if _, err := c.AddGateway(c.ctx(t), n, world.Shared); err != nil {
			t.Fatal(err)
		}
	}
	c.kubectl(t, "-n", "kube-system", "rollout", "status", "--timeout=90s", "deployment/coredns")
	cmd := exec.CommandContext(t.Context(), suites, "--provider=skeleton", "--kubeconfig="+c.kube.Kubeconfig,
		"--ginkgo.focus="+or("GINKGO_FOCUS", usualFocus), "--ginkgo.skip="+or("GINKGO_SKIP", usualSkip),
		"--ginkgo.v", "--ginkgo.no-color", "--report-dir="+os.Getenv("OVNK8S_E2E_REPORT"))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("Kubernetes' own suites: %v", err)
	}
	c.keep(t)
}

// or is a variable of the environment, or what to use if it is not set.
func or(variable, usual string) string {
	if v, ok := os.LookupEnv(variable); ok {
		return v
	}
	return usual
}
