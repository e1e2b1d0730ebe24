// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestReuse: which requests share a connection. They are sent one after the other, so each finds an idle connection if there is any.
func TestReuse(t *testing.T) {
	sessions := []string{"a", "b", "", "a", "b", "", "a", "b", ""}
	for reuse, want := range map[Reuse][]string{
		"":           {"|a|a|a|b|b|b||"}, // all
		ReuseAny:     {"|a|a|a|b|b|b||"},
		ReuseNever:   {"", "", "", "a", "a", "a", "b", "b", "b"},
		ReuseSession: {"a|a|a", "b|b|b", "||"},
	} {
		t.Run(string(reuse), func(t *testing.T) {
			var mu sync.Mutex
			came := map[string][]string{} // sessions, by the address that the connection comes from
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				came[r.RemoteAddr] = append(came[r.RemoteAddr], r.Header.Get("X-Session-Id"))
				w.Header().Set("Content-Type", mediaJSON)
				_, _ = io.WriteString(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"finish_reason":"stop"}]}`)
			}))
			defer server.Close()
			c, err := New(Config{URL: server.URL, Reuse: reuse}, clock.New())
			if err != nil {
				t.Fatal(err)
			}
			for _, session := range sessions {
				req := Request{Path: "/v1/chat/completions", Session: session, Header: []Field{{"X-Session-Id", session}}, Body: Body{Size: 2, Open: func() io.Reader { return strings.NewReader("{}") }}}
				var x Exchange
				if c.Do(context.Background(), &req, &x); x.Err != nil {
					t.Fatal(x.Err)
				}
			}
			c.Close()
			server.Close() // which waits for the handlers
			mu.Lock()
			defer mu.Unlock()
			var got []string
			for _, of := range slices.Collect(maps.Values(came)) {
				slices.Sort(of)
				got = append(got, strings.Join(of, "|"))
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(sortedSessions(want), got); diff != "" {
				t.Errorf("connections, by the sessions of their requests (-want +got):\n%s", diff)
			}
		})
	}
}

// sortedSessions puts the sessions of each connection in order.
func sortedSessions(connections []string) []string {
	out := make([]string, len(connections))
	for i, one := range connections {
		of := strings.Split(one, "|")
		slices.Sort(of)
		out[i] = strings.Join(of, "|")
	}
	slices.Sort(out)
	return out
}

// TestStickySessionsAreBounded: the sessions that were used longest ago lose their connections.
func TestStickySessionsAreBounded(t *testing.T) {
	made := 0
	c := newConnections(ReuseSession, func() *http.Transport {
		made++
		return new(http.Transport)
	})
	first := c.of("0")
	if c.of("0") != first || c.of("") != c.shared {
		t.Error("a session does not have its earlier transport")
	}
	for i := range maxStickySessions {
		c.of(strings.Repeat("x", 1+i%7) + string(rune('0'+i%10)) + strings.Repeat("y", i/70))
	}
	if n := c.sessions.Len(); n > maxStickySessions {
		t.Errorf("%d sessions have connections", n)
	}
	if c.of("0") == first {
		t.Error("the first session still has its transport")
	}
}
