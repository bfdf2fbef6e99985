package ovsdb

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ovn-k8s/lib/ovsdb/jsonrpc"
)

// alertTimeout bounds the wait for a server's alert about a certificate.
const alertTimeout = 2 * time.Second

// Files are the PEM files of an ssl: connection.
type Files struct{ PrivateKey, Certificate, CACert string }

// TLSConfig returns the configuration for remotes with ssl:, or nil without such remotes. A missing key or
// certificate is an error. A missing CA certificate is fetched from the first server that answers, saved, and
// trusted from then on, as with --bootstrap-ca-cert of OVS's programs; out gets two lines about it. The messages
// are those of the Python era: scripts may match them.
func TLSConfig(ctx context.Context, f Files, remotes []string, out io.Writer) (*tls.Config, error) {
	var servers []string
	for _, r := range remotes {
		if addr, ok := strings.CutPrefix(r, "ssl:"); ok {
			servers = append(servers, addr)
		}
	}
	if len(servers) == 0 {
		return nil, nil
	}
	if _, err := os.Stat(f.PrivateKey); err != nil {
		//lint:ignore ST1005 the original's text
		return nil, fmt.Errorf("No private key %s found", f.PrivateKey)
	}
	if _, err := os.Stat(f.Certificate); err != nil {
		//lint:ignore ST1005 the original's text
		return nil, fmt.Errorf("No certificate %s found", f.Certificate)
	}
	if _, err := f.keyPair(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(f.CACert); errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(out, "No CA certificate found. Attempting bootstrapping...")
		if err := f.bootstrap(ctx, servers); err != nil {
			//lint:ignore ST1005 the original's text
			return nil, fmt.Errorf("Bootstapping OVN NB's certificate failed: %w", err)
		}
		fmt.Fprintln(out, "Bootstrapping successful. Continuing...")
	}
	if _, err := f.roots(); err != nil {
		return nil, err
	}
	return f.config(), nil
}

// config reads the files again for each connection, to follow renewed certificates.
func (f Files) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Not Certificates: a client sends none of these if the server asks for another CA, and the server's alert
		// would mislead.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.keyPair() },
		// The names in OVS's certificates are arbitrary, not addresses; OVS trusts each certificate signed by its CA
		// (ovsdb(7), "OVSDB Connection Methods"). So VerifyConnection verifies the chain, and the host's name is not
		// verified.
		InsecureSkipVerify: true,
		VerifyConnection:   f.verify,
	}
}

func (f Files) keyPair() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("reading certificate %s and private key %s: %w", f.Certificate, f.PrivateKey, err)
	}
	return &pair, nil
}

func (f Files) roots() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.CACert)
	if err != nil {
		return nil, fmt.Errorf("reading the CA certificate: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("reading the CA certificate: no certificate in %s", f.CACert)
	}
	return roots, nil
}

// verify checks that the CA signed the peer's certificate.
func (f Files) verify(s tls.ConnectionState) error {
	roots, err := f.roots()
	if err != nil {
		return err
	}
	if err := verifyChain(s.PeerCertificates, roots); err != nil {
		return fmt.Errorf("the server's certificate does not fit the CA certificate %s: %w", f.CACert, err)
	}
	return nil
}

func verifyChain(chain []*x509.Certificate, roots *x509.CertPool) error {
	others := x509.NewCertPool()
	for _, c := range chain[1:] {
		others.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others})
	return err
}

// bootstrap saves the CA certificate of the first server that answers.
func (f Files) bootstrap(ctx context.Context, servers []string) error {
	var errs []error
	for _, addr := range servers {
		ca, err := f.peerCA(ctx, addr)
		if err == nil {
			return f.save(ca)
		}
		errs = append(errs, fmt.Errorf("ssl:%s: %w", addr, err))
	}
	return errors.Join(errs...)
}

// peerCA connects to a server and returns the self-signed certificate at the
// end of its chain (compare do_ca_cert_bootstrap in OVS's stream-ssl.c).
func (f Files) peerCA(ctx context.Context, addr string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	config := f.config()
	config.VerifyConnection = nil
	nc, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	chain := nc.(*tls.Conn).ConnectionState().PeerCertificates
	ca := chain[len(chain)-1]
	if !bytes.Equal(ca.RawIssuer, ca.RawSubject) {
		return nil, fmt.Errorf("the server does not send its CA certificate, only one of %q signed by %q", ca.Subject, ca.Issuer)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	if err := verifyChain(chain, roots); err != nil {
		return nil, err
	}
	return ca, nil
}

// save writes the CA certificate atomically.
func (f Files) save(ca *x509.Certificate) error {
	if err := os.MkdirAll(filepath.Dir(f.CACert), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.CACert), ".ca-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	defer tmp.Close()
	if err := pem.Encode(tmp, &pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw}); err != nil {
		return err
	}
	if err := errors.Join(tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), f.CACert)
}

// explainTLS connects once more to learn the reason of a TLS failure, or returns nil. A server refuses the client's
// certificate only after the client believes to be connected (RFC 8446 section 2). Data sent by libovsdb then may
// turn the server's alert into a reset connection, so this function only listens, for alertTimeout.
func explainTLS(ctx context.Context, addr string, config *tls.Config) error {
	nc, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		if why := jsonrpc.NetworkError(err); why != nil {
			return why
		}
		return err
	}
	defer nc.Close()
	if err := nc.SetReadDeadline(time.Now().Add(alertTimeout)); err != nil {
		return err
	}
	_, err = nc.Read(make([]byte, 1))
	var alert *net.OpError // crypto/tls returns an alert of the peer like this
	if errors.As(err, &alert) && alert.Op == "remote error" || errors.Is(err, io.EOF) {
		return fmt.Errorf("the server refuses this host's certificate: %w", err)
	}
	return nil
}
