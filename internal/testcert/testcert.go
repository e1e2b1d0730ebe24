// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package testcert makes certificates for tests of TLS: a certificate authority, and valid and invalid certificates that it signs. Files
// are written only to the test's temporary folder.
package testcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that nobody trusts yet. Two authorities with the same name differ only in their keys, like a real authority and an
// attacker's imitation of it.
func New(t testing.TB) *Authority {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	der := sign(t, template, template, key, key, time.Now().Add(24*time.Hour))
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert, key}
}

// Sign makes a certificate for servers and clients of these host names and addresses. It is valid for a day.
func (a *Authority) Sign(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	return a.signUntil(t, time.Now().Add(24*time.Hour), names)
}

// SignExpired makes a certificate that was valid until a day ago.
func (a *Authority) SignExpired(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	return a.signUntil(t, time.Now().Add(-24*time.Hour), names)
}

func (a *Authority) signUntil(t testing.TB, until time.Time, names []string) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "test certificate"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	key := newKey(t)
	return tls.Certificate{Certificate: [][]byte{sign(t, template, a.cert, key, a.key, until)}, PrivateKey: key}
}

// Pool returns a certificate pool with only this authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// File returns a PEM file with the authority's certificate.
func (a *Authority) File(t testing.TB) string {
	t.Helper()
	return file(t, "ca.pem", "CERTIFICATE", a.cert.Raw)
}

// Files returns PEM files with a certificate and its key, which only their owner can read.
func Files(t testing.TB, c tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "cert.pem", "CERTIFICATE", c.Certificate[0]), file(t, "key.pem", "PRIVATE KEY", der)
}

func file(t testing.TB, name, kind string, der []byte) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign returns a certificate for a key, valid for the two days that end at the time until.
func sign(t testing.TB, template, parent *x509.Certificate, owner, signer *ecdsa.PrivateKey, until time.Time) []byte {
	t.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, until.Add(-48*time.Hour), until
	der, err := x509.CreateCertificate(rand.Reader, template, parent, owner.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
