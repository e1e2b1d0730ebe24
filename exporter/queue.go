// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
	pdatarequest "go.opentelemetry.io/collector/pdata/xpdata/request"
	"go.uber.org/zap"

	"github.com/moonloop/moonloop/exporter/decode"
)

// A persistent queue stores records as one value:
//
//	moonloop-queue 1\n   the version
//	CRC-32C              of the rest, little-endian
//	summary              its length as a uvarint, then JSON: what the metrics count
//	records              as journal.Batch writes them
//
// Earlier versions stored spans, as most exporters do. They are still read, so that an update loses nothing that is queued.

const queueHeader = "moonloop-queue 1\n"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// summary is what is stored with the records.
type summary struct {
	Spans      int           `json:"spans"`
	Counts     decode.Counts `json:"counts"`
	Lines      []sums        `json:"lines,omitempty"`
	Ended      int64         `json:"ended,omitempty"`
	Production bool          `json:"production,omitempty"`
}

// queueEncoding reads and writes what a persistent queue stores.
type queueEncoding struct{ *journalExporter }

// Marshal encodes records for the queue, and releases them, because the queue does not need them afterwards. The context is not stored,
// because the journal does not use metadata of senders.
func (q queueEncoding) Marshal(_ context.Context, from xexporterhelper.Request) ([]byte, error) {
	r, ok := from.(*records)
	if !ok {
		return nil, errors.New("records of another exporter")
	}
	s := summary{Spans: r.spans, Counts: r.counts, Ended: r.tally.ended, Production: r.tally.production}
	for i := range r.tally.lines {
		s.Lines = append(s.Lines, r.tally.lines[i].sums)
	}
	head, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(queueHeader)+4+binary.MaxVarintLen64+len(head)+r.batch.EncodedSize())
	b = append(append(b, queueHeader...), 0, 0, 0, 0)
	b = append(binary.AppendUvarint(b, uint64(len(head))), head...)
	b = r.batch.AppendTo(b)
	binary.LittleEndian.PutUint32(b[len(queueHeader):], crc32.Checksum(b[len(queueHeader)+4:], castagnoli))
	q.release(r)
	return b, nil
}

// errDamagedItem is the error for a value of the queue with invalid bytes.
var errDamagedItem = errors.New("a value of the queue is damaged")

// Unmarshal decodes records. After an error, the queue drops the value without a count, and says so only in the debug log.
func (q queueEncoding) Unmarshal(b []byte) (context.Context, xexporterhelper.Request, error) {
	ctx, r, err := q.decode(b)
	if err != nil {
		q.metrics.ExporterMooncakeUnreadableQueueItems.Add(ctx, 1)
		q.log.Error("a batch in the sending queue cannot be read, and is lost", zap.Int("bytes", len(b)), zap.Error(err))
	}
	return ctx, r, err
}

func (q queueEncoding) decode(b []byte) (context.Context, xexporterhelper.Request, error) {
	if len(b) == 0 || b[0] != queueHeader[0] {
		return q.spans(b) // no encoding of spans begins with this byte
	}
	ctx := context.Background()
	rest, known := bytes.CutPrefix(b, []byte(queueHeader))
	if !known {
		return ctx, nil, fmt.Errorf("%w, or of a later version: it does not begin with %q", errDamagedItem, queueHeader)
	}
	if len(rest) < 4 || crc32.Checksum(rest[4:], castagnoli) != binary.LittleEndian.Uint32(rest) {
		return ctx, nil, fmt.Errorf("%w: its checksum does not match", errDamagedItem)
	}
	rest = rest[4:]
	n, used := binary.Uvarint(rest)
	if used <= 0 || n > uint64(len(rest)-used) { //nolint:gosec // not negative
		return ctx, nil, fmt.Errorf("%w: it is cut off", errDamagedItem)
	}
	head, list := rest[used:used+int(n)], rest[used+int(n):] //nolint:gosec // just checked
	var s summary
	if err := json.Unmarshal(head, &s); err != nil {
		return ctx, nil, fmt.Errorf("%w: %w", errDamagedItem, err)
	}
	r := q.pool.Get().(*records)
	r.reset()
	r.spans, r.counts, r.tally.ended, r.tally.production = s.Spans, s.Counts, s.Ended, s.Production
	for i := range s.Lines {
		if t := s.Lines[i].Traffic; t < 0 || t >= len(trafficNames) {
			return ctx, nil, fmt.Errorf("%w: its kind of traffic is %d", errDamagedItem, t)
		}
		r.tally.restore(&s.Lines[i], q.models)
	}
	if err := r.batch.UnmarshalFrom(list); err != nil {
		return ctx, nil, fmt.Errorf("%w: %w", errDamagedItem, err)
	}
	return ctx, r, nil
}

// spans decodes what an earlier version stored.
func (q queueEncoding) spans(b []byte) (context.Context, xexporterhelper.Request, error) {
	ctx, td, err := pdatarequest.UnmarshalTraces(b)
	if errors.Is(err, pdatarequest.ErrInvalidFormat) {
		ctx = context.Background()
		td, err = new(ptrace.ProtoUnmarshaler).UnmarshalTraces(b)
	}
	if err != nil {
		return ctx, nil, err
	}
	r, err := q.recordsOf(td)
	return ctx, r, err
}
