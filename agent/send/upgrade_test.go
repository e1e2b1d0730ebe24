// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// A server that switches protocols takes the connection out of HTTP, and net/http hands it over as a body that no context
// ends: neither a timeout nor Ctrl-C would.
func TestSwitchingProtocolsIsARefusal(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stuck := make(chan struct{})
				hung := time.AfterFunc(time.Hour, func() { close(stuck) }) // lets a client go that would wait forever
				dial := piped(func(c net.Conn) {
					requests(c, func(*http.Request, string) bool {
						_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
						<-stuck
						return false
					})
				})
				cl, err := New(Config{way: by, URL: "http://engine", DialContext: dial, IdleTimeout: time.Second, TotalTimeout: time.Minute}, clock.New())
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()

				var x Exchange
				cl.Do(t.Context(), post("{}"), &x)
				if x.Err == nil || x.Err.Class != ClassHTTP || x.Err.Status != http.StatusSwitchingProtocols {
					t.Errorf("a request: %+v, want an HTTP failure with status 101", x.Err)
				}
				var e *Error
				if err := cl.Get(t.Context(), "/v1/models", nil); !errors.As(err, &e) || e.Class != ClassHTTP || e.Status != http.StatusSwitchingProtocols {
					t.Errorf("a look: %v, want an HTTP failure with status 101", err)
				}
				if !hung.Stop() {
					t.Error("the client waited until the server hung up, beyond each of its timeouts")
					return
				}
				close(stuck)
			})
		})
	}
}
