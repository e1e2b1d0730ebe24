// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// clientTLS builds the TLS configuration of the client's flags; nil when none is given: then the system's
// authorities are trusted.
func clientTLS(ctx context.Context, ca, cert, key string, insecure bool) (*tls.Config, error) {
	c, err := unlessInterrupted(ctx, tlsfile.Files{
		CA: tlsfile.File{From: "--ca-file", Name: ca}, Cert: tlsfile.File{From: "--cert-file", Name: cert}, Key: tlsfile.File{From: "--key-file", Name: key},
	}.Load, ca, cert, key)
	if err != nil {
		return nil, err
	}
	if insecure {
		if ca != "" {
			return nil, errors.New("--insecure-skip-verify: it would trust any server, whatever --ca-file says; give one of the two")
		}
		if c == nil {
			c = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		c.InsecureSkipVerify = true
	}
	return c, nil
}

// exposure warns of files with secrets that others can read.
func exposure(flagsAndFiles ...[2]string) (warnings []string) {
	for _, f := range flagsAndFiles {
		if f[1] != "" && tlsfile.Exposed(f[1]) {
			warnings = append(warnings, fmt.Sprintf("%s %s: other users of this machine can read or change it; chmod 600 makes it yours alone", f[0], f[1]))
		}
	}
	return warnings
}

// checkScheme refuses TLS for a URL that has none: whoever gives both believes in an encryption that is not there. It
// warns of a key that goes over a network unencrypted.
func checkScheme(target string, c *tls.Config, key string) (warning string, err error) {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Scheme != "http": //nolint:nilerr // an unreadable URL is refused elsewhere
		return "", nil
	case c != nil:
		return "", errors.New("--ca-file, --cert-file, --key-file and --insecure-skip-verify are for URLs that begin with https://, and this one begins with http://: correct the URL, or leave them out")
	case key != "" && !isLoopback(u.Hostname()):
		return fmt.Sprintf("the API key goes to %s unencrypted: the URL begins with http://", u.Host), nil
	}
	return "", nil
}
