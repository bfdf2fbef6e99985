package kube

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
)

// Roles share informers until the API server or the credentials change.
func TestShare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	ca := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ca("one")
	share := Share()
	before := share(&rest.Config{Host: "https://192.0.2.1"})
	for _, next := range []struct {
		what   string
		config *rest.Config
	}{
		{"token", &rest.Config{Host: "https://192.0.2.1", BearerToken: "one"}},
		{"another token", &rest.Config{Host: "https://192.0.2.1", BearerToken: "two"}},
		{"certificate", &rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("one"), KeyData: []byte("one")}}},
		{"another key", &rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CertData: []byte("one"), KeyData: []byte("two")}}},
		{"CA file", &rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CAFile: file}}},
		{"another CA in the file", &rest.Config{Host: "https://192.0.2.1", TLSClientConfig: rest.TLSClientConfig{CAFile: file}}},
		{"token in memory", &rest.Config{Host: "https://192.0.2.1", WrapTransport: func(t http.RoundTripper) http.RoundTripper { return t }}},
		{"proxy", &rest.Config{Host: "https://192.0.2.1", Proxy: http.ProxyURL(&url.URL{Host: "192.0.2.2"})}},
	} {
		if next.what == "another CA in the file" {
			ca("two")
		}
		now, again := share(next.config), share(rest.CopyConfig(next.config))
		if now == before || again != now {
			t.Errorf("%s: new informers %t, shared %t", next.what, now != before, again == now)
		}
		before = now
	}
}
