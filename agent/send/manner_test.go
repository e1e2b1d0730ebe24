// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// A server that closes each connection after a stream, without announcing it, gets no request on a connection that it is about to close: no
// request is sent twice, although each follows the one before at once. A server that keeps its connections gets all requests on them.
func TestManner(t *testing.T) {
	const workers, requestsEach = 2, 20
	for name, by := range ways {
		for _, closing := range []bool{true, false} {
			url := serve(t, func(c net.Conn) {
				requests(c, func(*http.Request, string) bool {
					_, err := io.WriteString(c, sse(chunkA, finish, done))
					if closing {
						time.Sleep(time.Millisecond)
					}
					return err == nil && !closing
				})
			})
			c := client(t, Config{URL: url, way: by})
			var all sync.WaitGroup
			var mu sync.Mutex
			resent, reused := 0, 0
			for range workers {
				all.Go(func() {
					for i := range requestsEach {
						var x Exchange
						c.Do(t.Context(), post("{}"), &x)
						if x.Err != nil {
							t.Errorf("%s, request %d: %v", name, i, x.Err)
						}
						mu.Lock()
						resent += x.Resent
						reused += btoi(x.Reused)
						mu.Unlock()
						x.Release()
					}
				})
			}
			all.Wait()
			// There is room for a machine that stands still: without the client's knowledge, most requests are sent twice.
			if closing && (resent > workers*requestsEach/3 || !c.ClosesAfterStreams()) {
				t.Errorf("%s, closing: %d requests were sent twice, learned %t", name, resent, c.ClosesAfterStreams())
			}
			if !closing && (resent > 0 || c.ClosesAfterStreams() || reused < workers*(requestsEach-1)) {
				t.Errorf("%s, keeping: %d requests were sent twice, %d connections reused, learned that they close: %t", name, resent, reused, c.ClosesAfterStreams())
			}
		}
	}
}
