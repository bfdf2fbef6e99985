package ofctl

import "testing"

func TestKernelFlows(t *testing.T) {
	for text, want := range map[string]bool{
		"": false,
		"system@ovs-system:\n  lookups: hit:31 missed:26 lost:0\n  flows: 12\n  port 0: ovs-system (internal)\n": true,
		"system@ovs-system:\n  lookups: hit:31 missed:26 lost:0\n  flows: 0\n  port 0: ovs-system (internal)\n":  false,
		"system@a:\n  flows: 0\nsystem@b:\n  flows: 3\n":                                                         true,
	} {
		if got := kernelFlows.MatchString(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
