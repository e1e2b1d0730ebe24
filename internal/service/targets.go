// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Targets are the engines to which runs may send requests, as base URLs. A run's URL has the scheme, host and port of one of them, and a
// path at or below its path.
type Targets []*url.URL

// ParseTarget reads a base URL of an engine.
func ParseTarget(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, errors.New("want http://host:port or https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("want an address without user, query and fragment")
	case path.Clean("/"+u.Path) != "/"+strings.Trim(u.Path, "/"): // no path segments with dots, in any spelling
		return nil, errors.New("want a path without dots and empty parts")
	case strings.ContainsAny(u.Path, `;\%`): // servers exist that read dots from /..;/ and /..\ and %252e%252e
		return nil, errors.New(`want a path without ; and \ and encoded %`)
	}
	return u, nil
}

// allow returns the URL to send a run's requests to. If the run names none, there must be exactly one target.
func (t Targets) allow(text string) (string, error) {
	if text == "" {
		if len(t) == 1 {
			return t[0].String(), nil
		}
		return "", fmt.Errorf("url: none given, and this service has %d engines; name one of %s", len(t), t)
	}
	u, err := ParseTarget(text)
	if err != nil {
		return "", fmt.Errorf("url: %w", err)
	}
	if t.Allows(u) {
		return text, nil
	}
	return "", fmt.Errorf("url: this service sends nothing to %s; name one of %s", origin(u), t)
}

// Allows reports whether requests may be sent to a URL.
func (t Targets) Allows(u *url.URL) bool {
	return slices.ContainsFunc(t, func(one *url.URL) bool {
		return origin(one) == origin(u) && within(u.EscapedPath(), one.EscapedPath())
	})
}

// origin returns the scheme, host and port of a URL in a canonical form.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// within reports whether a path is at or below another.
func within(name, top string) bool {
	name, top = strings.Trim(name, "/"), strings.Trim(top, "/")
	return top == "" || name == top || strings.HasPrefix(name, top+"/")
}

// String lists the targets.
func (t Targets) String() string {
	list := make([]string, len(t))
	for i, u := range t {
		list[i] = u.String()
	}
	return strings.Join(list, ", ")
}
