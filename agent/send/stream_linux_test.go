// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const benchTokens = 500

// benchServer streams benchTokens chunks per request, at intervals of pace; 0: without intervals.
func benchServer(b *testing.B, pace time.Duration) *httptest.Server {
	b.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		line := "data: " + chunk236 + "\n\n"
		for range benchTokens {
			if pace > 0 {
				time.Sleep(pace)
			}
			_, _ = io.WriteString(w, line)
			if pace > 0 {
				w.(http.Flusher).Flush()
			}
		}
		_, _ = io.WriteString(w, "data: "+finish+"\n\ndata: [DONE]\n\n")
	}))
	b.Cleanup(s.Close)
	return s
}

// BenchmarkStream shows the cost of a token, server included: through the client, and, as the floor, through a bare net/http reader with
// the same scanner.
func BenchmarkStream(b *testing.B) {
	for _, pace := range []time.Duration{0, 500 * time.Microsecond} {
		name := "unpaced"
		if pace > 0 {
			name = "paced"
		}
		s := benchServer(b, pace)
		b.Run(name+"/client", func(b *testing.B) {
			c := client(b, Config{URL: s.URL})
			req := post(`{"messages":[]}`)
			req.KeepReply, req.ExpectTokens = false, benchTokens
			perToken(b, func() int {
				var x Exchange
				c.Do(b.Context(), req, &x)
				if x.Err != nil {
					b.Fatal(x.Err)
				}
				n := len(x.At)
				x.Release()
				return n
			})
		})
		b.Run(name+"/bare", func(b *testing.B) {
			t := &http.Transport{DisableCompression: true}
			defer t.CloseIdleConnections()
			br := bufio.NewReader(nil)
			var c chunk
			perToken(b, func() int {
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, s.URL, strings.NewReader(`{"messages":[]}`))
				if err != nil {
					b.Fatal(err)
				}
				resp, err := t.RoundTrip(r)
				if err != nil {
					b.Fatal(err)
				}
				defer resp.Body.Close()
				br.Reset(resp.Body)
				n := 0
				for {
					line, err := br.ReadSlice('\n')
					if err != nil {
						return n
					}
					if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok && c.parse(data) && len(c.choices) > 0 && c.choices[0].produced() {
						n++
					}
				}
			})
		})
	}
}

// cpu is the processor time of the process.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// perToken reports the processor time and the garbage of one token, of streams that run one after the other.
func perToken(b *testing.B, stream func() int) {
	b.Helper()
	var before, after runtime.MemStats
	stream() // connects, and fills the pools
	runtime.ReadMemStats(&before)
	began := cpu(b)
	tokens := 0
	for b.Loop() {
		n := stream()
		if n != benchTokens {
			b.Fatal(strconv.Itoa(n) + " tokens")
		}
		tokens += n
	}
	used := cpu(b) - began
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(used.Nanoseconds())/float64(tokens), "cpu-ns/token")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(tokens), "B/token")
}
