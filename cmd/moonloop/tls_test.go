// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/internal/testcert"
)

// secureEngine is a simulated engine behind TLS. It counts the requests for a trace's rows.
type secureEngine struct {
	*simulator.Engine
	url  string
	rows atomic.Int64
}

func newSecureEngine(t *testing.T, c simulator.Config, server *tls.Config) *secureEngine {
	t.Helper()
	e, err := simulator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	secure := &secureEngine{Engine: e}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			secure.rows.Add(1)
		}
		e.ServeHTTP(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs each refused handshake
	s.EnableHTTP2 = true
	s.TLS = server.Clone()
	s.StartTLS()
	t.Cleanup(func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	secure.url = s.URL
	return secure
}

// contents returns the files of a malformed case: a trace, and the contents of the named files, by the names that the case uses.
func contents(t *testing.T, names map[string]string) map[string]string {
	t.Helper()
	files := map[string]string{"trace.jsonl": rowOfSix}
	for as, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[as] = string(data)
	}
	return files
}

// TestMalformedTLS: certificates and keys that cannot be used, on both sides. The replay ends with a message that says which, why and what
// to do, before a request of the trace is sent, although the model is known.
func TestMalformedTLS(t *testing.T) {
	ours, other := testcert.New(t), testcert.New(t)
	serve := func(own tls.Certificate) *secureEngine {
		return newSecureEngine(t, simulator.Config{}, &tls.Config{Certificates: []tls.Certificate{own}})
	}
	good, expired := serve(ours.Sign(t, "127.0.0.1")), serve(ours.SignExpired(t, "127.0.0.1"))
	misnamed := serve(ours.Sign(t, "engine.example"))
	mutual := newSecureEngine(t, simulator.Config{}, &tls.Config{
		Certificates: []tls.Certificate{ours.Sign(t, "127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool(),
	})
	names := map[string]string{"ca.pem": ours.File(t), "other-ca.pem": other.File(t)}
	names["cert.pem"], names["key.pem"] = testcert.Files(t, ours.Sign(t))
	names["foreign.pem"], names["foreign.key"] = testcert.Files(t, other.Sign(t))
	names["expired.pem"], names["expired.key"] = testcert.Files(t, ours.SignExpired(t))
	files := contents(t, names)
	files["garbage"] = "-----BEGIN CERTIFICATE-----\nxyzzy\n-----END CERTIFICATE-----\n"
	files["encrypted.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "ENCRYPTED PRIVATE KEY", Bytes: []byte("xyzzy")}))
	files["broken.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("xyzzy")}))

	to := func(e *secureEngine, flags string) string { return "replay trace.jsonl --url " + e.url + " " + flags }
	var cases []malformed
	for name, command := range map[string]string{
		"the engine's authority is unknown: refused":               to(good, ""),
		"the engine's authority is not the given one: refused":     to(good, "--ca-file other-ca.pem"),
		"the engine's authority is unknown, HTTP/2: refused":       to(good, "--http2"),
		"the engine's certificate has expired: refused":            to(expired, "--ca-file ca.pem"),
		"the engine's certificate has another name: refused":       to(misnamed, "--ca-file ca.pem"),
		"the engine demands a certificate: refused":                to(mutual, "--ca-file ca.pem"),
		"the engine demands a certificate, HTTP/2: refused":        to(mutual, "--ca-file ca.pem --http2"),
		"the engine does not trust the certificate: refused":       to(mutual, "--ca-file ca.pem --cert-file foreign.pem --key-file foreign.key"),
		"the client's certificate has expired: refused":            to(mutual, "--ca-file ca.pem --cert-file expired.pem --key-file expired.key"),
		"the client's key is another's: refused":                   to(mutual, "--ca-file ca.pem --cert-file cert.pem --key-file foreign.key"),
		"certificate and key are swapped: refused":                 to(mutual, "--ca-file ca.pem --cert-file key.pem --key-file cert.pem"),
		"a key file is the certificate: refused":                   to(mutual, "--ca-file ca.pem --cert-file cert.pem --key-file cert.pem"),
		"a key is encrypted: refused":                              to(mutual, "--ca-file ca.pem --cert-file cert.pem --key-file encrypted.key"),
		"a key is broken: refused":                                 to(mutual, "--ca-file ca.pem --cert-file cert.pem --key-file broken.key"),
		"a key without a certificate: refused":                     to(mutual, "--key-file key.pem"),
		"an authority's file does not exist: refused":              to(good, "--ca-file missing.pem"),
		"an authority's file is a directory: refused":              to(good, "--ca-file ."),
		"an authority's file is garbage: refused":                  to(good, "--ca-file garbage"),
		"a certificate file is garbage: refused":                   to(good, "--cert-file garbage --key-file key.pem"),
		"https to a port without TLS: refused":                     strings.Replace("replay trace.jsonl --url TLS --ca-file ca.pem", "TLS", "https://HOST", 1),
		"http to a port with TLS: refused":                         "replay trace.jsonl --url " + strings.Replace(good.url, "https:", "http:", 1),
		"an authority for a URL without TLS: refused":              "replay trace.jsonl --url ENGINE --ca-file ca.pem",
		"not to verify and an authority: refused":                  to(good, "--ca-file ca.pem --insecure-skip-verify"),
		"files with keys that others can read: warned of each one": to(good, "--cert-file cert.pem --key-file open.key --api-key-file open.txt"),
	} {
		c := malformed{name: name, files: files, commands: []string{command}}
		c.arrange = func(t *testing.T) {
			t.Helper()
			for as, content := range map[string]string{"open.key": files["key.pem"], "open.txt": "xyzzy"} {
				if err := os.WriteFile(as, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(as, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		if strings.Contains(command, "https://HOST") {
			plain := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(plain.Close)
			c.commands[0] = strings.Replace(command, "https://HOST", strings.Replace(plain.URL, "http:", "https:", 1), 1)
		}
		cases = append(cases, c)
	}
	checkMalformed(t, "tls", cases)
	for name, e := range map[string]*secureEngine{"good": good, "expired": expired, "misnamed": misnamed, "mutual": mutual} {
		if n := e.rows.Load(); n > 0 {
			t.Errorf("the engine %s got %d requests", name, n)
		}
	}
}

// TestReplayTLS: a replay through TLS with certificates on both sides, by each version of HTTP, is like any other. Verification can be
// turned off, and the report says so.
func TestReplayTLS(t *testing.T) {
	t.Parallel()
	ours := testcert.New(t)
	e := newSecureEngine(t, simulator.Config{}, &tls.Config{
		Certificates: []tls.Certificate{ours.Sign(t, "127.0.0.1")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool(),
	})
	folder := t.TempDir()
	trace := filepath.Join(folder, "trace.jsonl")
	if err := os.WriteFile(trace, []byte(strings.Repeat(rowOfSix, 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	cert, key := testcert.Files(t, ours.Sign(t))
	for name, tc := range map[string]struct {
		flags   []string
		proto   string
		stamped bool
		noted   bool
	}{
		"HTTP/1.1":     {[]string{"--ca-file", ours.File(t)}, "HTTP/1.1", true, false},
		"HTTP/2":       {[]string{"--ca-file", ours.File(t), "--http2"}, "HTTP/2.0", false, false},
		"not verified": {[]string{"--insecure-skip-verify"}, "HTTP/1.1", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			before := len(e.Records())
			var stdout, stderr strings.Builder
			status := run(t.Context(), append([]string{
				"replay", trace, "--url", e.url, "--endpoint", "completions", "--cert-file", cert, "--key-file", key,
				"--out", out, "--progress", "none",
			}, tc.flags...), strings.NewReader(""), &stdout, &stderr)
			if status != exitOK && status != exitInvalid { // the machine may be too busy for a valid run
				t.Fatalf("exit status %d\n%s%s", status, &stdout, &stderr)
			}
			records := e.Records()[before:]
			if len(records) != 21 { // the 20 rows, and a query of the vocabulary
				t.Errorf("%d requests reached the engine, want 21", len(records))
			}
			for _, r := range records {
				if r.Proto != tc.proto {
					t.Fatalf("spoke %s, want %s", r.Proto, tc.proto)
				}
			}
			summary, err := os.ReadFile(filepath.Join(out, "summary.json"))
			if err != nil {
				t.Fatal(err)
			}
			if got := !strings.Contains(string(summary), `"kernel_stamped_requests": 0`); got != tc.stamped && runtime.GOOS == "linux" {
				t.Errorf("replies have the kernel's timestamps: %t, want %t", got, tc.stamped)
			}
			if got := strings.Contains(string(summary), "certificate was not verified") && strings.Contains(stdout.String(), "certificate was not verified"); got != tc.noted {
				t.Errorf("the report says that the certificate was not verified: %t, want %t\n%s", got, tc.noted, &stdout)
			}
		})
	}
}

// TestCheckScheme: flags for TLS and keys, depending on the scheme of the URL.
func TestCheckScheme(t *testing.T) {
	for _, tc := range []struct {
		url, key     string
		header       http.Header
		tls          bool
		warned, fail bool
		because      string
	}{
		{"https://engine.example", "k", nil, true, false, false, "as it should be"},
		{"https://engine.example", "k", nil, false, false, false, "the system's authorities"},
		{"http://127.0.0.1:8000", "k", nil, false, false, false, "the key does not leave this machine"},
		{"http://localhost", "k", nil, false, false, false, "the key does not leave this machine by this name, either"},
		{"http://engine.example", "", nil, false, false, false, "there is no key"},
		{"http://engine.example", "k", nil, false, true, false, "anybody on the way can read the key"},
		{"http://192.0.2.7:8000", "k", nil, false, true, false, "anybody on the way to this address can read the key"},
		{"http://127.0.0.1:8000", "", nil, true, false, true, "certificates are of no use"},
		{"://", "k", nil, true, false, false, "another check refuses this URL"},
		{"http://engine.example", "", http.Header{"X-Api-Key": {"k"}}, false, true, false, "anybody on the way can read this header"},
		{"http://engine.example", "", http.Header{"X-Team": {"k"}}, false, false, false, "this header is no secret"},
	} {
		var c *tls.Config
		if tc.tls {
			c = new(tls.Config)
		}
		warning, err := checkScheme(tc.url, c, secretIn(&agent.Target{APIKey: tc.key, Header: tc.header}))
		if (warning != "") != tc.warned || (err != nil) != tc.fail || strings.Contains(warning, "k goes") {
			t.Errorf("%s (%s): warning %q, error %v", tc.url, tc.because, warning, err)
		}
	}
}
