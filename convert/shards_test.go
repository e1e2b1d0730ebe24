// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// TestShardsOfProducers deals the telemetry of real and imitated producers to journals at random. Shards compile the journals to the same
// traces as one process.
func TestShardsOfProducers(t *testing.T) {
	real, least := telemetryOf(t), int64(30) // rows
	if real == nil {
		least = 10
		t.Log("the captures of real producers are missing: ../shared/data/producers from the repository root")
	}
	imitated := len(real)
	for _, p := range testproducers.All() {
		real = append(real, string(p.Traces), string(p.Logs))
	}
	a, err := annotate.New(annotate.Config{Key: testKey(t)})
	must(t, err)
	d, rng := decode.New(decode.Config{}), rand.New(rand.NewPCG(2, 7))
	var batches [5]journal.Batch
	for i, text := range real {
		take(t, a, text, func(td ptrace.Traces) {
			if i >= imitated { // all imitated producers have the same ids
				eachSpan(td, func(s ptrace.Span) {
					id := s.TraceID()
					id[0] ^= byte(1 + (i-imitated)/2)
					s.SetTraceID(id)
				})
			}
			_, err := d.Traces(td, func(r journal.Record) error { return batches[rng.IntN(len(batches))].Add(r) })
			must(t, err)
		})
	}
	dir := t.TempDir()
	var sources []capture.Source
	for i := range batches {
		name := filepath.Join(dir, fmt.Sprintf("%d.journal", i))
		w, err := journal.OpenWriter(name, journal.WriterOptions{NoSync: true})
		must(t, err)
		must(t, errors.Join(w.AppendBatch(&batches[i]), w.Close()))
		content, err := os.ReadFile(name)
		must(t, err)
		sources = append(sources, capture.Source{
			Name: name, Size: int64(len(content)),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		})
	}
	for _, opt := range []capture.Options{{}, {MissingTokens: capture.MissingEstimate, BlockSize: 16, Graphs: capture.GraphsAll}} {
		var want []*trace
		wantResult, err := capture.Compile(t.Context(), opt, memory(&want), sources...)
		must(t, err)
		if len(want) == 0 || want[0].meta.Rows < least {
			t.Fatalf("%d traces, of which the first must have %d rows: this test says little", len(want), least)
		}
		for _, shards := range []int{2, 5} {
			opt.Memory, opt.TempDir = 1<<16, t.TempDir()
			got, results, errs := make([][]*trace, shards), make([]capture.Result, shards), make([]error, shards)
			var all sync.WaitGroup
			for i := range shards {
				all.Go(func() {
					shard := capture.Shard{Index: i, Of: shards, Dir: filepath.Join(opt.TempDir, "shards")}
					results[i], errs[i] = capture.CompileShard(t.Context(), opt, shard, memory(&got[i]), sources...)
				})
			}
			all.Wait()
			must(t, errors.Join(errs...))
			if !slices.EqualFunc(want, got[0], func(a, b *trace) bool {
				return a.Partition == b.Partition && bytes.Equal(a.text.Bytes(), b.text.Bytes()) && cmp.Equal(a.meta, b.meta)
			}) {
				t.Errorf("%d shards make other traces than one process", shards)
			}
			if diff := cmp.Diff(wantResult, results[0], cmp.Comparer(func(a, b journal.Name) bool { return a == b })); diff != "" {
				t.Errorf("%d shards (-one process +shards):\n%s", shards, diff)
			}
		}
	}
}

// telemetryOf returns the captures of real producers, if they are there.
func telemetryOf(t *testing.T) (all []string) {
	t.Helper()
	for _, kind := range []string{"traces", "logs"} {
		names, err := filepath.Glob(filepath.Join("..", "..", "shared", "data", "producers", "*."+kind+".jsonl"))
		must(t, err)
		for _, name := range names {
			content, err := os.ReadFile(name)
			must(t, err)
			all = append(all, string(content))
		}
	}
	return all
}
