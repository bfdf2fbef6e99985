package cni

import (
	"testing"

	"ovn-k8s/lib/config"
)

// The Southbound database may have other files than the Northbound one: ovnkube has options for both.
func TestTheStageIsReadWithTheFilesOfTheSouthboundDatabase(t *testing.T) {
	dir := t.TempDir()
	c := config.Config{OVNRemote: "ssl:127.0.0.1:6642", NBCACert: dir, SBCACert: dir + "/sb.pem"}
	_, err := readStage(t.Context(), c, "a_b")
	if want := "no CA certificate " + c.SBCACert + " found"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
