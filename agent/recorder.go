// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/semconv"
)

// recorder takes in the records, one after another, on a goroutine of its own: figures, telemetry and files are
// written there, so that nothing of it happens while a request is dispatched or a stream is read.
type recorder struct {
	run    *run
	in     chan recorded
	giving sync.WaitGroup // request goroutines that have yet to hand their record over
	gone   sync.WaitGroup
	agg    *measure.Aggregate
	file   *report.Requests // nil without an output directory
	abort  func()           // nil once it has been called
	failed int64
	ended  int64
	models map[string]int64 // rows by the model that was asked for

	divisor       int64 // of all cached counts so far
	cachedReplies int   // that named cached tokens
}

type recorded struct {
	rec  *measure.Record
	span telemetry.Span
}

func newRecorder(r *run) (*recorder, error) {
	rc := &recorder{
		run: r,
		// When the recorder falls behind, finished requests wait here and then in their own goroutines, after
		// their stream has ended: late books, never a late request.
		in: make(chan recorded, 1024),
		agg: measure.NewAggregate(measure.Options{
			SLO:     r.cfg.SLO,
			Excused: func(a, b time.Duration) time.Duration { return r.watch.Excused(a, b) },
		}),
	}
	if r.cfg.Out == "" {
		return rc, nil
	}
	var err error
	rc.file, err = report.CreateRequests(r.cfg.Out, r.sidecar())
	return rc, err
}

// start begins to take records. abort is called when too many requests have failed.
func (rc *recorder) start(abort func()) {
	rc.abort = abort
	rc.gone.Go(func() {
		for r := range rc.in {
			rc.record(r.rec, r.span)
		}
	})
}

// take hands a record over. It must not be called after stop.
func (rc *recorder) take(rec *measure.Record, span telemetry.Span) { rc.in <- recorded{rec, span} }

// stop waits until every record has been taken in.
func (rc *recorder) stop() {
	rc.giving.Wait()
	close(rc.in)
	rc.gone.Wait()
}

func (rc *recorder) record(rec *measure.Record, span telemetry.Span) {
	r := rc.run
	compare(rec)
	rc.learnBlock(rec)
	rec.Span = span.Ref()
	rc.agg.Add(rec)
	rc.countModel(rec.Model)
	r.tel.Finish(span, rec)
	if rc.file != nil {
		rc.file.Write(rec)
	}
	r.live.ended(rec)
	if rec.Outcome != measure.Skipped {
		rc.ended++
	}
	if rec.Outcome == measure.Failed {
		rc.failed++
		rc.checkAbort()
	}
	rec.Exchange.Release()
}

// maxModels bounds the models that are counted by name.
const maxModels = 64

func (rc *recorder) countModel(name string) {
	if rc.models == nil {
		rc.models = make(map[string]int64)
	}
	if _, known := rc.models[name]; !known && len(rc.models) >= maxModels {
		name = semconv.ErrorOther
	}
	rc.models[name]++
}

// checkAbort ends the run early when more than the allowed share has failed, once enough has been tried.
func (rc *recorder) checkAbort() {
	limit := rc.run.cfg.AbortErrorRate
	armed := rc.ended >= int64(max(rc.run.cfg.Schedule.Concurrency, 10))
	if rc.abort != nil && limit > 0 && armed && float64(rc.failed) > limit*float64(rc.ended) {
		rc.abort()
		rc.abort = nil
	}
}
