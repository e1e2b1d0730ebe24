// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// listenSecrets are the flags that protect the listeners, with the names that "moonloop simulate" has for them.
type listenSecrets struct {
	cert, key, clientCA string // PEM files
	keyEnv, keyFile     string // of the bearer key
}

func (l *listenSecrets) register(fs *pflag.FlagSet) {
	add(fs, &l.cert, "tls-cert", "", aPEMFile)
	add(fs, &l.key, "tls-key", "", aPEMFile)
	add(fs, &l.clientCA, "client-ca", "", aPEMFile)
	add(fs, &l.keyEnv, "api-key-env", "", aVariable)
	add(fs, &l.keyFile, "api-key-file", "", aFile)
}

// check reads all files once, so that errors are reported before anything else happens, and returns the bearer key.
func (l *listenSecrets) check(ctx context.Context) (token string, notices []string, err error) {
	var errs []error
	pair, err := unlessInterrupted(ctx, func() (*tls.Certificate, error) {
		return tlsfile.Pair(tlsfile.File{From: "--tls-cert", Name: l.cert}, tlsfile.File{From: "--tls-key", Name: l.key})
	}, l.cert, l.key)
	errs = append(errs, err)
	if l.clientCA != "" {
		_, err := unlessInterrupted(ctx, func() (*x509.CertPool, error) {
			return tlsfile.Pool(tlsfile.File{From: "--client-ca", Name: l.clientCA})
		}, l.clientCA)
		errs = append(errs, err)
		if pair == nil && err == nil && l.cert == "" {
			errs = append(errs, errors.New("--client-ca: senders show their certificates only to a listener with TLS; give --tls-cert and --tls-key, too"))
		}
	}
	token, err = readKey(ctx, apiKey, l.keyEnv, l.keyFile)
	errs = append(errs, err)
	for _, text := range exposure([2]string{"--tls-key", l.key}, [2]string{"--api-key-file", l.keyFile}) {
		notices = append(notices, "warning: "+text)
	}
	return token, notices, errors.Join(errs...)
}

// missing describes what the listeners lack for networks other than this machine's own.
func (l *listenSecrets) missing() string {
	var lacks []string
	if l.cert == "" {
		lacks = append(lacks, "unencrypted (--tls-cert, --tls-key)")
	}
	if l.clientCA == "" && l.keyEnv == "" && l.keyFile == "" {
		lacks = append(lacks, "without a key (--api-key-file)")
	}
	return strings.Join(lacks, " and ")
}

// checkListen checks an address to listen on, without using it. The notice is for addresses that other machines can reach: these must be
// given explicitly, so an empty host is refused. missing describes the protection that the listener lacks.
func checkListen(flag, address, missing string) (notice string, err error) {
	host, _, err := net.SplitHostPort(address)
	switch {
	case address == "": // not used
		return "", nil
	case err != nil:
		return "", fmt.Errorf("--%s %q: want host:port, such as 127.0.0.1:4317", flag, address)
	case host == "":
		return "", hintError{
			fmt.Errorf("--%s %q would listen on every network of this machine", flag, address),
			fmt.Sprintf("--%s 127.0.0.1%s, or --%s 0.0.0.0%s to let other machines send", flag, address, flag, address),
		}
	case isLoopback(host), missing == "":
		return "", nil
	}
	return fmt.Sprintf("warning: other machines can send telemetry to %s, %s", address, missing), nil
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
