// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
)

// Spans become records before the queue, not after it. A record has a tenth of a span's size, in memory and in a queue's file, and is
// written to the journal without being decoded.

// records are the records of spans that arrived together, and what the metrics count when the records are in the journal.
type records struct {
	batch  journal.Batch
	spans  int // including those that did not become records
	counts decode.Counts
	tally  tally
}

var _ xexporterhelper.Request = (*records)(nil)

// reset empties r. Its memory is reused.
func (r *records) reset() {
	r.batch.Reset()
	r.spans, r.counts = 0, decode.Counts{}
	r.tally.reset()
}

// convert returns the records of spans. Its errors are permanent for the sender, so push, not convert, checks whether the sender has
// gone.
func (e *journalExporter) convert(_ context.Context, td ptrace.Traces) (xexporterhelper.Request, error) {
	return e.recordsOf(td)
}

func (e *journalExporter) recordsOf(td ptrace.Traces) (*records, error) {
	r := e.pool.Get().(*records)
	r.reset()
	r.spans = td.SpanCount()
	var err error
	r.counts, err = e.decoder.Traces(td, func(record journal.Record) error {
		if inference, ok := record.(*journal.Inference); ok {
			r.tally.add(inference, e.models)
		}
		return r.batch.Add(record)
	})
	if err != nil {
		// A record that does not fit into any journal; the decoder never makes one.
		return nil, fmt.Errorf("spans cannot be written to a journal: %w", err)
	}
	return r, nil
}

// keepBatch is the maximum size of a batch whose memory is reused.
const keepBatch = 4 << 20

// release keeps the memory of records for reuse, unless there is too much of it.
func (e *journalExporter) release(r *records) {
	if r.batch.Size() <= keepBatch {
		e.pool.Put(r)
	}
}

// ItemsCount returns the number of spans.
func (r *records) ItemsCount() int { return r.spans }

// BytesSize returns the size of the records in bytes.
func (r *records) BytesSize() int { return r.batch.Size() }

// MergeSplit adds other records, and splits the result into parts of at most limit records or bytes; 0 is no limit. A record above the
// limit is a separate part. The first part has everything that the metrics count, because that cannot be divided between records.
func (r *records) MergeSplit(_ context.Context, limit int, sizer exporterhelper.RequestSizerType, with xexporterhelper.Request) ([]xexporterhelper.Request, error) {
	if with != nil {
		other, ok := with.(*records)
		if !ok {
			return nil, errors.New("records of another exporter")
		}
		r.batch.AddFrom(&other.batch, 0, other.batch.Len())
		r.spans += other.spans
		r.counts.Add(other.counts)
		r.tally.merge(&other.tally)
	}
	size := func(int) int { return 1 }
	if sizer == exporterhelper.RequestSizerTypeBytes {
		size = r.batch.RecordSize
	}
	var cuts []int // a part ends before each of these
	for i, sum := 0, 0; limit > 0 && i < r.batch.Len(); i++ {
		n := size(i)
		if sum > 0 && sum+n > limit {
			cuts, sum = append(cuts, i), 0
		}
		sum += n
	}
	if len(cuts) == 0 {
		return []xexporterhelper.Request{r}, nil
	}
	parts := []xexporterhelper.Request{r}
	for i, from := range cuts {
		to := r.batch.Len()
		if i+1 < len(cuts) {
			to = cuts[i+1]
		}
		part := &records{spans: to - from}
		part.batch.AddFrom(&r.batch, from, to)
		parts = append(parts, part)
		r.spans -= part.spans
	}
	r.batch.Truncate(cuts[0])
	return parts, nil
}
