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

// A role that cannot judge uses none of the settings that it has refused, whatever others change meanwhile. When these have
// other values, the rest is used.
func TestFollowerKeepsARefusalWithoutAJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		const server, token = "https://api:6443", "k8s_api_token=first\n"
		o.run(t, settings.Role{Accept: judge()}, []step{
			{"the first", api + token, 1, 1400, server, "first", ""},
			{"a refused setting", api + token + "mtu=1300\n", 1, 1400, server, "first", ""},
			{"another one beside it", api + token + "mtu=1300\nconntrack_zone=5\n", 1, 1400, server, "first", ""},
			{"a third value of that", api + token + "mtu=1300\nconntrack_zone=6\n", 1, 1400, server, "first", ""},
			{"an invalid one", api + token + "mtu=1300\nconntrack_zone=x\n", 1, 1400, server, "first", ""},
			{"another token", api + "k8s_api_token=second\nmtu=1300\nconntrack_zone=6\n", 1, 1400, server, "second", ""},
			{"not the refused one", api + "k8s_api_token=second\nconntrack_zone=6\n", 2, 1400, server, "second", ""},
			{"one that was not refused", api + "k8s_api_token=second\nmtu=1200\nconntrack_zone=6\n", 3, 1200, server, "second", ""},
		})
		if n := o.count("keeping the former configuration: nodes have another MTU"); n != 2 { // again after the invalid one
			t.Errorf("%d lines:\n%s", n, &o.out)
		}
		o.run(t, settings.Role{Accept: judge()}, []step{
			{"the first", api + token, 1, 1400, server, "first", ""},
			{"a refused setting, and one that the role does not read", api + token + "mtu=1300\ncni_timeout=90s\n", 1, 1400, server, "first", ""},
			{"not the refused one", api + token + "cni_timeout=90s\nconntrack_zone=5\n", 2, 1400, server, "first", ""},
		})
	})
}

// judge returns a Role.Accept: it refuses an MTU once, and then cannot judge.
func judge() func(config.Config) error {
	judges := make(chan bool, 1)
	judges <- true
	return func(c config.Config) error {
		switch {
		case !<-judges:
			judges <- false
			return settings.ErrUndecided
		case c.MTU == 1300:
			judges <- false // from now on
			return errors.New("nodes have another MTU")
		}
		judges <- true
		return nil
	}
}

const api = "k8s_api_server=https://api:6443\n"

// A step is a text of the configuration file, and what a role serves with then: the number of its sessions so far, and the
// settings of the last one.
type step struct {
	what, text string
	sessions   int
	mtu        int
	server     string
	token, ca  string
}

// run serves with the texts of steps, each for some time.
func (o *oneRole) run(t *testing.T, r settings.Role, steps []step) {
	t.Helper()
	var sessions []settings.Session
	r.Serve = func(ctx context.Context, s settings.Session, ready func()) error {
		ready()
		sessions = append(sessions, s)
		<-ctx.Done()
		return ctx.Err()
	}
	f := o.follower(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	o.write(t, steps[0].text)
	go func() { ended <- f.Run(ctx, func() {}) }()
	time.Sleep(time.Second / 2)
	for _, want := range steps {
		o.write(t, want.text)
		time.Sleep(time.Minute)
		synctest.Wait()
		last := sessions[len(sessions)-1]
		c := last.Config
		if got := (step{want.what, want.text, len(sessions), c.MTU, c.APIServer, last.Token(), c.APICAFile}); got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// While a role refuses settings, the API server and the credentials for it are followed: former ones end, and without
// others no role could serve at all.
func TestFollowerRenewsCredentialsBesideRefusedSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		accept := func(c config.Config) error {
			if c.MTU == 1300 {
				return errors.New("nodes have another MTU")
			}
			return nil
		}
		const server = "https://api:6443"
		o.run(t, settings.Role{Accept: accept}, []step{
			{"the first", api + "k8s_api_token=first\n", 1, 1400, server, "first", ""},
			{"a refused setting", api + "mtu=1300\nk8s_api_token=first\n", 1, 1400, server, "first", ""},
			{"another token", api + "mtu=1300\nk8s_api_token=second\n", 1, 1400, server, "second", ""},
			{"another CA", api + "mtu=1300\nk8s_api_token=second\nk8s_ca_certificate=/ca.crt\n", 2, 1400, server, "second", "/ca.crt"},
			{"a setting that is accepted", api + "mtu=1200\nk8s_api_token=third\nk8s_ca_certificate=/ca.crt\n", 3, 1200, server, "third", "/ca.crt"},
		})
		if n := o.count("keeping the former configuration"); n != 1 {
			t.Errorf("%d lines:\n%s", n, &o.out)
		}
		if n := o.count("setting k8s-ca-certificate: now"); n != 1 || o.count("setting mtu") != 1 {
			t.Errorf("%d lines about the CA:\n%s", n, &o.out)
		}
	})
}

// The same while another setting is invalid. If one of the API server's is, all of these stay: a new token may be for a new
// address.
func TestFollowerRenewsCredentialsBesideInvalidSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o oneRole
		check := func(c config.Config) error {
			if c.APIServer == "" {
				return config.ErrNoAPIServer
			}
			return nil
		}
		const server, other = "https://api:6443", "https://other:6443"
		o.run(t, settings.Role{Check: check}, []step{
			{"the first", api + "k8s_api_token=first\n", 1, 1400, server, "first", ""},
			{"a typo", api + "mtu=14oo\nk8s_api_token=first\n", 1, 1400, server, "first", ""},
			{"another token", api + "mtu=14oo\nk8s_api_token=second\n", 1, 1400, server, "second", ""},
			{"another CA", api + "mtu=14oo\nk8s_api_token=second\nk8s_ca_certificate=/ca.crt\n", 2, 1400, server, "second", "/ca.crt"},
			{"no address", "mtu=14oo\nk8s_api_token=third\n", 2, 1400, server, "second", "/ca.crt"},
			{"half a line", api + "mtu=14oo\nk8s_api_token=third\nk8s", 2, 1400, server, "second", "/ca.crt"},
			{"another server", "k8s_api_server=" + other + "\nmtu=14oo\nk8s_api_token=third\n", 3, 1400, other, "third", ""},
		})
		if n := o.count(`keeping the former configuration: bad mtu \"14oo\"`); n != 2 { // again after half a line
			t.Errorf("%d lines about the MTU:\n%s", n, &o.out)
		}
		o.out.Reset()
		o.run(t, settings.Role{}, []step{
			{"the first", api + "k8s_api_token=first\n", 1, 1400, server, "first", ""},
			{"a typo in the address", "k8s_api_server=https://user@api:6443\nk8s_api_token=second\n", 1, 1400, server, "first", ""},
			{"a damaged CA", api + "k8s_ca_certificate=-----BEGIN\nk8s_api_token=second\n", 1, 1400, server, "first", ""},
			{"a private key as CA", api + "k8s_ca_certificate=-----BEGIN PRIVATE KEY-----\\n-----END PRIVATE KEY-----\nk8s_api_token=second\n", 1, 1400, server, "first", ""},
			{"a token with a space", api + "k8s_api_token=sec ond\nmtu=1300\n", 1, 1400, server, "first", ""},
			{"none", api + "k8s_api_token=second\nmtu=1300\n", 2, 1300, server, "second", ""},
		})
		if n := o.count("keeping the former configuration: bad k8s-"); n != 4 {
			t.Errorf("%d lines:\n%s", n, &o.out)
		}
	})
}
