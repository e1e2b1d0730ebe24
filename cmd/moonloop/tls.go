// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// clientTLS builds the TLS configuration of the client's flags; nil when none is given: then the system's
// authorities are trusted.
func clientTLS(ca, cert, key string, insecure bool) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" && !insecure {
		return nil, nil //nolint:nilnil // no TLS configuration is a valid one
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure} //nolint:gosec // only when asked for
	if ca != "" {
		pem, err := os.ReadFile(ca) //nolint:gosec // the user names the file
		if err != nil {
			return nil, fmt.Errorf("ca file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca file %s: it holds no PEM certificate", ca)
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("client certificate: --cert-file and --key-file go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
