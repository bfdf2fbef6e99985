package settings_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"ovn-k8s/lib/config"
	"ovn-k8s/lib/settings"
)

// A follower with a configuration file and one role.
type oneRole struct {
	file string
	out  bytes.Buffer
}

func (o *oneRole) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(o.file, []byte("[default]\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (o *oneRole) count(text string) int { return strings.Count(o.out.String(), text) }

// follower runs r with the file's settings.
func (o *oneRole) follower(t *testing.T, r settings.Role) settings.Follower {
	o.file = filepath.Join(t.TempDir(), "ovn_k8s.conf")
	o.write(t, "")
	log := logrus.New()
	log.SetOutput(&o.out)
	r.Log, r.Reader = logrus.NewEntry(log), config.Helper
	flags := settings.Flags{ConfigFile: o.file}.Map()
	return settings.Follower{
		File: o.file, Roles: []settings.Role{r},
		Load: func(ctx context.Context) (config.Config, error) { return settings.Load(ctx, flags, nil) },
	}
}

// A role that has served, and then finds something wrong that waiting does not cure, is tried again less and less often,
// with one line. Other settings are tried at once.
func TestFollowerTriesWrongSettingsLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		tries := 0
		f := o.follower(t, settings.Role{Serve: func(ctx context.Context, s settings.Session, ready func()) error {
			if tries++; tries == 1 || s.Config.MTU == 1300 {
				ready()
			}
			if s.Config.MTU == 1300 {
				<-ctx.Done()
				return ctx.Err()
			}
			return settings.Wrong(errors.New("ranges lack nodes"))
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx, func() {}) }()
		time.Sleep(10*time.Minute + time.Second/2)
		synctest.Wait()
		if tries < 20 || tries > 26 {
			t.Errorf("%d tries in 10 minutes", tries)
		}
		if n := o.count("trying again: ranges lack nodes"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &o.out)
		}
		before := tries
		o.write(t, "mtu=1300\n")
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if tries > before+2 || o.count("recovered: serving") != 1 {
			t.Errorf("%d tries with a new setting:\n%s", tries-before, &o.out)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Settings that a running role cannot go on with are not used until it can: it serves with the former ones, without a new start.
func TestFollowerKeepsWhatARoleServesWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		served, drained, undecided := []int{}, false, false
		f := o.follower(t, settings.Role{
			Accept: func(c config.Config) error {
				if undecided {
					return settings.ErrUndecided
				}
				if c.MTU == 1300 && !drained {
					return errors.New("nodes have another MTU")
				}
				return nil
			},
			Serve: func(ctx context.Context, s settings.Session, ready func()) error {
				ready()
				served = append(served, s.Config.MTU)
				<-ctx.Done()
				return ctx.Err()
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- f.Run(ctx, func() {}) }()
		time.Sleep(time.Second / 2)
		o.write(t, "mtu=1300\n")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := o.count("keeping the former configuration: nodes have another MTU"); n != 1 || len(served) != 1 {
			t.Errorf("served with %v; %d lines:\n%s", served, n, &o.out)
		}
		undecided = true // they were refused
		o.write(t, "mtu=1300\nk8s_ca_certificate=/ca.crt\n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := o.count("keeping the former configuration: "); n != 1 || !slices.Equal(served, []int{1400, 1400}) {
			t.Errorf("without a decision: served with %v; %d lines:\n%s", served, n, &o.out)
		}
		served = served[:1]
		drained, undecided = true, false
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(served) != 2 || served[1] != 1300 {
			t.Errorf("served with %v", served)
		}
		undecided = true // these were not
		o.write(t, "mtu=1200\n")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if len(served) != 3 || served[2] != 1200 {
			t.Errorf("served with %v", served)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// While a role refuses settings, the API server and the credentials for it are followed: former ones end, and without
// others no role could serve at all.
func TestFollowerRenewsCredentialsBesideRefusedSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		var sessions []settings.Session
		f := o.follower(t, settings.Role{
			Accept: func(c config.Config) error {
				if c.MTU == 1300 {
					return errors.New("nodes have another MTU")
				}
				return nil
			},
			Serve: func(ctx context.Context, s settings.Session, ready func()) error {
				ready()
				sessions = append(sessions, s)
				<-ctx.Done()
				return ctx.Err()
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		const api = "k8s_api_server=https://api:6443\n"
		o.write(t, api+"k8s_api_token=first\n")
		go func() { ended <- f.Run(ctx, func() {}) }()
		time.Sleep(time.Second / 2)
		// step has the file with a text for some time, and checks the last of so many sessions.
		step := func(what, text string, n, mtu int, token, ca string) {
			t.Helper()
			o.write(t, text)
			time.Sleep(time.Minute)
			synctest.Wait()
			last := sessions[len(sessions)-1]
			if got := last.Token(); len(sessions) != n || last.Config.MTU != mtu || got != token || last.Config.APICAFile != ca {
				t.Errorf("%s: %d sessions, the last with MTU %d, token %q, CA %q", what, len(sessions), last.Config.MTU, got, last.Config.APICAFile)
			}
		}
		step("a refused setting", api+"mtu=1300\nk8s_api_token=first\n", 1, 1400, "first", "")
		step("another token", api+"mtu=1300\nk8s_api_token=second\n", 1, 1400, "second", "")
		step("another CA", api+"mtu=1300\nk8s_api_token=second\nk8s_ca_certificate=/ca.crt\n", 2, 1400, "second", "/ca.crt")
		if n := o.count("keeping the former configuration"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &o.out)
		}
		if n := o.count("setting k8s-ca-certificate: now"); n != 1 || o.count("setting mtu") != 0 {
			t.Errorf("%d lines about the CA:\n%s", n, &o.out)
		}
		step("a setting that is accepted", api+"mtu=1200\nk8s_api_token=third\nk8s_ca_certificate=/ca.crt\n", 3, 1200, "third", "/ca.crt")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
