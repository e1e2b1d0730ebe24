// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/encoding/internal/metadata"
	"github.com/moonloop/moonloop/exporter/decode"
)

// coder converts spans to messages and back. It is safe for concurrent use, because several exporters and receivers may use it.
type coder struct {
	log     *zap.Logger
	metrics metrics
	decoder *decode.Decoder
	batches sync.Pool // of *batch
	readers sync.Pool // of *journal.MessageReader
	warn    sync.Once
	samples decode.SamplingWarner
}

// The names of these interfaces in the contrib Collector's package encoding are TracesMarshalerExtension and TracesUnmarshalerExtension.
var _ interface {
	extension.Extension
	ptrace.Marshaler
	ptrace.Unmarshaler
} = (*coder)(nil)

// batch has the buffers of a message.
type batch struct {
	journal.Batch
	message []byte
}

func newCoder(set extension.Settings, cfg *Config) (*coder, error) {
	sampling, err := cfg.Sampling.Load()
	if err != nil {
		return nil, err
	}
	b, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, fmt.Errorf("metrics of the extension: %w", err)
	}
	return &coder{
		log: set.Logger, metrics: metrics{b}, decoder: decode.New(decode.Config{Sampling: sampling}),
		samples: decode.SamplingWarner{Sampling: sampling, Log: set.Logger},
		batches: sync.Pool{New: func() any { return new(batch) }},
		readers: sync.Pool{New: func() any { return new(journal.MessageReader) }},
	}, nil
}

// Start begins the metrics.
func (c *coder) Start(ctx context.Context, _ component.Host) error {
	c.metrics.begin(ctx)
	c.samples.Begin()
	return nil
}

// Shutdown ends the metrics. There is no message to flush: each call has returned its message to the exporter.
func (c *coder) Shutdown(context.Context) error {
	c.metrics.Shutdown()
	return nil
}

// keepBatch is the maximum size of a message whose memory is reused.
const keepBatch = 1 << 20

// MarshalTraces returns a message with the records of the spans, in their order. The spans are not changed.
func (c *coder) MarshalTraces(td ptrace.Traces) ([]byte, error) {
	b := c.batches.Get().(*batch)
	b.Reset()
	counts, err := c.decoder.Traces(td, func(r journal.Record) error {
		if request, ok := r.(*journal.Inference); ok && !decode.Annotated(request) {
			return nil
		}
		return b.Add(r)
	})
	if err != nil {
		c.metrics.failed(directionWritten)
		return nil, fmt.Errorf("the spans do not fit into a message: %w", err)
	}
	b.message = b.AppendMessage(b.message[:0])
	message := bytes.Clone(b.message)
	if cap(b.message) <= keepBatch {
		c.batches.Put(b)
	}
	if counts.Unannotated > 0 {
		c.warn.Do(func() {
			c.log.Warn("unannotated spans of requests are left out: put the receiver or the processor mooncake before the exporter that has this encoding (reported only once)",
				zap.Int64("spans", counts.Unannotated))
		})
	}
	c.metrics.wrote(&counts, len(message))
	c.samples.Warn(counts)
	return message, nil
}

// UnmarshalTraces returns a span for each record of a message, see [decode.Carry]. It keeps no reference to the message.
func (c *coder) UnmarshalTraces(message []byte) (ptrace.Traces, error) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	var counts decode.Counts
	r := c.readers.Get().(*journal.MessageReader)
	err := r.Read(message, func(record []byte, d *journal.Decoder) error {
		decode.Carry(spans.AppendEmpty(), record, d)
		switch d.Kind {
		case journal.KindInference:
			counts.Inferences++
		case journal.KindContent:
			counts.Contents++
		case journal.KindLink:
			counts.Links++
		}
		return nil
	})
	r.Shrink()
	c.readers.Put(r)
	if err != nil {
		c.metrics.failed(directionRead)
		return ptrace.NewTraces(), fmt.Errorf("message of %d bytes: %w", len(message), err)
	}
	if spans.Len() == 0 {
		td = ptrace.NewTraces()
	}
	c.metrics.passed(&counts, len(message), directionRead)
	return td, nil
}
