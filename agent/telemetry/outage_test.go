// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net"
	"runtime"
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
