package settings_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ovn_k8s.conf")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestLoad(t *testing.T) {
	sysconf := t.TempDir()
	if err := os.Mkdir(sysconf+"/openvswitch", 0o755); err != nil {
		t.Fatal(err)
	}
	err := os.WriteFile(sysconf+"/openvswitch/ovn_k8s.conf", []byte(`# a comment
[default]
mtu=1350
conntrack_zone = 64321
cni-plugin=/opt/a#b;c
rundir=/run/x

[kubernetes]
mtu=1
`), 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OVS_SYSCONFDIR", sysconf)
	t.Setenv("OVS_RUNDIR", "/run/y")
	c, err := settings.Load(t.Context(), settings.Flags{NB: "tcp:10.0.0.1:6641"}.Map(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.MTU != 1350 || c.ConntrackZone != 64321 || c.CNIPlugin != "/opt/a#b;c" || c.RunDir != "/run/x" || len(c.Ignored) != 0 {
		t.Errorf("got\n%v", c)
	}
	if diff := cmp.Diff([]string{"tcp:10.0.0.1:6641"}, c.NB); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if dir, err := settings.RunDir(nil); dir != "/run/x" || err != nil {
		t.Errorf("RunDir: %s, %v", dir, err)
	}
	if dir, err := settings.RunDir(settings.Flags{ConfigFile: write(t, "[default]\n")}.Map()); dir != "/run/y" || err != nil {
		t.Errorf("RunDir without rundir: %s, %v", dir, err)
	}
	if dir, err := settings.RunDir(settings.Flags{ConfigFile: write(t, "logdir=x\n")}.Map()); dir != "/run/y" || err != nil {
		t.Errorf("RunDir with a bad logdir: %s, %v", dir, err)
	}
	if _, err := settings.RunDir(settings.Flags{ConfigFile: write(t, "rundir=x\n")}.Map()); err == nil || !strings.Contains(err.Error(), `bad rundir "x"`) {
		t.Errorf("RunDir with a bad rundir: %v", err)
	}
}

func TestSectionsInAnyCase(t *testing.T) {
	for _, text := range []string{"[default]\nmtu=1300", "[Default]\nMTU=1300", "[DEFAULT]\nMtu=1300", "mtu=1300", "mtu=1200\n[other]\nmtu=1\n[deFault]\nmtu=1300"} {
		c, err := settings.Load(t.Context(), settings.Flags{ConfigFile: write(t, text)}.Map(), nil)
		if err != nil || c.MTU != 1300 {
			t.Errorf("%q: %d, %v", text, c.MTU, err)
		}
		if dir, err := settings.RunDir(settings.Flags{ConfigFile: write(t, text+"\n[Default]\nRunDir=/run/z")}.Map()); dir != "/run/z" || err != nil {
			t.Errorf("%q: RunDir: %s, %v", text, dir, err)
		}
	}
}

func TestBadFile(t *testing.T) {
	file := write(t, "[default]\nmtu=1400\nwhat is this\n[other]\n")
	_, err := settings.Load(t.Context(), settings.Flags{ConfigFile: file}.Map(), nil)
	want := "reading the configuration: " + file + `:3: key-value delimiter not found: what is this`
	if err == nil || strings.TrimSpace(err.Error()) != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	_, err = settings.Load(t.Context(), settings.Flags{ConfigFile: "/nowhere/x"}.Map(), nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/nowhere/x") {
		t.Errorf("a file that was asked for does not exist: %v", err)
	}
	t.Setenv("OVS_SYSCONFDIR", "/nowhere")
	if _, err := settings.Load(t.Context(), nil, nil); err != nil {
		t.Errorf("the usual file does not exist: %v", err)
	}
	_, err = settings.Load(t.Context(), settings.Flags{ConfigFile: write(t, "[default]\nmtu=x\n")}.Map(), nil)
	if err == nil || !strings.Contains(err.Error(), `bad mtu "x" (from `) || !strings.Contains(err.Error(), "ovn_k8s.conf: mtu)") {
		t.Errorf("a bad value: %v", err)
	}
}

// Each option sets the setting of the same name.
func TestFlagsAreSettings(t *testing.T) {
	known := map[string]bool{"config-file": true}
	for _, s := range config.Settings() {
		for _, n := range s.Flags {
			known[n.Text] = true
		}
	}
	var f settings.Flags
	v := reflect.ValueOf(&f).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Type.Kind() != reflect.String {
			continue
		}
		v.Field(i).SetString("x")
		name := field.Tag.Get("long")
		if !known[name] {
			t.Errorf("--%s is no setting", name)
		}
		if diff := cmp.Diff(map[string]string{name: "x"}, f.Map()); diff != "" {
			t.Errorf("--%s: (-want +got)\n%s", name, diff)
		}
		v.Field(i).SetString("")
		delete(known, name)
	}
	if len(known) > 0 {
		t.Errorf("settings without an option: %v", known)
	}
}
