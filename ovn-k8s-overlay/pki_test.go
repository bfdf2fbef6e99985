package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A pki is a certificate authority with its files.
type pki struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	next int64
}

// authority makes one, with the file ca.crt.
func authority(t *testing.T, name string) *pki {
	t.Helper()
	p := &pki{t: t, dir: t.TempDir()}
	p.key = p.newKey()
	p.cert = &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	p.sign(p.cert, p.cert, p.key, "ca.crt")
	return p
}

// issue makes NAME.key and NAME.crt.
func (p *pki) issue(name string) {
	p.t.Helper()
	key := p.newKey()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(name+".key", "PRIVATE KEY", der)
	p.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}}, p.cert, key, name+".crt")
}

func (p *pki) newKey() *ecdsa.PrivateKey {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	return key
}

func (p *pki) sign(cert, parent *x509.Certificate, key *ecdsa.PrivateKey, file string) {
	p.t.Helper()
	p.next++
	cert.SerialNumber = big.NewInt(p.next)
	cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, p.key)
	if err != nil {
		p.t.Fatal(err)
	}
	p.write(file, "CERTIFICATE", der)
}

func (p *pki) write(file, kind string, der []byte) {
	p.t.Helper()
	if err := os.WriteFile(p.path(file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// path is a file of the authority.
func (p *pki) path(file string) string { return filepath.Join(p.dir, file) }

// copy copies a file of the authority.
func (p *pki) copy(file, to string) {
	p.t.Helper()
	text, err := os.ReadFile(p.path(file))
	if err == nil {
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}
