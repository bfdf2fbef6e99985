package settings_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

// Section 5: a reason for not serving is logged once, its end too, and once more when it comes back.
func TestFollowerTellsOfRecovery(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
	down := errors.New("down")
	steps := []error{down, down, nil, down, nil} // of each call of Serve; nil: it serves, and fails next
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := settings.Follower{
		Load: func(context.Context) (config.Config, error) { return config.Config{}, nil },
		Roles: []settings.Role{{Log: logrus.NewEntry(log), Serve: func(_ context.Context, _ settings.Session, ready func()) error {
			step := steps[0]
			if steps = steps[1:]; step == nil {
				ready()
			}
			if len(steps) == 0 {
				cancel()
				return nil
			}
			return down
		}}},
	}
	if err := f.Run(ctx, func() {}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`level=warning msg="waiting: down"`, `level=info msg="recovered: serving"`,
		`level=warning msg="trying again: down"`, `level=info msg="recovered: serving"`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// certificate makes a self-signed one, in PEM.
func certificate(t *testing.T, serial int64) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial)}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// A replacement is a text of a file, and whether roles serve again with it.
type replacement struct {
	text  []byte
	again bool
}

// A corrected or renewed CA certificate of the API server is followed, and half a file is not.
func TestFollowerReadsAnotherCACertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	first, second := certificate(t, 1), certificate(t, 2)
	replace(t, file, config.Config{APICAFile: file}, nil, []replacement{
		{first, false}, {first[:len(first)/2], false}, {nil, false}, {second, true}, {second, false}, {append(first, second...), true},
	})
}

// A replaced kubeconfig is followed. One that the role refuses is not: a line of the log says why, once.
func TestFollowerReadsAnotherKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	check := func(config.Config) error {
		if text, err := os.ReadFile(file); err != nil || string(text) == "bad" {
			return errors.New("bad kubeconfig")
		}
		return nil
	}
	log := replace(t, file, config.Config{Kubeconfig: file}, check, []replacement{
		{[]byte("first"), false}, {nil, false}, {[]byte("bad"), false}, {[]byte("second"), true}, {[]byte("second"), false},
	})
	for text, want := range map[string]int{"keeping the former configuration: bad kubeconfig": 1, "kubeconfig: " + file + " was replaced": 1} {
		if n := strings.Count(log, text); n != want {
			t.Errorf("%d times %q, want %d:\n%s", n, text, want, log)
		}
	}
}

// replace serves with a configuration while a file is replaced. It checks when the role serves again, and returns the log.
func replace(t *testing.T, file string, c config.Config, check func(config.Config) error, steps []replacement) string {
	t.Helper()
	write := func(text []byte) {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	log, out := logrus.New(), &bytes.Buffer{}
	log.SetOutput(out)
	log.SetFormatter(&logrus.TextFormatter{DisableQuote: true})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served, ended := make(chan struct{}, 9), make(chan error)
		f := settings.Follower{
			Load: func(context.Context) (config.Config, error) { return c, nil },
			Roles: []settings.Role{{Log: logrus.NewEntry(log), Check: check, Serve: func(ctx context.Context, _ settings.Session, ready func()) error {
				ready()
				served <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}}},
		}
		write(steps[0].text)
		go func() { ended <- f.Run(ctx, func() {}) }()
		<-served
		for _, step := range steps {
			write(step.text)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			if again := len(served) > 0; again != step.again {
				t.Errorf("%s: served again %v", step.text, again)
			}
			for len(served) > 0 {
				<-served
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return out.String()
}

// Settings of the configuration file are followed by the roles that read them, once the file is complete. The log says
// where a setting takes effect, and a bad value leaves the former one.
func TestFollowerReadsTheFile(t *testing.T) {
	flags := settings.Flags{ConfigFile: filepath.Join(t.TempDir(), "ovn_k8s.conf")}.Map()
	write := func(text string) {
		if err := os.WriteFile(flags["config-file"], []byte("[default]\n"+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		log.SetFormatter(&logrus.TextFormatter{DisableTimestamp: true})
		var mu sync.Mutex // guards served
		served := map[config.Reader]string{}
		role := func(r config.Reader) settings.Role {
			return settings.Role{Log: logrus.NewEntry(log), Reader: r, Serve: func(ctx context.Context, s settings.Session, ready func()) error {
				ready()
				mu.Lock()
				served[r] += fmt.Sprint(s.Config.MTU, " ", s.Config.SystemID, s.Config.ServiceCIDRs, "; ")
				mu.Unlock()
				<-ctx.Done()
				return ctx.Err()
			}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		f := settings.Follower{
			File: flags["config-file"], Roles: []settings.Role{role(config.Watcher), role(config.Helper)},
			Load: func(ctx context.Context) (config.Config, error) { return settings.Load(ctx, flags, nil) },
		}
		starts, ended := 0, make(chan error)
		go func() { ended <- f.Run(ctx, func() { starts++ }) }()
		for _, step := range []struct{ text, watcher, helper, log string }{
			{"", "1400 []; ", "1400 []; ", ""},
			{"cni_timeout=2m", "", "", ""},
			{"mtu=1300", "", "1300 []; ", `setting mtu: now "1300" (FILE: mtu), before "1400": followed by the gateway helper; run master-init and minion-init and gateway-init again to use it there`},
			{"mtu=much", "", "", `keeping the former configuration: bad mtu "much" (from FILE: mtu): want a number from 576 to 65535`},
			{"mtu=", "", "1400 []; ", `setting mtu: now "1400" (default), before "1300": followed by the gateway helper; run master-init and minion-init and gateway-init again to use it there`},
			{"rundir=/x", "", "", `setting rundir: now "/x" (FILE: rundir), before "/var/run/openvswitch": restart this program to use it`},
			{"service_cidr=10.0.0.0/8\nrundir=/x", "1400 [10.0.0.0/8]; ", "1400 [10.0.0.0/8]; ", `setting service-cidr: now "10.0.0.0/8" (FILE: service_cidr), before "": followed by the watcher; followed by the gateway helper; run master-init and minion-init again to use it there`},
		} {
			write(step.text)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			var lines []string
			for line := range strings.Lines(strings.ReplaceAll(out.String(), flags["config-file"], "FILE")) {
				_, text, _ := strings.Cut(strings.TrimSpace(line), `msg="`)
				if text = strings.TrimSuffix(strings.ReplaceAll(text, `\"`, `"`), `"`); !strings.HasSuffix(text, "starting anew") {
					lines = append(lines, text)
				}
			}
			want := step
			if got := (struct{ text, watcher, helper, log string }{step.text, served[config.Watcher], served[config.Helper], strings.Join(lines, "\n")}); got != want {
				t.Errorf("got  %q\nwant %q", got, want)
			}
			clear(served)
			out.Reset()
		}
		cancel()
		if err := <-ended; err != nil || starts != 1 {
			t.Errorf("%v, %d times ready", err, starts)
		}
	})
}

// A file that is missing or empty for a while, as between two steps of an editor, leaves its former settings. A line says so,
// once. The next text is used.
func TestFollowerKeepsSettingsOfAMissingFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("OVS_SYSCONFDIR", dir)
	t.Setenv("OVS_DBDIR", dir) // no Open vSwitch
	t.Setenv("OVS_RUNDIR", dir)
	file := filepath.Join(dir, "openvswitch", "ovn_k8s.conf")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) error { return os.WriteFile(file, []byte(text), 0o644) }
	if err := write("[default]\nmtu=1300\n"); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := logrus.New()
		log.SetOutput(&out)
		var mtus []int
		reload := make(chan struct{})
		role := settings.Role{Log: logrus.NewEntry(log), Reader: config.Helper, Serve: func(ctx context.Context, s settings.Session, ready func()) error {
			ready()
			mtus = append(mtus, s.Config.MTU)
			<-ctx.Done()
			return ctx.Err()
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- settings.Runtime{Reload: reload}.Run(ctx, func() {}, role) }()
		time.Sleep(time.Second / 2)
		for _, step := range []struct {
			what   string
			change func() error
			mtus   []int
			lines  int
		}{
			{"missing", func() error { return os.Remove(file) }, []int{1300}, 1},
			{"loaded again", func() error { reload <- struct{}{}; return nil }, []int{1300}, 1},
			{"empty", func() error { return write("\n") }, []int{1300}, 1},
			{"the next text", func() error { return write("[default]\nmtu=1200\n") }, []int{1300, 1200}, 1},
			{"an invalid one", func() error { return write("[default]\nmtu=much\n") }, []int{1300, 1200}, 1},
			{"empty again", func() error { return write("") }, []int{1300, 1200}, 2},
			{"without settings", func() error { return write("[default]\n") }, []int{1300, 1200, 1400}, 2},
		} {
			if err := step.change(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			line := file + " is missing or empty: its former settings are used"
			if n := strings.Count(out.String(), line); !cmp.Equal(mtus, step.mtus) || n != step.lines {
				t.Errorf("%s: MTUs %v, want %v; %d lines, want %d", step.what, mtus, step.mtus, n, step.lines)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Half a file is not used either while a role that waits has the settings loaded again each second.
func TestFollowerThatWaitsReadsNoHalfFile(t *testing.T) {
	flags := settings.Flags{ConfigFile: filepath.Join(t.TempDir(), "ovn_k8s.conf")}.Map()
	write := func(text string) {
		if err := os.WriteFile(flags["config-file"], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("[default]\nmtu=1300\n")
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(&bytes.Buffer{})
		tried := map[int]bool{}
		ctx, cancel := context.WithCancel(t.Context())
		f := settings.Follower{
			File: flags["config-file"],
			Load: func(ctx context.Context) (config.Config, error) { return settings.Load(ctx, flags, nil) },
			Roles: []settings.Role{{Log: logrus.NewEntry(log), Reader: config.Helper, Serve: func(_ context.Context, s settings.Session, _ func()) error {
				tried[s.Config.MTU] = true
				return errors.New("the bridge is missing")
			}}},
		}
		ended := make(chan error)
		go func() { ended <- f.Run(ctx, func() {}) }()
		time.Sleep(5250 * time.Millisecond) // else a write would race with a read
		write("[default]\n")
		time.Sleep(1500 * time.Millisecond)
		write("[default]\nmtu=1200\n")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if want := map[int]bool{1300: true, 1200: true}; !cmp.Equal(tried, want) {
			t.Errorf("tried with the MTUs %v, want %v", tried, want)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
