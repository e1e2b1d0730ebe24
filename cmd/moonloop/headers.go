// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// headerFlags are the extra headers of a replay: from the command line, files and the environment.
type headerFlags struct {
	lines []string // -H: "Name: value" or "@FILE"
	env   []string // --header-env: Name=VARIABLE
	// source is where lines come from, if not from the command line.
	source source
}

// parse returns the headers, and warnings. No error and no warning contains a value.
func (f headerFlags) parse(ctx context.Context) (header http.Header, warnings []string, err error) {
	header = make(http.Header)
	var errs []error
	for _, line := range f.lines {
		if file, isFile := strings.CutPrefix(line, "@"); isFile {
			errs = append(errs, addHeaderFile(ctx, header, file))
			warnings = append(warnings, exposure([2]string{"-H", file})...)
			continue
		}
		name, _, _ := strings.Cut(line, ":")
		if err := addHeader(header, line); err != nil {
			errs = append(errs, fmt.Errorf("-H: %w", err))
		} else if !secretHeader.MatchString(name) || f.source.kind == fromEnvironment {
			continue
		} else if f.source.kind == fromFile {
			warnings = append(warnings, fmt.Sprintf("%s: the value of header %s is in plain text in a file, which is easily passed on; "+
				"use api-key-env or api-key-file for a bearer key, else header: \"@FILE\" or header-env", f.source.at, name))
		} else {
			warnings = append(warnings, fmt.Sprintf("-H %s: every user of this machine can read its value in the list of processes; "+
				"use --api-key-env or --api-key-file for a bearer key, else -H @FILE or --header-env", name))
		}
	}
	for _, pair := range f.env {
		name, variable, _ := strings.Cut(pair, "=")
		if value := os.Getenv(variable); value == "" {
			errs = append(errs, fmt.Errorf("--header-env %s: environment variable %s is empty or not set; export it, or leave the flag out", name, publicVariable(variable)))
		} else if err := addHeader(header, name+": "+value); err != nil {
			errs = append(errs, fmt.Errorf("--header-env: %w", err))
		}
	}
	return header, warnings, errors.Join(errs...)
}

// addHeaderFile adds the headers of a file, one a line.
func addHeaderFile(ctx context.Context, h http.Header, name string) error {
	content, err := readSecretFile(ctx, name)
	if err != nil {
		return fmt.Errorf("-H %s: %s; name a file with one \"Name: value\" a line", quoted("@"+name), reason(err))
	}
	for i, line := range strings.Split(content, "\n") {
		if line = strings.TrimSuffix(line, "\r"); strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := addHeader(h, line); err != nil {
			return fmt.Errorf("-H %s: line %d: %w", quoted("@"+name), i+1, err) // a file of another kind has no valid line
		}
	}
	return nil
}

// secretHeader matches the names of headers whose value is usually secret.
var secretHeader = regexp.MustCompile(`(?i)auth|key|token|secret|cookie|password|credential|signature`)

// secretQuery returns the name of a parameter in a URL whose value is usually secret; "" if there is none.
func secretQuery(target string) string {
	u, err := url.Parse(target)
	if err != nil {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		if secretHeader.MatchString(name) {
			return quoted(name)
		}
	}
	return ""
}

// addHeader adds a header of the form "Name: value". Its error does not repeat the value, or a name that may be a value.
func addHeader(h http.Header, line string) error {
	name, value, found := strings.Cut(line, ":")
	name = strings.TrimSpace(name)
	if !found || !httpguts.ValidHeaderFieldName(name) {
		return errors.New("want \"Name: value\", where the name has letters, digits and -")
	}
	if !httpguts.ValidHeaderFieldValue(value) {
		return fmt.Errorf("header %s: its value holds a line end or another control character; give each header its own -H", name)
	}
	if why, owned := ownHeaders[http.CanonicalHeaderKey(name)]; owned {
		return fmt.Errorf("header %s: %s; leave it out", name, why)
	}
	h.Add(name, strings.TrimSpace(value))
	return nil
}

// ownHeaders are headers that have no effect, or break requests, when users set them, with the reasons.
var ownHeaders = map[string]string{
	"Content-Length":    "each request has its own length",
	"Transfer-Encoding": "the client decides how a request is framed",
	"Connection":        "the client decides when a connection ends",
	"Keep-Alive":        "the client decides when a connection ends",
	"Proxy-Connection":  "the client decides when a connection ends",
	"Upgrade":           "the client decides which version of HTTP it speaks (--http2)",
	"Te":                "the client decides how a reply is framed",
	"Trailer":           "no request has trailers",
	"Expect":            "the client sends the body with the headers, whatever the server says",
	"Content-Encoding":  "the body is sent as it is",
	"Accept-Encoding":   "a compressed stream would have no arrival times, so none is asked for",
	"Host":              "each request names the host of --url",
	"Traceparent":       "each request has its own, from telemetry",
	"Tracestate":        "each request has its own, from telemetry",
	"X-Request-Id":      "each request has its own, made of the run's id and the row",
}

// isHeader checks -H before anything is read.
func isHeader(value string) error {
	name, isFile := strings.CutPrefix(value, "@")
	switch {
	case !isFile:
		return advised(addHeader(make(http.Header), value))
	case name == "" || strings.ContainsFunc(name, isControl):
		return advice("want the name of a file after @")
	}
	return nil
}

// isHeaderVariable checks --header-env before the environment is read.
func isHeaderVariable(value string) error {
	name, variable, _ := strings.Cut(value, "=")
	if err := isVariable(variable); err != nil {
		return err
	}
	return advised(addHeader(make(http.Header), name+":"))
}

// publicVariable returns the name of an environment variable for a message if it looks like one, and so is not a key.
func publicVariable(name string) string {
	if len(name) <= 32 && name == strings.ToUpper(name) && variable.MatchString(name) {
		return name
	}
	return "of the given name"
}

// publicFile returns the name of a file of secrets for a message if it looks like one, and so is not a secret itself.
func publicFile(name string) string {
	if strings.ContainsAny(name, "./\\") || len(name) < 16 {
		return quoted(name)
	}
	return "of the given name"
}

// reason returns why a file cannot be used, without the names of functions and of the file.
func reason(err error) string {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}
