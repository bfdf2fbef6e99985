package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"ovn-k8s/test/probe"
	"ovn-k8s/test/world"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// listen accepts connections on a port of the host outside until the end of the test.
func listen(t *testing.T, port int, cert *tls.Config) net.Listener {
	t.Helper()
	var l net.Listener
	if err := probe.In(cluster.Outside.Netns(), func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprint(":", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if cert != nil {
		l = tls.NewListener(l, cert)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// relayed are connections to a database by a relay.
type relayed struct {
	mu    sync.Mutex
	conns int
	last  int64 // serial of the last client certificate
}

func (r *relayed) serial() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// relay connects clients of a listener with a database.
func (r *relayed) relay(l net.Listener, db string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			if t, ok := c.(*tls.Conn); ok {
				if t.Handshake() != nil {
					return
				}
				r.mu.Lock()
				for _, c := range t.ConnectionState().PeerCertificates[:1] {
					r.last = c.SerialNumber.Int64()
				}
				r.mu.Unlock()
			}
			server, err := net.Dial("unix", strings.TrimPrefix(db, "unix:"))
			if err != nil {
				return
			}
			defer server.Close()
			r.mu.Lock()
			r.conns++
			r.mu.Unlock()
			go func() {
				_, _ = io.Copy(server, c)
				_ = server.Close()
			}()
			_, _ = io.Copy(c, server)
		}()
	}
}

// serveDB relays connections from the host outside to a database.
func serveDB(t *testing.T, port int, cert *tls.Config, db string) *relayed {
	t.Helper()
	r := &relayed{}
	go r.relay(listen(t, port, cert), db)
	return r
}

// serveSocket relays connections from a socket of the master, and succeeds when there was one.
func serveSocket(t *testing.T, n *world.Node, path string) func() string {
	t.Helper()
	l, err := net.Listen("unix", n.Path(path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	r := &relayed{}
	go r.relay(l, cluster.Central.NB)
	return func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.conns == 0 {
			return "no connection"
		}
		return ""
	}
}

// A recorder has the requests to the API server.
type recorder struct {
	mu      sync.Mutex
	seen    map[[2]string]bool // by program and token; "" is any token
	watches map[string]int     // open ones of all objects of a kind, by resource
	also    *recorder
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = map[[2]string]bool{}
}

func (r *recorder) record(q *http.Request) {
	if r.also != nil {
		r.also.record(q)
	}
	program, _, _ := strings.Cut(q.UserAgent(), "/")
	token := strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[[2]string{program, token}], r.seen[[2]string{program, ""}] = true, true
}

// watching counts an open watch until done is called. The CNI plugin's are of single pods.
func (r *recorder) watching(q *http.Request) (done func()) {
	resource := path.Base(q.URL.Path)
	if q.URL.Query().Get("watch") == "" || strings.HasPrefix(q.UserAgent(), "ovn-k8s-cni-overlay") {
		return func() {}
	}
	add := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watches[resource] += n
	}
	add(1)
	return func() { add(-1) }
}

// watched counts the open watches by resource.
func (r *recorder) watched() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := maps.Clone(r.watches)
	maps.DeleteFunc(all, func(_ string, n int) bool { return n == 0 })
	return all
}

func (r *recorder) missing(program, token string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[[2]string{program, token}] {
		return ""
	}
	var all []string
	for k := range r.seen {
		all = append(all, k[0])
	}
	return fmt.Sprintf("no request of %s with this token; requests of %q", program, all)
}

// serveAPI is a proxy of the API server on the host outside.
func serveAPI(t *testing.T, port int, cert *tls.Config) *recorder {
	t.Helper()
	r := &recorder{seen: map[[2]string]bool{}, watches: map[string]int{}}
	to, err := url.Parse(cluster.Kube.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	if proxy.Transport, err = rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: cluster.Kube.CAFile}}); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.record(q)
		defer r.watching(q)()
		proxy.ServeHTTP(w, q)
	})}
	go func() { _ = server.Serve(listen(t, port, cert)) }()
	t.Cleanup(func() { _ = server.Close() })
	return r
}

// An authority makes certificates, and files with them by name.
type authority struct {
	t     *testing.T
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	files map[string][]byte
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, files: map[string][]byte{}}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "follow"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.issue(a.cert, "follow-ca")
	return a
}

// issue signs a certificate with a new key, and makes NAME.crt and NAME.key.
func (a *authority) issue(c *x509.Certificate, name string) *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if signer == nil {
		signer = key
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.files[name+".crt"] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	a.files[name+".key"] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})
	return key
}

// client makes a client's certificate with a serial number.
func (a *authority) client(name string, serial int64) {
	a.issue(&x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}}, name)
}

// server returns the configuration of a server that asks for certificates of clients.
func (a *authority) server(at netip.Addr) *tls.Config {
	a.t.Helper()
	a.issue(&x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, IPAddresses: []net.IP{at.AsSlice()}}, "follow-server")
	pair, err := tls.X509KeyPair(a.files["follow-server.crt"], a.files["follow-server.key"])
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert}
}
