// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/moonloop/moonloop/exporter/segment"
)

// observer reports events of segments to the log and the metrics.
type observer struct {
	log *zap.Logger
	metrics
}

var _ segment.Observer = (*observer)(nil)

func (o *observer) Synced(took time.Duration, err error) {
	o.ExporterMooncakeSyncDuration.Record(context.Background(), took.Seconds(), resultOf(err))
	if err != nil {
		o.log.Error("journal cannot be made durable; the next one is begun", zap.Error(err))
	}
}

func (o *observer) Cut(c segment.Cut) {
	ctx := context.Background()
	o.ExporterMooncakeCuts.Add(ctx, 1, resultOf(c.Err))
	o.ExporterMooncakeCutDuration.Record(ctx, c.Took.Seconds())
	if c.Cause != nil {
		o.log.Error("segment can no longer be written", zap.String("segment", c.Segment), zap.Int64("lost_bytes", c.Lost), zap.Error(c.Cause))
	}
	if c.Err != nil {
		o.log.Error("segment cannot be closed; it continues, and the next attempt follows in some seconds", zap.String("segment", c.Segment), zap.Error(c.Err))
		return
	}
	o.ExporterMooncakeLost.Add(ctx, c.Lost)
	if c.Waited {
		o.ExporterMooncakeOversizeSegments.Add(ctx, 1)
	}
	o.log.Info("segment is closed", zap.String("segment", c.Segment), zap.Int64("bytes", c.Bytes), zap.Bool("waited", c.Waited), zap.Duration("took", c.Took))
}

func (o *observer) Compiled(c segment.Compilation) {
	ctx := context.Background()
	o.ExporterMooncakeCompilations.Add(ctx, 1, resultOf(c.Err))
	o.ExporterMooncakeCompileDuration.Record(ctx, c.Took.Seconds(), resultOf(c.Err))
	if c.Err != nil {
		o.log.Error("segment was not compiled; its journal is complete, and the next start tries again, as does moonloop compile",
			zap.String("segment", c.Segment), zap.Error(c.Err))
		return
	}
	for _, t := range c.Result.Traces {
		o.rows(ctx, t)
		o.log.Info("segment is compiled", zap.String("segment", c.Segment), zap.Stringer("run", t.Run), zap.Int64("rows", t.Meta.Rows),
			zap.Int64("merged", t.Merged), zap.Int64("merged_by_response_id", t.MergedByResponse), zap.Any("dropped", t.Meta.Dropped), zap.Duration("took", c.Took))
	}
	if torn := c.Result.Torn; torn.Records > 0 {
		o.log.Warn("segment has writes that were cut off, either before they were acknowledged (by a crash or a full disk) or later (by damage)",
			zap.String("segment", c.Segment), zap.Int64("writes", torn.Records), zap.Int64("bytes", torn.Bytes))
	}
	if n := c.Result.DamageCount; n > 0 {
		o.log.Warn("segment is damaged", zap.String("segment", c.Segment), zap.Int64("stretches", n), zap.Int64("bytes", c.Result.DamageBytes))
	}
}

func (o *observer) Removed(r segment.Removal) {
	o.ExporterMooncakeRemovedSegments.Add(context.Background(), 1, resultOf(r.Err))
	if r.Err != nil {
		o.log.Error("old segment cannot be removed", zap.String("segment", r.Segment), zap.Error(r.Err))
		return
	}
	o.log.Info("old segment was removed", zap.String("segment", r.Segment), zap.Int64("bytes", r.Bytes), zap.Bool("not_compiled", r.Pending))
}

func (o *observer) Leftover(file string, err error) {
	o.log.Error("journal of an earlier process cannot be continued and was left alone", zap.String("segment", file), zap.Error(err))
}
