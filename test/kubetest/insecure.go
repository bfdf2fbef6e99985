package kubetest

import (
	"net/http"
	"net/http/httputil"
	"net/url"

	"k8s.io/client-go/rest"
)

// Insecure returns a handler with the API for everybody who connects, with the administrator's rights, as API servers once
// had it at http://HOST:8080.
func (c *Cluster) Insecure() (http.Handler, error) {
	server, err := url.Parse(c.URL)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(c.Config())
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Header.Del("Authorization")
			r.SetURL(server)
		},
		Transport:     transport,
		FlushInterval: -1, // events of watches at once
	}, nil
}
