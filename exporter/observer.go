// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/moonloop/moonloop/exporter/segment"
)

// observer takes what happens to segments to the log and the metrics.
type observer struct {
	log     *zap.Logger
	metrics *metrics
}

var _ segment.Observer = (*observer)(nil)

func (o *observer) Synced(took time.Duration, err error) {
	o.metrics.b.ExporterMooncakeSyncDuration.Record(context.Background(), took.Seconds(), o.metrics.result(err))
	if err != nil {
		o.log.Error("journal cannot be made durable; the next one is begun", zap.Error(err))
	}
}

func (o *observer) Cut(c segment.Cut) {
	ctx, b := context.Background(), o.metrics.b
	b.ExporterMooncakeCuts.Add(ctx, 1, o.metrics.result(c.Err))
	b.ExporterMooncakeCutDuration.Record(ctx, c.Took.Seconds())
	if c.Cause != nil {
		o.log.Error("segment cannot be written any more", zap.String("segment", c.Segment), zap.Int64("lost_bytes", c.Lost), zap.Error(c.Cause))
	}
	if c.Err != nil {
		o.log.Error("end of a segment failed", zap.String("segment", c.Segment), zap.Error(c.Err))
		return
	}
	b.ExporterMooncakeCarriedTraces.Add(ctx, c.Carried)
	b.ExporterMooncakeCarried.Add(ctx, c.CarriedBytes)
	b.ExporterMooncakeLost.Add(ctx, c.Lost)
	if c.Waited {
		b.ExporterMooncakeOversizeSegments.Add(ctx, 1)
	}
	b.ExporterMooncakeLeftTraces.Add(ctx, c.TooOften, o.metrics.tooOften)
	b.ExporterMooncakeLeftTraces.Add(ctx, c.TooMany, o.metrics.tooMany)
	o.log.Info("segment is closed", zap.String("segment", c.Segment), zap.Int64("bytes", c.Bytes),
		zap.Int64("carried_traces", c.Carried), zap.Int64("carried_bytes", c.CarriedBytes), zap.Bool("waited", c.Waited), zap.Duration("took", c.Took))
	if left := c.TooOften + c.TooMany; left > 0 {
		o.log.Warn("traces that were still open were left behind: the segments' own traces have them in parts, moonloop compile has them whole",
			zap.String("segment", c.Segment), zap.Int64("carried_too_often", c.TooOften), zap.Int64("too_many", c.TooMany))
	}
}

func (o *observer) Compiled(c segment.Compilation) {
	ctx, b := context.Background(), o.metrics.b
	b.ExporterMooncakeCompilations.Add(ctx, 1, o.metrics.result(c.Err))
	if c.Err != nil {
		o.log.Error("segment was not compiled; its journal is complete, and the next start tries again, as does moonloop compile",
			zap.String("segment", c.Segment), zap.Error(c.Err))
		return
	}
	for _, t := range c.Result.Traces {
		b.ExporterMooncakeRows.Add(ctx, t.Meta.Rows)
		o.log.Info("segment is compiled", zap.String("segment", c.Segment), zap.Stringer("run", t.Run), zap.Int64("rows", t.Meta.Rows),
			zap.Int64("merged", t.Merged), zap.Any("dropped", t.Meta.Dropped), zap.Duration("took", c.Took))
	}
	if torn := c.Result.Torn; torn.Records > 0 {
		o.log.Warn("segment has writes that were cut off: before they were acknowledged, by a crash or a full disk, or by damage afterwards",
			zap.String("segment", c.Segment), zap.Int64("writes", torn.Records), zap.Int64("bytes", torn.Bytes))
	}
	if n := c.Result.DamageCount; n > 0 {
		o.log.Warn("segment is damaged", zap.String("segment", c.Segment), zap.Int64("stretches", n), zap.Int64("bytes", c.Result.DamageBytes))
	}
}

func (o *observer) Removed(r segment.Removal) {
	o.metrics.b.ExporterMooncakeRemovedSegments.Add(context.Background(), 1, o.metrics.result(r.Err))
	if r.Err != nil {
		o.log.Error("old segment cannot be removed", zap.String("segment", r.Segment), zap.Error(r.Err))
		return
	}
	o.log.Info("old segment was removed", zap.String("segment", r.Segment), zap.Int64("bytes", r.Bytes), zap.Bool("not_compiled", r.Pending))
}

func (o *observer) Leftover(file string, err error) {
	o.log.Error("journal of an earlier process cannot be continued and was left alone", zap.String("segment", file), zap.Error(err))
}
