// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

// TestMalformedURLs: the URL of the trace, or what its server sends, is wrong. Messages must not repeat the keys in the URLs.
func TestMalformedURLs(t *testing.T) {
	text := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(s)) }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/half.jsonl", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(rowOfSix))
	})
	mux.HandleFunc("/chunk.jsonl", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(rowOfSix))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // cuts the connection within the chunked body
	})
	mux.HandleFunc("/unframed.jsonl", func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		_, _ = buf.WriteString("HTTP/1.0 200 OK\r\n\r\n" + rowOfSix)
		_ = buf.Flush()
		_ = conn.(*net.TCPConn).Close()
	})
	mux.HandleFunc("/forbidden.jsonl", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	mux.HandleFunc("/partial.jsonl", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write([]byte(rowOfSix))
	})
	mux.Handle("/to-a-file.jsonl", http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	mux.Handle("/round.jsonl", http.RedirectHandler("/round.jsonl", http.StatusFound))
	mux.HandleFunc("/page.jsonl", text("<html>Sign in, xyzzy</html>"))
	mux.HandleFunc("/nothing.jsonl", text(""))
	mux.HandleFunc("/lies.jsonl", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/gzip")
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write([]byte(rowOfSix))
	})
	mux.HandleFunc("/side.jsonl", text(rowOfSix))
	mux.HandleFunc("/side.meta.json", text(`{"schema":99}`))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	at := "BOTH http://user:password@" + strings.TrimPrefix(server.URL, "http://")
	var cases []malformed
	for name, path := range map[string]string{
		"a download that dies half-way: refused":          "/half.jsonl",
		"a chunked download that dies half-way: refused":  "/chunk.jsonl",
		"a download that may have died half-way: refused": "/unframed.jsonl",
		"404: refused": "/none.jsonl",
		"403: refused": "/forbidden.jsonl",
		"206, a part that was not asked for: refused":      "/partial.jsonl",
		"a redirect to a file: refused":                    "/to-a-file.jsonl",
		"a redirect to itself: refused":                    "/round.jsonl",
		"an HTML page for a trace: refused":                "/page.jsonl",
		"an empty reply: refused":                          "/nothing.jsonl",
		"a content type that lies: accepted":               "/lies.jsonl",
		"a sidecar of a newer version next to it: refused": "/side.jsonl",
	} {
		cases = append(cases, malformed{name: name, commands: []string{at + path + "?key=secret"}})
	}
	for name, url := range map[string]string{
		"a URL that nobody serves: refused":       "http://127.0.0.1:1/trace.jsonl?key=secret",
		"a URL without a host: refused":           "http:///trace.jsonl?key=secret",
		"a URL with a port out of range: refused": "http://127.0.0.1:99999/trace.jsonl?key=secret",
		"a URL with an invalid port: refused":     "http://127.0.0.1:port/trace.jsonl?key=secret",
		"a file URL: refused":                     "file:///trace.jsonl",
		"an S3 URL: refused":                      "s3://bucket/trace.jsonl",
		"a URL with a bad escape: refused":        "http://127.0.0.1/%zz?key=secret",
		"HTTP in capitals: taken as a URL":        "HTTP://127.0.0.1:1/trace.jsonl",
	} {
		cases = append(cases, malformed{name: name, commands: []string{"BOTH " + url}})
	}
	checkMalformed(t, "urls", cases)
}

// TestMalformedSidecars: the trace is good, its sidecar is not.
func TestMalformedSidecars(t *testing.T) {
	alone(t)
	var cases []malformed
	for _, c := range []struct{ name, side, command string }{
		{"empty: refused", ``, both},
		{"not JSON: refused", `schema: 1`, both},
		{"cut: refused", `{"schema":1,"rows":`, both},
		{"no schema: refused", `{"block_size":512}`, both},
		{"a newer schema: refused", `{"schema":2}`, both},
		{"a negative schema: refused", `{"schema":-1}`, both},
		{"schema as text: refused", `{"schema":"1"}`, both},
		{"an array: refused", `[]`, both},
		{"null: refused", `null`, both},
		{"block size as text: refused", `{"schema":1,"block_size":"512"}`, both},
		{"block size 0.5: refused", `{"schema":1,"block_size":0.5}`, both},
		{"block size -1: refused", `{"schema":1,"block_size":-1}`, both},
		{"block size 2^63: refused", `{"schema":1,"block_size":9223372036854775808}`, both},
		{"block size 2^62: refused", `{"schema":1,"block_size":4611686018427387904}`, both},
		{"rows -1: refused", `{"schema":1,"rows":-1}`, both},
		{"rows as an array: refused", `{"schema":1,"rows":[1]}`, both},
		{"an unknown session mode: refused", `{"schema":1,"session_mode":"some"}`, both},
		{"an unknown time unit: refused", `{"schema":1,"time_unit":"h"}`, both},
		{"an invalid time base: refused", `{"schema":1,"time_base":"yesterday"}`, both},
		{"a negative count: refused", `{"schema":1,"dropped":[{"what":"rows","reason":"x","count":-1}]}`, both},
		{"junk after it: refused", `{"schema":1} xyzzy`, both},
		{"huge: refused", `{"schema":1,"tool":"` + strings.Repeat("x", 17<<20) + `"}`, both},
		{"rows that are missing: inspect refuses", `{"schema":1,"rows":2}`, both},
		{"an unknown key: accepted", `{"schema":1,"future":true}`, both},
		{"a block size that the flag contradicts: refused", `{"schema":1,"block_size":16}`, both + " --block-size 512"},
		{"a session mode that the flag contradicts: refused", `{"schema":1,"session_mode":"delta"}`, "replay trace.jsonl --url ENGINE --session-mode full"},
		{"a unit that the flag contradicts: refused", `{"schema":1,"time_unit":"s"}`, "replay trace.jsonl --url ENGINE --time-unit ms"},
	} {
		cases = append(cases, malformed{
			name: c.name, files: map[string]string{"trace.jsonl": rowOfSix, "trace.meta.json": c.side}, commands: []string{c.command},
		})
	}
	checkMalformed(t, "sidecars", append(cases, malformed{
		name: "a directory: refused", files: map[string]string{"trace.jsonl": rowOfSix},
		arrange: func(t *testing.T) {
			t.Helper()
			if err := os.Mkdir("trace.meta.json", 0o700); err != nil {
				t.Fatal(err)
			}
		},
	}))
}
