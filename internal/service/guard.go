// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"net/http"
	"strings"

	"github.com/moonloop/moonloop/internal/bearer"
)

// guard admits requests with the token. Without a token, a service that listens only on this machine must still refuse web pages: a page in
// a browser could send requests to it, and with a host name that resolves to this machine, could read the answers.
type guard struct {
	token   bearer.Key
	open    bool // no token is required
	foreign *http.CrossOriginProtection
}

func newGuard(token string) guard {
	return guard{token: bearer.New(token), open: token == "", foreign: http.NewCrossOriginProtection()}
}

// check returns the reason to refuse a request; nil if it is admitted.
func (g guard) check(r *http.Request) error {
	if g.open {
		if !isLoopback(r.Host) {
			return problemf(http.StatusMisdirectedRequest, "without a token the service answers to this machine's own name only; use http://127.0.0.1 or http://localhost")
		}
		if err := g.foreign.Check(r); err != nil {
			return problemf(http.StatusForbidden, "a web page of another origin is not allowed to do this")
		}
		return nil
	}
	switch header := r.Header.Get("Authorization"); {
	case g.token.Matches(header):
		return nil
	case header == "":
		return problemf(http.StatusUnauthorized, "no token; send the header Authorization: Bearer TOKEN")
	}
	return problemf(http.StatusUnauthorized, "the token is not this service's")
}

// isLoopback reports whether the host of a request is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
