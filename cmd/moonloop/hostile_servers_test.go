// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bufio"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hostileServers starts servers that are not what a command expects. It returns their URLs by what is wrong with the server.
func hostileServers(t *testing.T) map[string]string {
	t.Helper()
	urls := map[string]string{"refuses connections": "http://127.0.0.1:1"}
	serve := func(name string, handler http.HandlerFunc) {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		urls[name] = s.URL
	}
	status := func(code int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	const page, object = "text/html", "application/json"
	serve("an HTML page", status(http.StatusOK, page, "<!DOCTYPE html><html><body>xyzzy: sign in</body></html>"))
	serve("an empty page", status(http.StatusOK, page, ""))
	serve("401", status(http.StatusUnauthorized, object, `{"error":{"message":"no key","code":"invalid_api_key"}}`))
	serve("403", status(http.StatusForbidden, page, "<html>Forbidden</html>"))
	serve("404", status(http.StatusNotFound, object, `{"detail":"Not Found"}`))
	serve("500", status(http.StatusInternalServerError, "text/plain", "boom"))
	serve("JSON of another kind", status(http.StatusOK, object, `[1,2,3]`))
	serve("a redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.0.0.1:1/login", http.StatusFound)
	})
	serve("a redirect to itself", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusTemporaryRedirect)
	})

	// These servers read the request first: a connection that is closed with unread bytes is reset.
	urls["closes at once"] = rawServer(t, func(net.Conn) {})
	urls["garbage"] = rawServer(t, func(c net.Conn) { _, _ = c.Write([]byte("\x93\x01\xfe\xca\x17 xyzzy\r\n\r\n")) })
	urls["another protocol"] = rawServer(t, func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.6\r\n")) })
	urls[neverAnswers] = ""
	urls["no TLS, for https"] = strings.Replace(urls["404"], "http:", "https:", 1)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	urls["TLS, for http"] = strings.Replace(secure.URL, "https:", "http:", 1)
	return urls
}

// waited is the message about a long wait. On a busy machine, any wait can be long.
var waited = regexp.MustCompile(`(?m)^moonloop: engine .*: waiting for .*\n`)

// neverAnswers is a server for one case: its request ends the case's context.
const neverAnswers = "never answers"

// rawServer reads the head of a request, writes, and closes. It returns its URL.
func rawServer(t *testing.T, talk func(net.Conn)) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for head := bufio.NewReader(c); ; {
					if line, err := head.ReadString('\n'); err != nil || line == "\r\n" {
						break
					}
				}
				talk(c)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestHostileServers runs commands on servers that are not engines, or have no trace. If no answer comes, the command waits until an
// interrupt. All servers are queried concurrently, because most of the time is waiting between retries.
//
// What an engine's preparation says of 401, 403, 404, redirects, HTML and JSON of another kind is the part of the golden file
// that is expected to change.
func TestHostileServers(t *testing.T) {
	withoutOTel(t)
	golden, err := filepath.Abs(filepath.Join("testdata", "hostile", "servers.golden"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{"trace.jsonl": rowOfSix, "headers": "X-Tenant: xyzzy-xyzzy\n"} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var (
		mu     sync.Mutex
		got    = make(map[string]string)
		all    sync.WaitGroup
		places = map[string]string{
			"an engine":             "replay trace.jsonl --url URL -H @headers",
			"an engine of no model": "replay trace.jsonl --url URL --model ␀",
			"a trace":               "inspect URL/trace.jsonl",
			"an input":              "convert URL/input --out x.jsonl",
		}
	)
	for what, url := range hostileServers(t) {
		for place, command := range places {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			t.Cleanup(cancel)
			if what == neverAnswers {
				url = rawServer(t, func(c net.Conn) {
					cancel()
					_, _ = io.Copy(io.Discard, c)
				})
			}
			c := malformed{name: place + ": " + what, commands: []string{strings.ReplaceAll(command, "URL", url)}}
			c.ctx = func(*testing.T) context.Context { return ctx }
			all.Go(func() {
				text := waited.ReplaceAllString(c.transcript(t, ""), "")
				mu.Lock()
				defer mu.Unlock()
				got[c.name] = text
			})
		}
	}
	all.Wait()
	for name, text := range got {
		if strings.Contains(text, "xyzzy-xyzzy") || strings.Contains(text, "sign in") {
			t.Errorf("%s: a header or a page is repeated:\n%s", name, text)
		}
	}
	if *update {
		writeGolden(t, golden, got)
		return
	}
	if diff := cmp.Diff(readGolden(t, golden), got); diff != "" {
		t.Errorf("-want +got (go test -update rewrites it):\n%s", diff)
	}
}
