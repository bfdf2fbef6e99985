package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"ovn-k8s/lib/names"
	overlayhost "ovn-k8s/lib/overlay/host"
	"ovn-k8s/lib/ovnkube/options"
	"ovn-k8s/lib/ovsdb/vswitch"
	"ovn-k8s/lib/settings"
	"ovn-k8s/test/ovntest"
)

// The interfaces tell whether a former plugin is in use. A pass without one does not read them, and so it does not fail without an
// answer of the database.
func TestInterfacesAreReadForAFormerPlugin(t *testing.T) {
	dir, vsctl := ovntest.ConfDB(t)
	vsctl("init")
	sw, err := vswitch.Connect(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sw.Close)
	cfg, err := settings.Runtime{Flags: map[string]string{"init-node": "n1", "cluster-subnets": ranges, "k8s-service-cidr": services, "k8s-apiserver": "http://192.0.2.1:8080"}, Resolve: options.Config}.Load(t.Context(), sw)
	if err != nil {
		t.Fatal(err)
	}
	cfg.CNIConfDir, cfg.CNIBinDir = t.TempDir(), t.TempDir()
	e := newEngine(&Node{Options{Server: server}}, settings.Session{Config: cfg, Switch: sw}, nil)
	remove := func(ctx context.Context) error {
		return runtimes{&e.pass}.removeFormer(ctx, &overlayhost.Host{Config: cfg, Switch: sw})
	}
	silent, cancel := context.WithCancel(t.Context())
	cancel()
	if err := remove(silent); err != nil {
		t.Errorf("without files of former settings: %v", err)
	}

	former := filepath.Join(t.TempDir(), "ovn-k8s-cni-overlay")
	if err := os.Symlink("/usr/bin/ovn-k8s-cni-shim", former); err != nil {
		t.Fatal(err)
	}
	vsctl("set", "Open_vSwitch", ".", "external_ids:"+names.CNIFiles+"="+former)
	if err := sw.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := remove(silent); err == nil {
		t.Error("it does not ask whether the former plugin is in use")
	}
	if err := remove(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(former); !os.IsNotExist(err) {
		t.Errorf("the former plugin: %v", err)
	}
}
