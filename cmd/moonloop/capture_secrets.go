// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// listenSecrets are the flags that guard what is listened on, by the names that "moonloop simulate" has for them.
type listenSecrets struct {
	cert, key, clientCA string // PEM files
	keyEnv, keyFile     string // of the bearer key
}

func (l *listenSecrets) register(fs *pflag.FlagSet) {
	fs.StringVar(&l.cert, "tls-cert", "", "PEM `FILE` of the server's certificate chain")
	fs.StringVar(&l.key, "tls-key", "", "PEM `FILE` of the server's private key")
	fs.StringVar(&l.clientCA, "client-ca", "", "PEM `FILE` of the authorities that must have issued the senders' certificates")
	fs.StringVar(&l.keyEnv, "api-key-env", "", "name of the environment `VARIABLE` that holds the bearer key that senders must present")
	fs.StringVar(&l.keyFile, "api-key-file", "", "`FILE` that holds the bearer key that senders must present")
}

// check reads everything once, so that what is wrong is said before there is anything else, and returns the bearer key.
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
			errs = append(errs, errors.New("--client-ca: senders show their certificate to a listener with TLS; give --tls-cert and --tls-key, too"))
		}
	}
	token, err = readKey(ctx, l.keyEnv, l.keyFile)
	errs = append(errs, err)
	for _, text := range exposure([2]string{"--tls-key", l.key}, [2]string{"--api-key-file", l.keyFile}) {
		notices = append(notices, "warning: "+text)
	}
	return token, notices, errors.Join(errs...)
}

// missing says what the listeners lack for other networks than this machine's own.
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
