package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A pki is a directory of certificates and keys. Existing files are kept, so a
// restarted cluster trusts its old clients.
type pki struct{ dir string }

// An authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// A subject is the subject of a certificate.
type subject struct {
	file, name string
	groups     []string
	hosts      []string // names and addresses
}

func (p pki) path(name string) string { return filepath.Join(p.dir, name) }

// certificates creates all certificates, the administrator's token and the
// kubeconfigs.
func (c *Cluster) certificates() error {
	c.pki = pki{dir: filepath.Join(c.opts.Dir, "pki")}
	if err := os.MkdirAll(c.pki.dir, 0o700); err != nil {
		return err
	}
	ca, err := c.pki.authority("ca")
	if err != nil {
		return err
	}
	front, err := c.pki.authority("front-ca")
	if err != nil {
		return err
	}
	for _, s := range []subject{
		{file: "apiserver", name: "kube-apiserver", hosts: c.serverNames()},
		{file: "kubelet-client", name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{file: "admin", name: "admin", groups: []string{"system:masters"}},
		{file: "controller-manager", name: "system:kube-controller-manager"},
		{file: "scheduler", name: "system:kube-scheduler"},
	} {
		if err := c.pki.issue(ca, s); err != nil {
			return err
		}
	}
	if err := c.pki.issue(front, subject{file: "front-proxy", name: "front-proxy-client"}); err != nil {
		return err
	}
	if _, err := c.pki.key("sa.key"); err != nil {
		return err
	}
	if c.Token, err = c.pki.token(); err != nil {
		return err
	}
	for _, name := range []string{"admin", "controller-manager", "scheduler"} {
		if err := c.writeKubeconfig(name); err != nil {
			return err
		}
	}
	return nil
}

// serverNames returns the names and addresses of the API server's certificate.
func (c *Cluster) serverNames() []string {
	names := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local",
		"127.0.0.1", "::1", c.opts.Bind.String(), c.opts.Advertise.String(),
	}
	for _, p := range c.opts.ServiceCIDRs {
		names = append(names, p.Masked().Addr().Next().String()) // the Service "kubernetes"
	}
	return append(names, c.opts.Names...)
}

// token returns the administrator's token. It is created once.
func (p pki) token() (string, error) {
	file := p.path("tokens.csv")
	text, err := os.ReadFile(file)
	if err == nil {
		token, _, _ := strings.Cut(string(text), ",")
		return token, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token := rand.Text()
	line := token + `,token-admin,token-admin,"system:masters"` + "\n"
	return token, os.WriteFile(file, []byte(line), 0o600)
}

func (p pki) authority(name string) (*authority, error) {
	key, err := p.key(name + ".key")
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	cert, err := p.certificate(name+".crt", template, &authority{cert: template, key: key}, key)
	return &authority{cert: cert, key: key}, err
}

func (p pki) issue(ca *authority, s subject) error {
	key, err := p.key(s.file + ".key")
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.name, Organization: s.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range s.hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	_, err = p.certificate(s.file+".crt", template, ca, key)
	return err
}

// certificate reads a certificate, or signs a new one.
func (p pki) certificate(file string, template *x509.Certificate, ca *authority, key crypto.Signer) (*x509.Certificate, error) {
	if der, err := readPEM(p.path(file)); err == nil {
		return x509.ParseCertificate(der)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(10, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("signing %s: %w", file, err)
	}
	if err := writePEM(p.path(file), "CERTIFICATE", der); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// key reads a private key, or creates one.
func (p pki) key(file string) (crypto.Signer, error) {
	if der, err := readPEM(p.path(file)); err == nil {
		key, err := x509.ParseECPrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		return key, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(p.path(file), "EC PRIVATE KEY", der)
}

func readPEM(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("reading %s: no PEM block", file)
	}
	return block.Bytes, nil
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// writeKubeconfig writes the kubeconfig for the certificate with this name.
func (c *Cluster) writeKubeconfig(name string) error {
	ca, err := os.ReadFile(c.pki.path("ca.crt"))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(c.pki.path(name + ".crt"))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.pki.path(name + ".key"))
	if err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: name}
	config.CurrentContext = "test"
	return clientcmd.WriteToFile(*config, filepath.Join(c.opts.Dir, name+".kubeconfig"))
}
