// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moonloop/moonloop/semconv"
)

// A receiver that accepts connections and never answers costs the memory of the spans that fit into the queue, and no more, however many
// spans follow.
func TestBlackHoleMemory(t *testing.T) {
	const bound = 1 << 20
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() }) // the kernel accepts the connections, and nobody serves them
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	cleanEnv(t, "OTEL_METRICS_EXPORTER=none")
	cfg := target
	cfg.Endpoint, cfg.QueueBytes, cfg.ExportTimeout = "http://"+ln.Addr().String(), bound, time.Hour
	p, _ := start(t, cfg)
	r := served(200)
	before := heap()
	const n = 3000 // each 10 kB and more on the wire
	for range n {
		finish(p, nil, r)
	}
	// A span in memory is several times its encoded size.
	if grown := heap() - before; grown > 10*bound {
		t.Errorf("the heap has grown by %d bytes with a queue of %d", grown, bound)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	loss, err := p.Shutdown(ctx)
	if err != nil {
		t.Error(err)
	}
	full, late := loss.Lost[semconv.LostQueueFull], loss.Lost[semconv.LostShutdown]
	if loss.Ended != 4*n || full == 0 || late == 0 || full+late != loss.Ended {
		t.Errorf("%+v, want %d spans, all lost to the full queue or the end", loss, 4*n)
	}
}

// An export of metrics that is under way at the end is waited for, but no longer than Shutdown may take.
func TestSlowMetricsReceiver(t *testing.T) {
	for name, c := range map[string]struct{ answer, limit time.Duration }{
		"in time":  {100 * ms, time.Minute},
		"too late": {time.Hour, 100 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan struct{}, 100)
			var exports atomic.Int64
			receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the client has left
				begun <- struct{}{}
				if exports.Add(1) == 1 {
					return // the SDK's first export, which is waited for anyway
				}
				select {
				case <-r.Context().Done():
				case <-time.After(c.answer):
				}
			}))
			defer receiver.Close()
			cleanEnv(t, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT="+receiver.URL)
			cfg := target
			cfg.MetricInterval = ms
			p, _ := start(t, cfg)
			<-begun
			<-begun
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			loss, err := p.Shutdown(ctx)
			if late := ctx.Err() != nil; err != nil || loss.MetricExports < 2 || late != (loss.MetricFailures > 0) {
				t.Errorf("%+v, %v; the time was over: %t", loss, err, late)
			}
		})
	}
}
