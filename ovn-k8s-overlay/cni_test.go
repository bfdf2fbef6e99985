package main

import (
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// checkConflist reads a CNI configuration in the same way as container runtimes.
func checkConflist(t *testing.T, path string) {
	t.Helper()
	list, err := libcni.ConfListFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if list.Name != "ovn-k8s" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "ovn-k8s-cni-overlay" {
		t.Errorf("%+v", list)
	}
	if list.CNIVersion != "1.1.0" { // the newest of cniVersions known to libcni
		t.Errorf("version %s", list.CNIVersion)
	}
	if !list.DisableCheck { // else a runtime calls CHECK for each pod at its start
		t.Error("runtimes call CHECK")
	}
}
