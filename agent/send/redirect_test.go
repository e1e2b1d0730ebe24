// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestRedirects: whatever status a server redirects with, the other server gets neither the prompt nor the keys, and no connection. A
// request is sent once, so two servers that redirect to each other are no loop, and the error says where to.
func TestRedirects(t *testing.T) {
	const key, header = "canary-key-0123456789", "canary-header-0123456789"
	for name, by := range ways {
		for _, status := range []int{301, 302, 303, 307, 308} {
			t.Run(fmt.Sprintf("%s, %d", name, status), func(t *testing.T) {
				engine, other := listen(t), listen(t)
				var asked, others atomic.Int64
				redirect := func(from net.Listener, n *atomic.Int64, to net.Listener) {
					serveOn(t, from, func(c net.Conn) {
						n.Add(1)
						requests(c, func(r *http.Request, _ string) bool {
							_, err := fmt.Fprintf(c, "HTTP/1.1 %d Moved\r\nLocation: http://%s%s?key=%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
								status, to.Addr(), r.URL.Path, key)
							return err == nil
						})
					})
				}
				redirect(engine, &asked, other)
				redirect(other, &others, engine)
				const base = "/gateway/of/the/inference/cluster/in/eu-central-1" // long, but the error must not be cut
				c := client(t, Config{
					URL: "http://" + engine.Addr().String() + base, way: by, APIKey: key, Header: map[string][]string{"X-Secret": {header}},
					Retries: 3, RetryWait: time.Millisecond,
				})
				var x Exchange
				c.Do(t.Context(), post(`{"prompt":"canary prompt of several words"}`), &x)
				to := "http://" + other.Addr().String() + base
				for what, err := range map[string]error{
					"request": x.Err, "look": c.Get(t.Context(), "/v1/models", nil), "call": c.JSON(t.Context(), "/v1/completions", nil, post("{}").Body, nil),
				} {
					text := fmt.Sprint(err)
					if !strings.Contains(text, "the server redirects to "+to+"/v1/") || !strings.Contains(text, "which is not followed") ||
						!strings.HasSuffix(text, "give --url "+to) || strings.Contains(text, "canary") {
						t.Errorf("%s: %v", what, err)
					}
				}
				if x.Status != status || asked.Load() != 3 || others.Load() != 0 {
					t.Errorf("status %d; %d connections to the engine, want 3; %d to the other server, want none", x.Status, asked.Load(), others.Load())
				}
			})
		}
	}
}
