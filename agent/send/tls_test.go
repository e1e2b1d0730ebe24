// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) sign(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func TestTLS(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	good := ours.sign(t, "127.0.0.1", later)
	for _, c := range []struct {
		name   string
		server *tls.Config
		client *tls.Config
		want   string // part of the message; empty = served
	}{
		{"custom authority", &tls.Config{Certificates: []tls.Certificate{good}}, &tls.Config{RootCAs: ours.pool()}, ""},
		{"unknown authority", &tls.Config{Certificates: []tls.Certificate{good}}, &tls.Config{RootCAs: other.pool()}, "unknown authority"},
		{"wrong name", &tls.Config{Certificates: []tls.Certificate{ours.sign(t, "engine.example", later)}}, &tls.Config{RootCAs: ours.pool()}, "another name"},
		{"expired", &tls.Config{Certificates: []tls.Certificate{ours.sign(t, "127.0.0.1", time.Now().Add(-time.Minute))}}, &tls.Config{RootCAs: ours.pool()}, "expired"},
		{"client certificate", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool()}, &tls.Config{RootCAs: ours.pool(), Certificates: []tls.Certificate{good}}, ""},
		// In TLS 1.3 the server refuses after the client's handshake has ended: its alert then races with the request, and
		// net/http may report the write that failed instead.
		{"client certificate missing", &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.pool()}, &tls.Config{RootCAs: ours.pool()}, "client certificate"},
		{"no TLS at all", nil, &tls.Config{RootCAs: ours.pool()}, "does not speak TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			addr := ln.Addr().String()
			if c.server != nil {
				ln = tls.NewListener(ln, c.server)
			}
			serveOn(t, ln, func(conn net.Conn) {
				if c.server == nil {
					_, _ = conn.Read(make([]byte, 512))
					_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
					return
				}
				requests(conn, func(*http.Request, string) bool {
					_, err := io.WriteString(conn, sse(chunkA, chunkB, finish, usage, done))
					return err == nil
				})
				// What has come and was not read would turn the alert into a reset.
				_, _ = io.Copy(io.Discard, conn.(*tls.Conn).NetConn())
			})
			cl := client(t, Config{URL: "https://" + addr, TLS: c.client, Retries: 3})
			for range 2 {
				var x Exchange
				cl.Do(t.Context(), post(strings.Repeat("x", 50_000)), &x)
				switch {
				case c.want == "" && x.Err != nil:
					t.Fatal(x.Err)
				case c.want == "":
					inOrder(t, &x)
					if !x.Reused && x.Phases.TLS == 0 || x.BytesSent < 50_000 || len(x.At) != 2 {
						t.Errorf("phases %+v, %d bytes sent, %d chunks", x.Phases, x.BytesSent, len(x.At))
					}
				case x.Err == nil || x.Err.Class != ClassTLS || !strings.Contains(x.Err.Message, c.want) || x.Attempts != 1:
					t.Errorf("%v in %d attempts, want tls: …%s… in 1", x.Err, x.Attempts, c.want)
				}
			}
		})
	}
}

func TestHTTP2(t *testing.T) {
	ours := newAuthority(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Proto", r.Proto)
		for _, e := range []string{chunkA, chunkB, finish, usage, done} {
			_, _ = io.WriteString(w, "data: "+e+"\n\n")
			w.(http.Flusher).Flush()
		}
		if r.ProtoMajor != 2 {
			t.Errorf("spoken: %s", r.Proto)
		}
	}))
	s.EnableHTTP2 = true
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ours.sign(t, "127.0.0.1", time.Now().Add(time.Hour))}}
	s.StartTLS()
	t.Cleanup(s.Close)
	c := client(t, Config{URL: s.URL, TLS: &tls.Config{RootCAs: ours.pool()}, HTTP2: true})
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
