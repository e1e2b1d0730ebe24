// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestAcceptanceDay sends the requests of a day at 10 a second, always with new prompts, as fast as the documented Collector accepts them,
// and requires that its memory stays flat: nothing that it stores may grow with what it has seen.
func TestAcceptanceDay(t *testing.T) {
	if !acceptance() {
		t.Skip("run this with make acceptance")
	}
	day(t, 24*60*60*10, 4096)
}

// TestDay does so with the requests of a quarter of an hour.
func TestDay(t *testing.T) { day(t, 15*60*10, 4096) }

// hours makes about as many segments, each with its trace, as the documented settings make of a day.
const hours = `
exporters: {mooncake: {rotation: {max_size_mib: 16}, grace: 1s}, nop: }
service: {pipelines: {traces/jaeger: {processors: [memory_limiter], exporters: [nop]}}}
`

func day(t *testing.T, requests int, promptBytes int) {
	t.Helper()
	dir := t.TempDir()
	otelcol := configure(t, dir, settings{config: "otelcol-config.yaml", more: hours})
	p := otelcol.start(t)
	l := production(t, 50, promptBytes)
	to := dial(t, otelcol.address)
	began := time.Now()
	midnight := began.Add(-24 * time.Hour)

	var numbers atomic.Int64
	var senders sync.WaitGroup
	for range 2 {
		senders.Go(func() {
			for {
				last := numbers.Add(int64(l.spans))
				if last > int64(requests) {
					return
				}
				at := midnight.Add(time.Duration(last) * (time.Second / 10))
				if err := to.export(context.Background(), l.next(uint64(last)-uint64(l.spans)+1, at)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		senders.Wait()
		close(ended)
	}()
	var resident []int64 // samples of VmRSS, evenly in time
	for sampling := true; sampling; {
		select {
		case <-ended:
			sampling = false
		case <-time.After(50 * time.Millisecond):
			resident = append(resident, p.memory(t, "VmRSS"))
		}
	}
	otelcol.drain(t)
	took := time.Since(began)
	peak := p.memory(t, "VmHWM")
	p.stop(t)

	got := compile(t, dir)
	if len(got.rows) != requests {
		t.Errorf("%d rows of %d requests", len(got.rows), requests)
	}
	third := len(resident) / 3
	if third == 0 {
		t.Fatalf("%d samples in %v", len(resident), took)
	}
	first, second, last := resident[:third], resident[third:2*third], resident[2*third:]
	t.Logf("%d requests in %.1f s, %d journals; RSS MiB by thirds: median %d, %d, %d, floor %d, %d, %d, peak %d (%d samples)",
		requests, took.Seconds(), got.files, median(first)>>20, median(second)>>20, median(last)>>20,
		floor(first)>>20, floor(second)>>20, floor(last)>>20, peak>>20, len(resident))
	// In the first third, buffers and the heap grow to their usual size.
	if limit := floor(second) + floor(second)/8 + 16<<20; floor(last) > limit {
		t.Errorf("memory grows: from %d MiB in the second third to %d MiB in the last", floor(second)>>20, floor(last)>>20)
	}
}

// floor returns the resident memory between two compilations, which come and go: a tenth of the samples is below it.
func floor(samples []int64) int64 {
	return slices.Sorted(slices.Values(samples))[len(samples)/10]
}

func median(samples []int64) int64 {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/2]
}
