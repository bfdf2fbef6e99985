package ovsdb_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ovn-k8s/lib/ovsdb"
	"ovn-k8s/test/require"
)

// pki makes an authority and certificates as described in the OVS documentation, and returns its directory.
func pki(t *testing.T, names ...string) string {
	t.Helper()
	missing := ""
	if _, err := exec.LookPath("ovs-pki"); err != nil {
		missing = "ovs-pki"
	}
	require.Nothing(t, require.Central, missing)
	dir := t.TempDir()
	ovspki := func(args ...string) {
		t.Helper()
		cmd := exec.Command("ovs-pki", append([]string{"--dir=" + dir + "/pki", "--log=" + dir + "/log", "--force"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ovs-pki %q: %v\n%s", args, err, out)
		}
	}
	ovspki("init")
	for _, n := range names {
		ovspki("req+sign", n)
	}
	return dir
}

func cacert(dir string) string { return dir + "/pki/switchca/cacert.pem" }

func files(dir, name string) ovsdb.Files {
	return ovsdb.Files{PrivateKey: dir + "/" + name + "-privkey.pem", Certificate: dir + "/" + name + "-cert.pem", CACert: dir + "/saved-ca.pem"}
}

// sslServer starts an ovsdb-server with clients of one authority.
func sslServer(t *testing.T, dir, ca string) (remote string) {
	t.Helper()
	port := freePort(t)
	newServer(t, nbSchema, "--remote=pssl:"+port+":127.0.0.1",
		"--private-key="+dir+"/server-privkey.pem", "--certificate="+dir+"/server-cert.pem", "--ca-cert="+ca)
	return "ssl:127.0.0.1:" + port
}

func TestCheck8_MissingKeyOrCertificate(t *testing.T) {
	dir := t.TempDir()
	f := files(dir, "x")
	try := func() string {
		_, err := ovsdb.TLSConfig(t.Context(), f, []string{"ssl:127.0.0.1:1"}, os.Stderr)
		if err == nil {
			return ""
		}
		return err.Error()
	}
	if got, want := try(), "No private key "+f.PrivateKey+" found"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(f.PrivateKey, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := try(), "No certificate "+f.Certificate+" found"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.WriteFile(f.Certificate, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := try(), "reading certificate "+f.Certificate+" and private key "+f.PrivateKey+": "; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q…", got, want)
	}
}

func TestTLSConfigWithoutSSL(t *testing.T) {
	c, err := ovsdb.TLSConfig(t.Context(), ovsdb.Files{}, []string{"tcp:127.0.0.1:1", "unix:/x"}, os.Stderr)
	if c != nil || err != nil {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestCheck9_Bootstrap(t *testing.T) {
	dir := pki(t, "server", "client")
	remote := sslServer(t, dir, cacert(dir))
	f := files(dir, "client")
	connect := func() (string, error) {
		var out bytes.Buffer
		config, err := ovsdb.TLSConfig(t.Context(), f, []string{remote}, &out)
		if err != nil {
			return out.String(), err
		}
		o := options(t, remote)
		o.TLS = config
		db, err := ovsdb.Open(t.Context(), o)
		if err != nil {
			return out.String(), err
		}
		defer db.Close()
		return out.String(), addSwitch(t, db, "a")
	}
	out, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("No CA certificate found. Attempting bootstrapping...\nBootstrapping successful. Continuing...\n", out); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	info, err := os.Stat(f.CACert)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	if left, _ := filepath.Glob(dir + "/.ca-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if out, err := connect(); out != "" || err != nil {
		t.Errorf("the second time: %q, %v", out, err)
	}
}

func TestBootstrapFails(t *testing.T) {
	dir := pki(t, "client")
	f := files(dir, "client")
	remote := "ssl:127.0.0.1:" + freePort(t)
	var out bytes.Buffer
	_, err := ovsdb.TLSConfig(t.Context(), f, []string{remote}, &out)
	if want := "Bootstapping OVN NB's certificate failed: " + remote; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %s…", err, want)
	}
	if _, err := os.Stat(f.CACert); err == nil {
		t.Error("a CA certificate was saved")
	}
}

// Certificates of another authority give one clear line, whether the client or the server refuses.
func TestWrongCertificates(t *testing.T) {
	ours, theirs := pki(t, "server", "client"), pki(t, "client")
	remote := sslServer(t, ours, cacert(ours))
	open := func(f ovsdb.Files) string {
		t.Helper()
		config, err := ovsdb.TLSConfig(t.Context(), f, []string{remote}, os.Stderr)
		if err != nil {
			t.Fatal(err)
		}
		o := options(t, remote)
		o.TLS = config
		db, err := ovsdb.Open(context.Background(), o)
		if err == nil {
			db.Close()
			return ""
		}
		return err.Error()
	}
	f := files(ours, "client")
	f.CACert = cacert(theirs)
	if got, want := open(f), "connecting to NB at "+remote+": the server's certificate does not fit the CA certificate "+f.CACert+": x509: certificate signed by unknown authority"; !strings.HasPrefix(got, want) {
		t.Errorf("the server's:\n got %s\nwant %s", got, want)
	}
	f = files(theirs, "client")
	f.CACert = cacert(ours)
	if got, want := open(f), "connecting to NB at "+remote+": the server refuses this host's certificate: remote error: tls: "; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
		t.Errorf("ours:\n got %s\nwant %s…", got, want)
	}
}

// A running daemon follows corrected files: they are read for each connection.
func TestCorrectedCertificates(t *testing.T) {
	ours, theirs := pki(t, "server", "client"), pki(t, "client")
	remote := sslServer(t, ours, cacert(ours))
	f := files(t.TempDir(), "client")
	replace := func(dir, ca string) {
		t.Helper()
		from := files(dir, "client")
		for to, from := range map[string]string{f.PrivateKey: from.PrivateKey, f.Certificate: from.Certificate, f.CACert: ca} {
			text, err := os.ReadFile(from)
			if err == nil {
				err = os.WriteFile(to, text, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	replace(theirs, cacert(theirs))
	o := options(t, remote)
	var err error
	if o.TLS, err = ovsdb.TLSConfig(t.Context(), f, []string{remote}, os.Stderr); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what, dir, ca string
		works         bool
	}{
		{"another CA", theirs, cacert(theirs), false},
		{"the CA corrected", theirs, cacert(ours), false},
		{"the certificate, too", ours, cacert(ours), true},
		{"another CA again", ours, cacert(theirs), false},
	} {
		replace(step.dir, step.ca)
		db, err := ovsdb.Open(t.Context(), o)
		if err == nil {
			db.Close()
		}
		if works := err == nil; works != step.works {
			t.Errorf("%s: %v", step.what, err)
		}
	}
}
