// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// TestWithin: a call that does not end with its context is abandoned; the result of a call that does end counts.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := errors.New("its own error")
		stuck := make(chan struct{})
		for _, c := range []struct {
			name string
			f    func(context.Context) error
			want error
			took time.Duration
		}{
			{"ends at once", func(context.Context) error { return own }, own, 0},
			{"ends with its context", func(ctx context.Context) error { <-ctx.Done(); return own }, own, 10 * time.Second},
			{"ends soon after", func(ctx context.Context) error { <-ctx.Done(); time.Sleep(time.Second / 2); return own }, own, 10500 * time.Millisecond},
			{"does not end", func(context.Context) error { <-stuck; return own }, context.DeadlineExceeded, 11 * time.Second},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			began := time.Now()
			err := within(ctx, time.Second, func() error { return c.f(ctx) })
			if took := time.Since(began); !errors.Is(err, c.want) || took != c.took {
				t.Errorf("%s: %v after %v, want %v after %v", c.name, err, took, c.want, c.took)
			}
			cancel()
		}
		close(stuck)
	})
}

// switching starts a receiver that switches protocols and then says nothing, and returns its URL.
func switching(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	t.Cleanup(served.Wait)
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended); _ = l.Close() })
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer func() { _ = conn.Close() }()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, request.Body)
				fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
				<-ended
			})
		}
	})
	return "http://" + l.Addr().String()
}

// TestReceiverThatSwitchesProtocols: it delays neither the start of a run nor its end, and what it did not accept is counted.
func TestReceiverThatSwitchesProtocols(t *testing.T) {
	cleanEnv(t)
	cfg := Config{Endpoint: switching(t), ExportTimeout: 300 * time.Millisecond}
	for _, step := range []struct {
		name string
		do   func(context.Context)
	}{
		{"the check", func(ctx context.Context) {
			warnings, err := check(ctx, cfg, 300*time.Millisecond)
			if text := strings.Join(warnings, "\n"); err != nil || !strings.Contains(text, "spans and metrics do not arrive at "+cfg.Endpoint) {
				t.Errorf("the check: %q, %v", text, err)
			}
		}},
		{"the run", func(ctx context.Context) {
			p, err := Start(ctx, cfg, clock.New())
			if err != nil {
				t.Fatal(err)
			}
			finish(p, nil, served(2))
			end, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			loss, _ := p.Shutdown(end)
			if loss.Ended == 0 || loss.Accepted != 0 || loss.MetricFailures == 0 {
				t.Errorf("the run: %+v", loss)
			}
		}},
	} {
		done := make(chan struct{})
		go func() { step.do(t.Context()); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", step.name)
		}
	}
}
