// Package client connects to the Kubernetes API server with what the suite's
// configuration says, and waits for single pods.
//
// It is a package of its own, without the typed clients and informers of
// lib/kube, because every pod start pays for what the CNI plugin links in: with
// them a process takes 7 ms to start and end and its file 70 MB, without 3 ms
// and 15 MB.
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

// A Config says how to reach the API server.
type Config struct {
	// Server is the server's URL, as in "https://10.0.0.1:6443".
	Server string
	// Token returns the bearer token as it is now, "" meaning none. It is asked
	// before every request, so that a token may change at any time. nil means
	// to use TokenFile.
	Token func() string
	// TokenFile holds the bearer token. It is read again as it changes. "" means
	// no token.
	TokenFile string
	// CA holds the certificates, in PEM, that vouch for an https server. Empty
	// means to use CAFile.
	CA []byte
	// CAFile is a file like CA. "" means the certificates that the system trusts.
	CAFile string
	// UserAgent names the program to the server.
	UserAgent string
}

// FromConfig takes from the suite's configuration what a Config needs. A token
// of the configuration is taken as it is now: a daemon sets Token to a function
// that follows the database.
func FromConfig(c config.Config, userAgent string) Config {
	out := Config{Server: c.APIServer, TokenFile: c.APITokenFile, CA: []byte(c.APICA), CAFile: c.APICAFile, UserAgent: userAgent}
	if c.APIToken != "" {
		out.Token = c.APIToken.Reveal
	}
	return out
}

// REST is c for client-go. The client limits nothing by itself: the server
// knows better how much it can take (API priority and fairness). An error names
// the setting that is wrong.
func (c Config) REST() (*rest.Config, error) {
	if c.Server == "" {
		return nil, config.ErrNoAPIServer
	}
	cfg := &rest.Config{
		Host: c.Server, UserAgent: c.UserAgent, QPS: -1,
		// the plugin's output belongs to the runtime, and a daemon's to its log
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

// authorities returns the PEM of the trusted certificates, nil meaning those of
// the system.
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
