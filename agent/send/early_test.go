// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/testcert"
)

// TestReplyBeforeTheUpload: if a reply comes before the whole request was sent, the time of the request's last byte is not known, whether the
// reply is served or an error: an earlier write is not the last one.
func TestReplyBeforeTheUpload(t *testing.T) {
	const read = 256 << 10 // more than one write
	authority := testcert.New(t)
	for name, reply := range map[string]string{
		"a stream": sse(chunkA, finish, done), "too large": answer("413 Content Too Large", mediaJSON, `{"error":{"message":"too large"}}`),
	} {
		for kind, secure := range map[string]bool{"plain": false, "TLS": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				replied := make(chan struct{})
				cfg := Config{TLS: &tls.Config{RootCAs: authority.Pool(), MinVersion: tls.VersionTLS12}}
				cfg.URL = serve(t, func(c net.Conn) {
					if secure {
						c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{authority.Sign(t, "127.0.0.1")}, MinVersion: tls.VersionTLS12})
					}
					_, _ = io.CopyN(io.Discard, c, read)
					_, _ = io.WriteString(c, reply)
					<-replied // a closed connection would be reset
				})
				if secure {
					cfg.URL = strings.Replace(cfg.URL, "http:", "https:", 1)
				}
				var x Exchange
				client(t, cfg).Do(t.Context(), post(strings.Repeat("b", 64<<20)), &x)
				close(replied)
				if served := x.Err == nil; served != (x.Status == 200) || x.FirstByte == clock.Never {
					t.Fatalf("status %d: %v", x.Status, x.Err)
				}
				if !x.WireLate || x.Wire != x.FirstByte || x.Phases.Waiting != 0 || x.BytesSent < read || x.BytesSent > 63<<20 {
					t.Errorf("wire %v (late: %v), first byte %v, %d bytes sent, waiting %v", x.Wire, x.WireLate, x.FirstByte, x.BytesSent, x.Phases.Waiting)
				}
			})
		}
	}
}
