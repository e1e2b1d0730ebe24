// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// checkSecrets returns errors about a signal's certificates, keys and headers in the environment.
func (s signal) checkSecrets() error {
	var errs []error
	file := func(name string) tlsfile.File {
		return tlsfile.File{From: name, Name: strings.TrimSpace(os.Getenv(name))}
	}
	certs, keys, headers := s.variables("CLIENT_CERTIFICATE"), s.variables("CLIENT_KEY"), s.variables("HEADERS")
	for i, ca := range s.variables("CERTIFICATE") {
		_, err := tlsfile.Files{CA: file(ca), Cert: file(certs[i]), Key: file(keys[i])}.Load()
		_, headerErr := parseHeaders(headers[i])
		errs = append(errs, err, headerErr)
	}
	return errors.Join(errs...)
}

// parseHeaders returns the values in a variable with headers: name=value pairs, separated by commas, percent-encoded.
func parseHeaders(variable string) (values []string, err error) {
	text := strings.TrimSpace(os.Getenv(variable))
	if text == "" {
		return nil, nil
	}
	for i, pair := range strings.Split(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		decoded, decodeErr := url.PathUnescape(value)
		name = strings.TrimSpace(name)
		if !found || decodeErr != nil || !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("%s: its pair %d cannot be read; want name=value,name=value with every comma, space and percent sign of a value as %%2C, %%20 and %%25", variable, i+1)
		}
		values = append(values, strings.TrimSpace(decoded))
	}
	return values, nil
}

// otlpSecrets returns the values of headers for OTLP receivers, which must not be shown.
func otlpSecrets() (secrets []string) {
	for _, s := range []signal{traces, metrics} {
		for _, name := range s.variables("HEADERS") {
			values, _ := parseHeaders(name) // checked at the start
			for _, v := range values {
				if len(v) < 8 {
					continue // a word, not a secret
				}
				secrets = append(secrets, v)
				if _, key, found := strings.Cut(v, " "); found && len(key) >= 8 {
					secrets = append(secrets, key) // without "Bearer"
				}
			}
		}
	}
	return secrets
}
