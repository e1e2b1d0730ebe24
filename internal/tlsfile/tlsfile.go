// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package tlsfile reads certificates and keys from PEM files. If one cannot be used, the error says which one, why, and what to do: the
// errors of crypto/tls name no file. No error contains a byte of a key.
package tlsfile

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// File is a file and what named it, such as --ca-file. An empty Name means no file.
type File struct{ From, Name string }

func (f File) String() string { return f.From + " " + f.Name }

// Files are the certificates by which a client or a server proves its identity, and those that it trusts. All of them may be left out.
type Files struct {
	CA        File // certificates of authorities
	Cert, Key File // the client's or server's own certificate chain and its key: both or neither
}

// Load returns a configuration of these files; nil when there are none.
//
// Its RootCAs are the authorities of CA, or nil for the system's. A client's certificate is sent to every server that asks
// for one: a server that does not trust it then says so, instead of finding none.
func (f Files) Load() (*tls.Config, error) {
	if f.CA.Name == "" && f.Cert.Name == "" && f.Key.Name == "" {
		return nil, nil //nolint:nilnil // no TLS configuration is a valid one
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if f.CA.Name != "" {
		if c.RootCAs, err = Pool(f.CA); err != nil {
			return nil, err
		}
	}
	pair, err := Pair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	if pair != nil {
		c.Certificates = []tls.Certificate{*pair}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return c, nil
}

// Pool reads the certificates of authorities.
func Pool(f File) (*x509.CertPool, error) {
	data, err := f.read()
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s: it holds no PEM certificate; name the file with the authority's certificate", f)
	}
	return pool, nil
}

// Pair reads a certificate chain and its key; nil when neither is named. A certificate that is not valid yet or has expired is an error.
func Pair(cert, key File) (*tls.Certificate, error) {
	switch {
	case cert.Name == "" && key.Name == "":
		return nil, nil //nolint:nilnil // no certificate is a valid choice
	case key.Name == "":
		return nil, fmt.Errorf("%s without %s: a certificate is of no use without its key; give both", cert.From, key.From)
	case cert.Name == "":
		return nil, fmt.Errorf("%s without %s: a key is of no use without its certificate; give both", key.From, cert.From)
	}
	chain, err := cert.read()
	if err != nil {
		return nil, err
	}
	if block(chain, "CERTIFICATE") == nil {
		return nil, fmt.Errorf("%s: it holds no PEM certificate; name the file with the certificate, and after it the intermediate certificates", cert)
	}
	secret, err := key.read()
	if err != nil {
		return nil, err
	}
	switch b := block(secret, "PRIVATE KEY"); {
	case b == nil:
		return nil, fmt.Errorf("%s: it holds no PEM key; name the file with the certificate's private key", key)
	case strings.HasPrefix(b.Type, "ENCRYPTED"), b.Headers["DEK-Info"] != "":
		return nil, fmt.Errorf("%s: the key is encrypted, and its passphrase is not asked for; decrypt it into a separate file: openssl pkey", key)
	}
	pair, err := tls.X509KeyPair(chain, secret)
	switch {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		return nil, fmt.Errorf("%s: it is not the key of the certificate in %s; give the key that the certificate was made for", key, cert)
	case err != nil:
		return nil, fmt.Errorf("%s, %s: %w; give a certificate and its key as PEM files", cert, key, err)
	}
	switch now := time.Now(); {
	case now.After(pair.Leaf.NotAfter):
		return nil, fmt.Errorf("%s: the certificate expired on %s; give a new one", cert, day(pair.Leaf.NotAfter))
	case now.Before(pair.Leaf.NotBefore):
		return nil, fmt.Errorf("%s: the certificate is not valid before %s; is the clock of this machine right?", cert, day(pair.Leaf.NotBefore))
	}
	return &pair, nil
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// maxSize bounds a file. The bundle of all public authorities has 200 KiB.
const maxSize = 16 << 20

// read returns the file's content. The file may also be a pipe, as a shell makes for <(command).
func (f File) read() ([]byte, error) {
	file, err := os.Open(f.Name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name a PEM file that can be read", f.From, err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w; name a PEM file that can be read", f.From, err)
	case len(data) > maxSize:
		return nil, fmt.Errorf("%s: it is longer than any file of certificates; name a PEM file", f)
	}
	return data, nil
}

// block returns the first PEM block whose type ends in kind, or nil.
func block(data []byte, kind string) *pem.Block {
	for {
		var b *pem.Block
		if b, data = pem.Decode(bytes.TrimSpace(data)); b == nil || strings.HasSuffix(b.Type, kind) {
			return b
		}
	}
}

// Exposed reports whether users other than a file's owner and group can read or write it. It is false if the permissions are unknown.
func Exposed(name string) bool {
	if runtime.GOOS == "windows" { // its permissions are not in the mode
		return false
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o006 != 0
}
