// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/moonloop/moonloop/internal/tlsfile"
)

// otlpVariables returns the names of a signal's variables with a suffix: the family's, then its own.
func (s signal) otlpVariables(suffix string) []string {
	return []string{"OTEL_EXPORTER_OTLP_" + suffix, "OTEL_EXPORTER_OTLP_" + string(s) + "_" + suffix}
}

// checkSecrets says what is wrong with the certificates, keys and headers that the environment gives a signal. The
// exporters, which read them by themselves, go on without what they cannot use, and log the value of a header.
func (s signal) checkSecrets() error {
	var errs []error
	file := func(name string) tlsfile.File {
		return tlsfile.File{From: name, Name: strings.TrimSpace(os.Getenv(name))}
	}
	certs, keys, headers := s.otlpVariables("CLIENT_CERTIFICATE"), s.otlpVariables("CLIENT_KEY"), s.otlpVariables("HEADERS")
	for i, ca := range s.otlpVariables("CERTIFICATE") {
		_, err := tlsfile.Files{CA: file(ca), Cert: file(certs[i]), Key: file(keys[i])}.Load()
		errs = append(errs, err)
		_, err = parseHeaders(headers[i])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// parseHeaders returns the values that a variable of headers holds: name=value pairs with commas between, percent-encoded.
func parseHeaders(variable string) (values []string, err error) {
	text := strings.TrimSpace(os.Getenv(variable))
	if text == "" {
		return nil, nil
	}
	for i, pair := range strings.Split(text, ",") {
		name, value, found := strings.Cut(pair, "=")
		decoded, decodeErr := url.PathUnescape(value)
		name = strings.TrimSpace(name)
		if !found || name == "" || decodeErr != nil || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r) }) {
			return nil, fmt.Errorf("%s: its pair %d cannot be read; want name=value,name=value with every comma, space and percent sign of a value as %%2C, %%20 and %%25", variable, i+1)
		}
		values = append(values, strings.TrimSpace(decoded))
	}
	return values, nil
}

// otlpSecrets returns the values of headers that go to OTLP receivers, which nobody else may see.
func otlpSecrets() (secrets []string) {
	for _, s := range []signal{traces, metrics} {
		for _, name := range s.otlpVariables("HEADERS") {
			values, _ := parseHeaders(name) // checked at the start
			for _, v := range values {
				if len(v) < 8 {
					continue // a word
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

// remedies are what to do about errors of certificates and keys, by words that crypto/tls, gRPC and HTTP have for them.
var remedies = []struct{ words, remedy string }{
	{"certificate signed by unknown authority", "if the receiver's authority is yours, name its certificate in OTEL_EXPORTER_OTLP_CERTIFICATE"},
	{"certificate has expired", "the receiver needs a new certificate"},
	{"certificate is valid for", "name the endpoint as its certificate does"},
	{"certificate is not valid for any names", "name the endpoint as its certificate does"},
	{"cannot validate certificate for", "name the endpoint as its certificate does"},
	{"certificate required", "the receiver demands a client certificate: OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY"},
	{"unknown certificate authority", "the receiver does not trust the client certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
	{"bad certificate", "the receiver wants another client certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"},
	{"expired certificate", "the client certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE has expired"},
	{"gave HTTP response to HTTPS client", "does the endpoint begin with http://?"},
	{"first record does not look like a TLS handshake", "does the endpoint begin with http://?"},
	{"HTTP request to an HTTPS server", "does the endpoint begin with https://?"},
	{"error reading server preface", "does the endpoint begin with https://?"},
	// A refusal of TLS races with the request, which then fails by the connection alone.
	{"client conn could not be established", "does the receiver demand another client certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE?"},
	{"broken pipe", unsure},
	{"connection reset by peer", unsure},
	{": EOF", unsure},
	{"Unauthenticated", "give the token that the receiver demands in OTEL_EXPORTER_OTLP_HEADERS: authorization=Bearer%20TOKEN"},
	{"401 Unauthorized", "give the token that the receiver demands in OTEL_EXPORTER_OTLP_HEADERS: authorization=Bearer%20TOKEN"},
}

const unsure = "if it stays so: does the endpoint begin with https:// where the receiver has TLS, and with http:// where not, and does it demand OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE?"

// remedy returns what to do about an error, "" where that is not known.
func remedy(text string) string {
	for _, r := range remedies {
		if strings.Contains(text, r.words) {
			return " (" + r.remedy + ")"
		}
	}
	return ""
}
