// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/moonloop/moonloop/mooncake"
)

// This file reads the OTLP variables that the exporters also read by themselves. If a value is invalid, they would continue with localhost,
// or without a certificate, and log the value of a header.

// signal is one of the two kinds of telemetry, each with its own exporter.
type signal struct {
	name string // in variables
	lost string // what people call its telemetry
}

var (
	traces  = signal{"TRACES", "spans"}
	metrics = signal{"METRICS", "metrics"}
)

// variables returns the names of a signal's variables with a suffix: its own, then the general one.
func (s signal) variables(suffix string) [2]string {
	return [2]string{"OTEL_EXPORTER_OTLP_" + s.name + "_" + suffix, "OTEL_EXPORTER_OTLP_" + suffix}
}

// env returns the first of the signal's variables that is set, and its value; both are empty if none is.
func (s signal) env(suffix string) (variable, value string) {
	for _, name := range s.variables(suffix) {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return name, v
		}
	}
	return "", ""
}

// exporter returns the name of the signal's exporter, "" if it is off.
func (s signal) exporter(c *Config) string {
	name := strings.TrimSpace(os.Getenv("OTEL_" + s.name + "_EXPORTER"))
	_, endpoint := s.env("ENDPOINT")
	switch {
	case name == "none":
		return ""
	case c.Endpoint != "":
		return exporterOTLP
	case name == "" && (c.Force || endpoint != ""):
		return exporterOTLP
	}
	return name
}

// path is what OTLP over HTTP adds to a base URL.
func (s signal) path() string { return "/v1/" + strings.ToLower(s.name) }

func disabled() bool {
	return strings.EqualFold(strings.TrimSpace(os.Getenv("OTEL_SDK_DISABLED")), "true")
}

// receiver is the OTLP destination of a signal.
type receiver struct {
	protocol string
	url      string // the effective one, without credentials
	host     string // the same without its path
	setting  string // variable that names it; empty without one
}

// receiver returns where the signal is sent, or an error about the environment.
func (s signal) receiver(c *Config) (r receiver, err error) {
	_, protocol := s.env("PROTOCOL")
	r.protocol = cmp.Or(c.Protocol, protocol, ProtocolHTTP)
	base := c.Endpoint
	if base == "" {
		r.setting, base = s.env("ENDPOINT")
	}
	var u *url.URL
	switch r.protocol {
	case ProtocolGRPC:
		base = cmp.Or(base, "http://localhost:4317")
		if u, err = url.Parse(base); err != nil || u.Scheme != "unix" {
			u, err = parseEndpoint(r.setting, base)
		}
	case ProtocolHTTP:
		u, err = parseEndpoint(r.setting, cmp.Or(base, "http://localhost:4318"))
	default:
		err = fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want %s or %s", r.protocol, ProtocolGRPC, ProtocolHTTP)
	}
	if err = errors.Join(err, s.checkSecrets()); err != nil {
		return r, err
	}
	r.host = u.Scheme + "://" + u.Host
	switch {
	case r.protocol == ProtocolGRPC:
		r.url = r.host
	case r.setting == s.variables("ENDPOINT")[0]: // used unchanged
		r.url = r.host + u.Path
	default:
		r.url = r.host + strings.TrimSuffix(u.Path, "/") + s.path()
	}
	return r, nil
}

// parseEndpoint parses an endpoint; name is for its error, which does not contain a user, password or query.
func parseEndpoint(name, endpoint string) (*url.URL, error) {
	const want = "want http://host:port or https://host:port"
	u, err := url.Parse(endpoint)
	switch {
	case err != nil, !strings.Contains(endpoint, "://") && strings.ContainsAny(endpoint, "@?#"):
		return nil, fmt.Errorf("%s: not a URL; %s", name, want)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("%s %q: %s", name, mooncake.PublicName(endpoint), want)
	}
	return u, nil
}
