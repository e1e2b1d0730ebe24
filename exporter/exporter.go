// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper/xexporterhelper"
	"go.uber.org/zap"

	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/exporter/internal/metadata"
	"github.com/moonloop/moonloop/exporter/segment"
)

// journalExporter writes spans to the journal.
type journalExporter struct {
	options segment.Options
	decoder *decode.Decoder
	log     *zap.Logger
	metrics metrics
	models  *models
	pool    sync.Pool // of *records
	journal *segment.Journal
	faults  faults
	samples decode.SamplingWarner

	name    string
	started time.Time
	last    atomic.Int64 // when a request of production was last written, in ns since started
}

// age returns how long ago a request of production was written, or the exporter was started.
func (e *journalExporter) age() time.Duration {
	return time.Since(e.started) - time.Duration(e.last.Load())
}

func newJournalExporter(c *Config, set exporter.Settings) (*journalExporter, error) {
	sampling, err := c.Sampling.Load()
	if err != nil {
		return nil, err
	}
	b, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	e := &journalExporter{
		options: c.options(), decoder: decode.New(decode.Config{Sampling: sampling}), log: set.Logger, metrics: metrics{b},
		pool: sync.Pool{New: func() any { return new(records) }}, name: set.ID.String(), started: time.Now(),
		models: &models{max: c.MetricModels, metrics: metrics{b}, known: map[string]*[len(trafficNames)]*series{}},
	}
	e.options.Observer = &observer{set.Logger, e.metrics}
	if e.options.Compile != nil {
		e.options.Compile.Tool = set.BuildInfo.Command + " " + set.BuildInfo.Version
	}
	e.samples = decode.SamplingWarner{Sampling: sampling, Log: set.Logger}
	e.samples.Begin()
	if c.QueueConfig.HasValue() && !c.BackOffConfig.Enabled {
		set.Logger.Warn("sending_queue without retry_on_failure: spans that were acknowledged are dropped when they cannot be written at once")
	}
	return e, nil
}

func (e *journalExporter) start(context.Context, component.Host) error {
	j, err := segment.Open(e.options)
	if err != nil {
		return err
	}
	e.journal = j
	e.log.Info("journal is open", zap.String("segment", j.Segment()))
	e.metrics.begin()
	return e.metrics.watch(e.name, j, e.age)
}

func (e *journalExporter) shutdown(ctx context.Context) error {
	e.metrics.Shutdown()
	if e.journal == nil {
		return nil // never started
	}
	return e.journal.Close(ctx)
}

// push writes the records of a request to the journal. It may be tried again after an error.
func (e *journalExporter) push(ctx context.Context, from xexporterhelper.Request) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	r := from.(*records)
	written, err := e.journal.Append(&r.batch)
	if err != nil {
		why := faultOf(err)
		e.metrics.ExporterMooncakeFailedWrites.Add(ctx, 1, with("fault", why.name))
		e.faults.failed(e.log, why, err)
		return err
	}
	e.faults.succeeded(e.log)
	e.metrics.pushed(ctx, r.counts, written)
	e.samples.Warn(r.counts)
	e.count(ctx, &r.tally)
	e.release(r)
	return nil
}

// count counts the requests of a batch that is in the journal.
func (e *journalExporter) count(ctx context.Context, t *tally) {
	t.count(ctx, e.metrics)
	now := time.Now()
	if t.production {
		e.last.Store(int64(now.Sub(e.started)))
	}
	if t.ended > 0 {
		e.metrics.ExporterMooncakeLag.Record(ctx, max(0, now.Sub(time.Unix(0, t.ended)).Seconds()))
	}
}
