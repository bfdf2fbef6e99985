package settings_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
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
		Serve: func(_ context.Context, _ config.Config, _ func() string, ready func()) error {
			step := steps[0]
			if steps = steps[1:]; step == nil {
				ready()
			}
			if len(steps) == 0 {
				cancel()
				return nil
			}
			return down
		},
		Log: logrus.NewEntry(log),
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

// A corrected or renewed CA certificate of the API server is followed, and half a file is not.
func TestFollowerReadsAnotherCACertificate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(text []byte) {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	first, second := certificate(t, 1), certificate(t, 2)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		served, ended := make(chan struct{}, 9), make(chan error)
		f := settings.Follower{
			Load: func(context.Context) (config.Config, error) { return config.Config{APICAFile: file}, nil },
			Serve: func(ctx context.Context, _ config.Config, _ func() string, ready func()) error {
				ready()
				served <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			},
			Log: logrus.NewEntry(logrus.New()),
		}
		write(first)
		go func() { ended <- f.Run(ctx, func() {}) }()
		<-served
		for _, step := range []struct {
			text  []byte
			again bool
		}{{first, false}, {first[:len(first)/2], false}, {nil, false}, {second, true}, {second, false}, {append(first, second...), true}} {
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
}
