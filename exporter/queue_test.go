// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/extension/xextension/storage"
	"go.opentelemetry.io/collector/pdata/ptrace"
	pdatarequest "go.opentelemetry.io/collector/pdata/xpdata/request"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/internal/metadatatest"
	"github.com/moonloop/moonloop/semconv"
)

// disk is a storage extension in memory. Its values survive the exporter, as those on a disk survive a process that is killed.
type disk struct {
	component.StartFunc
	component.ShutdownFunc
	mu     sync.Mutex
	values map[string][]byte
}

func (d *disk) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{diskID: d}
}

func (d *disk) GetClient(context.Context, component.Kind, component.ID, string) (storage.Client, error) {
	return d, nil
}
func (d *disk) Close(context.Context) error { return nil }

func (d *disk) Get(ctx context.Context, key string) ([]byte, error) {
	op := storage.GetOperation(key)
	err := d.Batch(ctx, op)
	return op.Value, err
}

func (d *disk) Set(ctx context.Context, key string, value []byte) error {
	return d.Batch(ctx, storage.SetOperation(key, value))
}

func (d *disk) Delete(ctx context.Context, key string) error {
	return d.Batch(ctx, storage.DeleteOperation(key))
}

func (d *disk) Batch(_ context.Context, ops ...*storage.Operation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, op := range ops {
		switch op.Type {
		case storage.Get:
			op.Value = bytes.Clone(d.values[op.Key])
		case storage.Set:
			d.values[op.Key] = bytes.Clone(op.Value)
		case storage.Delete:
			delete(d.values, op.Key)
		}
	}
	return nil
}

var diskID = component.MustNewID("disk")

// queued changes a configuration to one with a queue on a disk.
func queued(c *Config) {
	queue := exporterhelper.NewDefaultQueueConfig()
	queue.StorageID, queue.NumConsumers = &diskID, 1
	c.QueueConfig = configoptional.Some(queue)
	c.Compile = false
}

// mixture returns spans of each kind that records and metrics distinguish, and some that become no record.
func mixture() ptrace.Traces {
	now := time.Unix(1_750_000_000, 0)
	td := batchOf(
		request{model: "llama", identity: semconv.IdentityText, prompt: 100, output: 10, cached: 60, ended: now},
		request{model: "llama", identity: semconv.IdentityTrace, row: true, run: "r1", prompt: 30, output: 3, cached: 30, ended: now},
		request{model: "qwen", identity: semconv.IdentityNone, prompt: -1, output: -1, cached: -1, failed: true, ended: now.Add(-time.Second)},
		request{model: "other one", prompt: 7, output: 1, cached: -1, ended: now},
	)
	production(3).ResourceSpans().MoveAndAppendTo(td.ResourceSpans())
	broken := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	broken.AppendEmpty() // without ids
	return td
}

// recordsIn returns what the journals of a stopped exporter contain.
func recordsIn(t *testing.T, s started) (all []string) {
	t.Helper()
	for _, name := range journals(t, s.cfg.Directory) {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := journal.NewReader(name, bytes.NewReader(content))
		for {
			record, _, err := r.NextEncoded()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%x", record))
		}
	}
	return all
}

// metricsOf returns what an exporter counts for spans.
func metricsOf(t *testing.T, s started) (all []string) {
	t.Helper()
	for _, name := range []string{"records", "dropped_spans", "request_spans", "tokens", "invalid_attributes"} {
		if _, err := s.tel.GetMetric("otelcol_exporter_mooncake_" + name); err != nil {
			continue // nothing was counted
		}
		for _, line := range counts(t, s, name) {
			all = append(all, name+" "+line)
		}
	}
	return all
}

// With a queue on a disk, the journal and the metrics are the same as without one.
func TestQueueOnDisk(t *testing.T) {
	plain := start(t, func(c *Config) { c.Compile = false })
	if err := plain.ConsumeTraces(t.Context(), mixture()); err != nil {
		t.Fatal(err)
	}
	stop(t, plain)
	want, wantMetrics := recordsIn(t, plain), metricsOf(t, plain)
	if len(want) != 4+9 {
		t.Fatalf("%d records", len(want))
	}
	for name, encode := range map[string]func(t *testing.T) []byte{
		"as this version stores it": nil,
		"spans as an earlier version stored them": func(t *testing.T) []byte {
			t.Helper()
			b, err := pdatarequest.MarshalTraces(t.Context(), mixture())
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		"spans without the context of their request": func(t *testing.T) []byte {
			t.Helper()
			b, err := new(ptrace.ProtoMarshaler).MarshalTraces(mixture())
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &disk{values: map[string][]byte{}}
			s := create(t, queued)
			if encode != nil { // one item is queued: the write index is 1
				d.values["0"], d.values["wi"], d.values["ri"] = encode(t), []byte{1, 0, 0, 0, 0, 0, 0, 0}, make([]byte, 8)
			}
			if err := s.Start(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if encode == nil {
				if err := s.ConsumeTraces(t.Context(), mixture()); err != nil {
					t.Fatal(err)
				}
			}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				d.mu.Lock()
				_, there := d.values["0"]
				d.mu.Unlock()
				if !there {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("it stays in the queue")
				}
			}
			if err := s.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, recordsIn(t, s)); diff != "" {
				t.Errorf("journal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(wantMetrics, metricsOf(t, s)); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		})
	}
}

// encoding returns an exporter's encoding, and records of the mixture.
func encoding(t *testing.T) (queueEncoding, *records) {
	t.Helper()
	q, r, _ := counted(t)
	return q, r
}

// counted also returns what the exporter counts.
func counted(t *testing.T) (queueEncoding, *records, started) {
	t.Helper()
	s := create(t, func(*Config) {})
	cfg := createDefaultConfig().(*Config)
	cfg.Directory = filepath.Join(t.TempDir(), "journal")
	e, err := newJournalExporter(cfg, metadatatest.NewSettings(s.tel))
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.recordsOf(mixture())
	if err != nil {
		t.Fatal(err)
	}
	return queueEncoding{e}, r, s
}

// A value of the queue with any bit changed, or cut off anywhere, is refused, not written to the journal, and counted.
func TestQueueDamage(t *testing.T) {
	q, r, s := counted(t)
	stored, err := q.Marshal(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := q.Unmarshal(stored); err != nil {
		t.Fatal(err)
	}
	lost := 0
	read := func(b []byte) error {
		_, _, err := q.Unmarshal(b)
		if err != nil {
			lost++
		}
		return err
	}
	for at := range stored {
		damaged := bytes.Clone(stored)
		damaged[at] ^= 1 << (at % 8)
		if err := read(damaged); err == nil || at > 0 && !errors.Is(err, errDamagedItem) {
			t.Fatalf("with byte %d of %d changed: error %v", at, len(stored), err)
		}
		if err := read(stored[:at]); at > 0 && err == nil {
			t.Fatalf("%d bytes of %d: no error", at, len(stored))
		}
	}
	wantCounts(t, s, "unreadable_queue_items", fmt.Sprintf(" %d", lost))
}

// A queue that makes batches loses no record, repeats none, and counts each once, whatever the limit.
func TestMergeSplit(t *testing.T) {
	whole := func() *records {
		_, r := encoding(t)
		return r
	}
	size := whole().batch.Size()
	for _, c := range []struct {
		limit int
		sizer exporterhelper.RequestSizerType
		parts int // 0: any number of parts
	}{
		{0, exporterhelper.RequestSizerTypeItems, 1},
		{1, exporterhelper.RequestSizerTypeItems, 26},
		{7, exporterhelper.RequestSizerTypeItems, 4},
		{1000, exporterhelper.RequestSizerTypeItems, 1},
		{1, exporterhelper.RequestSizerTypeBytes, 26},
		{size / 3, exporterhelper.RequestSizerTypeBytes, 0},
		{2 * size, exporterhelper.RequestSizerTypeBytes, 1},
	} {
		a, b := whole(), whole()
		parts, err := a.MergeSplit(t.Context(), c.limit, c.sizer, b)
		if err != nil {
			t.Fatal(err)
		}
		if c.parts > 0 && len(parts) != c.parts || len(parts) == 0 {
			t.Errorf("limit %d %v: %d parts, want %d", c.limit, c.sizer, len(parts), c.parts)
		}
		var all journal.Batch
		var spans int
		var got records
		for _, p := range parts {
			r := p.(*records)
			all.AddFrom(&r.batch, 0, r.batch.Len())
			spans += r.ItemsCount()
			got.counts.Add(r.counts)
			got.tally.merge(&r.tally)
			if c.sizer == exporterhelper.RequestSizerTypeBytes && c.limit > 0 && r.BytesSize() > c.limit && r.batch.Len() > 1 {
				t.Errorf("limit %d: a part of %d bytes", c.limit, r.BytesSize())
			}
			if c.sizer == exporterhelper.RequestSizerTypeItems && c.limit > 0 && r.batch.Len() > c.limit {
				t.Errorf("limit %d: a part of %d records", c.limit, r.batch.Len())
			}
		}
		var want records
		for range 2 {
			r := whole()
			want.batch.AddFrom(&r.batch, 0, r.batch.Len())
			want.spans += r.spans
			want.counts.Add(r.counts)
			want.tally.merge(&r.tally)
		}
		if !bytes.Equal(all.AppendTo(nil), want.batch.AppendTo(nil)) || spans != want.spans {
			t.Errorf("limit %d %v: %d records and %d spans, want %d and %d", c.limit, c.sizer, all.Len(), spans, want.batch.Len(), want.spans)
		}
		if diff := cmp.Diff(want.counts, got.counts); diff != "" {
			t.Errorf("limit %d %v: counts (-want +got):\n%s", c.limit, c.sizer, diff)
		}
		if diff := cmp.Diff(sumsOf(&want.tally), sumsOf(&got.tally)); diff != "" {
			t.Errorf("limit %d %v: sums (-want +got):\n%s", c.limit, c.sizer, diff)
		}
	}
	if _, err := whole().MergeSplit(t.Context(), 0, exporterhelper.RequestSizerTypeItems, xexporterhelper.Request(nil)); err != nil {
		t.Errorf("without others: %v", err)
	}
}

// sumsOf returns the figures of a tally.
func sumsOf(t *tally) (all []sums) {
	for _, l := range t.lines {
		all = append(all, l.sums)
	}
	return append(all, sums{Model: fmt.Sprint(t.ended, t.production)})
}
