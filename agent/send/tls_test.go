// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moonloop/moonloop/internal/testcert"
)

// TestTLS: the result of a request, depending on the certificates of both sides, with each version of HTTP.
func TestTLS(t *testing.T) {
	ours, other := testcert.New(t), testcert.New(t)
	good := ours.Sign(t, "127.0.0.1")
	trusting := func(own ...tls.Certificate) *tls.Config { return &tls.Config{RootCAs: ours.Pool(), Certificates: own} }
	// offering sends its certificate whatever authorities the server names, as tlsfile does.
	offering := func(own tls.Certificate) *tls.Config {
		return &tls.Config{RootCAs: ours.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }}
	}
	server := func(own tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{own}} }
	mutual := &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool()}
	for _, c := range []struct {
		name   string
		server *tls.Config // nil = plain HTTP
		client *tls.Config
		want   string // part of the message; empty = served
	}{
		{"custom authority", server(good), trusting(), ""},
		{"unknown authority", server(good), &tls.Config{RootCAs: other.Pool()}, "signed by an unknown authority; if that is yours"},
		{"wrong name", server(ours.Sign(t, "engine.example")), trusting(), "for another name"},
		{"expired", server(ours.SignExpired(t, "127.0.0.1")), trusting(), "has expired"},
		{"invalid certificate that is not verified", server(other.SignExpired(t, "engine.example")), &tls.Config{InsecureSkipVerify: true}, ""},
		{"client certificate", mutual, offering(ours.Sign(t)), ""},
		{"client certificate missing", mutual, trusting(), "demands a client certificate"},
		{"client certificate of another authority", mutual, offering(other.Sign(t)), "does not trust the authority of the client certificate"},
		{"client certificate expired", mutual, offering(ours.SignExpired(t)), "the client certificate expired"},
		{"no TLS at all", nil, trusting(), "does not speak TLS"},
		{"nothing but TLS 1.0", &tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS10}, trusting(), "none of the versions of TLS that are still safe"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %t", c.name, http2), func(t *testing.T) {
				url, reached := serveTLS(t, c.server)
				cl := client(t, Config{URL: strings.Replace(url, "http:", "https:", 1), TLS: c.client, HTTP2: http2, Retries: 3})
				for range 2 {
					var x Exchange
					cl.Do(t.Context(), post(strings.Repeat("x", 50_000)), &x)
					switch {
					case c.want == "" && x.Err != nil:
						t.Fatal(x.Err)
					case c.want == "":
						inOrder(t, &x)
						if !http2 && !x.Reused && x.Phases.TLS == 0 || x.BytesSent < 50_000 || len(x.At) != 2 {
							t.Errorf("phases %+v, %d bytes sent, %d chunks", x.Phases, x.BytesSent, len(x.At))
						}
					case x.Err == nil || x.Attempts != 1 || len(x.At) > 0:
						t.Errorf("%v in %d attempts, want an error in 1", x.Err, x.Attempts)
					// In TLS 1.3, a server refuses a client after the handshake, by an alert that races with the upload. So the request
					// may fail with an error of the connection. The request for the list of models, which has no body, shows the reason.
					case c.server == mutual && x.Err.Class == ClassTransport:
					case x.Err.Class != ClassTLS || !strings.Contains(x.Err.Message, c.want):
						t.Errorf("%v, want tls: …%s…", x.Err, c.want)
					}
				}
				if c.want == "" {
					return
				}
				err := cl.Get(t.Context(), "/v1/models", new(any))
				if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassTLS || !strings.Contains(e.Message, c.want) {
					t.Errorf("the list of models: %v, want tls: …%s…", err, c.want)
				}
				if n := reached.Load(); n > 0 {
					t.Errorf("%d requests reached the engine", n)
				}
			})
		}
	}
}

// serveTLS runs a server that answers each request with two chunks, and returns its URL, which begins with http:// even if the server
// wants TLS; served counts the requests that came through TLS.
func serveTLS(t *testing.T, c *tls.Config) (url string, served *atomic.Int64) {
	t.Helper()
	served = new(atomic.Int64)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			served.Add(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{chunkA, chunkB, finish, usage, done} {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
			w.(http.Flusher).Flush()
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs each refused handshake
	s.EnableHTTP2 = true
	if c == nil {
		s.Start()
	} else {
		s.TLS = c.Clone()
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return strings.Replace(s.URL, "https:", "http:", 1), served
}

// TestTLSKernelStamps: the kernel timestamps encrypted data, too, from the first record on.
func TestTLSKernelStamps(t *testing.T) {
	ours := testcert.New(t)
	url, _ := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ours.Sign(t, "127.0.0.1")}})
	for _, plain := range []bool{false, true} {
		want := runtime.GOOS == "linux" && !plain
		c := client(t, Config{URL: strings.Replace(url, "http:", "https:", 1), TLS: &tls.Config{RootCAs: ours.Pool()}, NoKernelStamps: plain})
		var x Exchange
		// The kernel begins to timestamp some time after the first socket asks for it: a stream that came too early is repeated.
		for try := 0; try == 0 || want && !x.KernelStamps && try < 1000; try++ {
			if c.Do(t.Context(), post("{}"), &x); x.Err != nil {
				t.Fatal(x.Err)
			}
			inOrder(t, &x)
		}
		if x.KernelStamps != want {
			t.Errorf("kernel stamps %t, want %t", x.KernelStamps, want)
		}
	}
}

// TestPlainToTLS: servers with TLS that get plain HTTP say so, each in its own way.
func TestPlainToTLS(t *testing.T) {
	url, _ := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{testcert.New(t).Sign(t, "127.0.0.1")}})
	for name, url := range map[string]string{
		"Go": url,
		"nginx": serve(t, func(c net.Conn) {
			requests(c, func(*http.Request, string) bool {
				const page = "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
				_, _ = fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
				return false
			})
		}),
		"an alert": serve(t, func(c net.Conn) {
			requests(c, func(*http.Request, string) bool {
				_, _ = io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x46")
				return false
			})
		}),
	} {
		err := client(t, Config{URL: url}).Get(t.Context(), "/v1/models", new(any))
		if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassTLS || e.Message != wantsTLS {
			t.Errorf("%s: %v, want tls: %s", name, err, wantsTLS)
		}
	}
}

// TestHTTP2NotOffered: HTTP/2 was requested, but the server, which has TLS, offers only HTTP/1.1.
func TestHTTP2NotOffered(t *testing.T) {
	ours := testcert.New(t)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{ours.Sign(t, "127.0.0.1")}, NextProtos: []string{"http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, ln, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	err = client(t, Config{URL: "https://" + ln.Addr().String(), TLS: &tls.Config{RootCAs: ours.Pool()}, HTTP2: true}).Get(t.Context(), "/v1/models", new(any))
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassTLS || !strings.Contains(e.Message, "leave --http2 out") {
		t.Error(err)
	}
}

func TestHTTP2(t *testing.T) {
	ours := testcert.New(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Proto", r.Proto)
		for _, e := range []string{chunkA, chunkB, finish, usage, done} {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
			w.(http.Flusher).Flush()
		}
		if r.ProtoMajor != 2 {
			t.Errorf("the request came with %s, want HTTP/2", r.Proto)
		}
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ours.Sign(t, "127.0.0.1")}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := client(t, Config{URL: s.URL, TLS: &tls.Config{RootCAs: ours.Pool()}, HTTP2: true})
	for range 3 {
		var x Exchange
		c.Do(t.Context(), post("{}"), &x)
		if x.Err != nil || len(x.At) != 2 || x.KernelStamps || x.Wire < x.Start || x.BytesSent != 2 {
			t.Errorf("%d chunks, kernel stamps %t, wire %v after start, %d bytes sent: %v", len(x.At), x.KernelStamps, x.Wire-x.Start, x.BytesSent, x.Err)
		}
		inOrder(t, &x)
	}
}

func TestUnreachable(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := ln.Addr().String()
	_ = ln.Close()
	lost := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "engine.invalid", IsNotFound: true}}
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want Class
	}{
		{"refused", Config{URL: "http://" + closed}, ClassConnect},
		{"no such host", Config{URL: "http://engine.invalid", DialContext: lost}, ClassDNS},
	} {
		var x Exchange
		client(t, c.cfg).Do(t.Context(), post("{}"), &x)
		if x.Err == nil || x.Err.Class != c.want {
			t.Errorf("%s: %v", c.name, x.Err)
		}
	}
}
