// Package client connects to the Kubernetes API server as configured, and waits for single pods.
//
// It is separate from lib/kube because every pod start pays for the packages linked into the CNI plugin: with the
// typed clients and informers, a process takes 7 ms to start and end and its file 70 MB, without them 3 ms and 15 MB.
package client

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"

	"k8s.io/client-go/rest"

	"ovn-k8s/lib/config"
)

// A Config describes the connection to the API server.
type Config struct {
	// Server is the server's URL, as in "https://10.0.0.1:6443".
	Server string
	// Token returns the current bearer token, "" meaning none. It is called before every request, so the token may
	// change at any time. If Token is nil, TokenFile is used.
	Token func() string
	// TokenFile holds the bearer token. Changes are followed. "" means no token.
	TokenFile string
	// CA holds the trusted certificates for https in PEM. If it is empty, CAFile is used.
	CA []byte
	// CAFile is a file like CA. "" means the system's certificates.
	CAFile string
	// UserAgent identifies the program to the server.
	UserAgent string
}

// FromConfig copies the API server's settings from a configuration. Its Token is fixed; a daemon sets Token to a
// function that follows the database.
func FromConfig(c config.Config, userAgent string) Config {
	out := Config{Server: c.APIServer, TokenFile: c.APITokenFile, CA: []byte(c.APICA), CAFile: c.APICAFile, UserAgent: userAgent}
	if c.APIToken != "" {
		out.Token = c.APIToken.Reveal
	}
	return out
}

// REST returns c for client-go, without client-side rate limits: the server limits requests itself (API priority and
// fairness). An error names the wrong setting.
func (c Config) REST() (*rest.Config, error) {
	if c.Server == "" {
		return nil, config.ErrNoAPIServer
	}
	cfg := &rest.Config{
		Host: c.Server, UserAgent: c.UserAgent, QPS: -1,
		// stderr of the plugin belongs to the runtime, that of a daemon to its log
		WarningHandler: rest.NoWarnings{},
	}
	if strings.HasPrefix(c.Server, "https:") {
		pem, err := c.authorities()
		if err != nil {
			return nil, err
		}
		cfg.CAData = pem
	}
	if c.Token != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bearer{c.Token, next} })
	} else {
		cfg.BearerTokenFile = c.TokenFile
	}
	return cfg, nil
}

// authorities returns the PEM of the trusted certificates, nil for the system's.
func (c Config) authorities() ([]byte, error) {
	pem := c.CA
	if len(pem) == 0 {
		if c.CAFile == "" {
			return nil, nil
		}
		var err error
		if pem, err = os.ReadFile(c.CAFile); err != nil {
			return nil, fmt.Errorf("reading the API server's CA certificate: %w", err)
		}
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, errors.New("the API server's CA certificate (k8s-ca-certificate) is not a certificate in PEM")
	}
	return pem, nil
}

// bearer adds the current token to each request.
type bearer struct {
	token func() string
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token := b.token()
	if token == "" || r.Header.Get("Authorization") != "" {
		return b.next.RoundTrip(r)
	}
	r = r.Clone(r.Context()) // a RoundTripper must not change its request
	r.Header.Set("Authorization", "Bearer "+token)
	return b.next.RoundTrip(r)
}
