// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/observe"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/semconv"
)

// recorder receives the records, one after another, on a separate goroutine. Figures, telemetry and files are written there, so that none
// of this happens while a request is dispatched or a stream is read.
type recorder struct {
	plan    plan
	texts   texts
	cache   *predictor
	tel     *telemetry.Pipeline
	live    *Live
	watch   *observe.Observer // of the hiccups that explain lateness
	abort   func()            // ends the run early
	figures *measure.Aggregate
	file    *report.Requests // nil if nothing needs it
	spool   string           // directory of the file if no results are kept
	models  map[string]int64 // rows by the requested model
	journal *report.Journal  // nil if no results are kept
	shift   time.Duration    // added to the times of records, to convert them to the clock of the first part of a resumed run
	failed  int64
	ended   int64

	in      chan recorded
	senders sync.WaitGroup // request goroutines that have not submitted their record yet
	gone    sync.WaitGroup
}

type recorded struct {
	rec   *measure.Record
	span  telemetry.Span
	shift time.Duration
}

// newRecorder returns a recorder, and creates its files, or opens those of a resumed run. live and watch must be set before its start.
func newRecorder(p plan, text texts, cache *predictor, tel *telemetry.Pipeline, before *past) (rc *recorder, err error) {
	rc = &recorder{
		plan: p, texts: text, cache: cache, tel: tel, models: make(map[string]int64),
		// If the recorder falls behind, finished requests wait here and then in their own goroutines, after their stream has ended. So
		// records may be late, but never requests.
		in: make(chan recorded, 1024),
	}
	defer func() {
		if err != nil {
			rc.abandon()
		}
	}()
	if before != nil {
		rc.figures, rc.models = before.figures, before.models
		cache.divisor, cache.replies = before.cache.divisor, before.cache.replies
		if rc.file, err = before.kept.Reopen(p.out, &p.sidecar); err == nil {
			rc.journal, err = before.journal.Reopen(p.out)
		}
		return rc, err
	}
	rc.figures = measure.NewAggregate(measure.Options{SLO: p.limits.slo})
	dir := p.out
	if dir == "" && p.steady.Any() {
		if rc.spool, err = os.MkdirTemp("", "moonloop-"); err != nil {
			return rc, fmt.Errorf("records cannot be stored for the steady state: %w; name a folder with --out", err)
		}
		dir = rc.spool
	}
	if p.out != "" {
		rc.file, rc.journal, err = report.Begin(p.out, &p.sidecar, p.beginning)
	} else if dir != "" {
		rc.file, err = report.CreateRequests(dir, &p.sidecar)
	}
	return rc, err
}

// start begins recording. abort is called when too many requests have failed.
func (rc *recorder) start(abort func()) {
	rc.abort = sync.OnceFunc(abort)
	rc.gone.Go(func() {
		for r := range rc.in {
			rc.record(r)
		}
	})
}

// submit queues a record. It must not be called after stop.
func (rc *recorder) submit(rec *measure.Record, span telemetry.Span) {
	rc.in <- recorded{rec, span, rc.shift}
}

// stop waits until every record has been written.
func (rc *recorder) stop() {
	rc.senders.Wait()
	close(rc.in)
	rc.gone.Wait()
}

// abandon removes the file of a run that failed to start, unless it was closed, and that of a run whose results are not kept.
func (rc *recorder) abandon() {
	if rc.file != nil {
		_ = rc.file.Abandon()
	}
	_ = rc.journal.Abandon()
	if rc.spool != "" {
		_ = os.RemoveAll(rc.spool)
	}
}

func (rc *recorder) record(r recorded) {
	rec, span := r.rec, r.span
	rc.texts.count(rc.plan, rec)
	compare(rec)
	rc.cache.learn(rec)
	rec.Span = span.Ref()
	if rec.Scheduled && rec.Lateness() > 0 {
		rec.Excused = rc.watch.Excused(rec.Intended, rec.Dispatched)
	}
	rc.tel.Finish(span, rec)
	rec.Shift(r.shift)
	rc.figures.Add(rec)
	countModel(rc.models, rec.Model)
	if rc.file != nil {
		rc.file.Write(rec)
	}
	rc.live.ended(rec)
	if rec.Outcome != measure.Skipped {
		rc.ended++
	}
	if rec.Outcome == measure.Failed {
		rc.failed++
		limits := rc.plan.limits
		share := limits.abortErrors > 0 && rc.ended >= limits.abortAfter && float64(rc.failed) > limits.abortErrors*float64(rc.ended)
		if share || limits.abortFailed > 0 && rc.failed >= limits.abortFailed {
			rc.abort()
		}
	}
	rec.Exchange.Release()
	records.Put(rec)
}

// maxModels is the maximum number of models that are counted by name.
const maxModels = 64

func countModel(models map[string]int64, name string) {
	if _, known := models[name]; !known && len(models) >= maxModels {
		name = semconv.ErrorOther
	}
	models[name]++
}

// compare compares the row's numbers with those that the server counted. It ignores impossible counts: no server has more of a prompt
// cached than there is.
func compare(r *measure.Record) {
	u := &r.Exchange.Usage
	if u.Prompt > send.Unknown && u.Cached > u.Prompt {
		u.Cached, r.CachedRefused = send.Unknown, true
	}
	if r.Outcome != measure.Served {
		return
	}
	// A row that is too short for the template was sent longer than its length, so it counts as different.
	if n := r.Row.InputLength; r.PromptTokens > 0 {
		r.Prompt = agree(u.Prompt, n.Or(r.PromptTokens)) // for a text, the tokenizer's count
	}
	if n := r.OutputTokensAsked; n > 0 {
		r.Output = agree(u.Completion, n)
	}
}

func agree(served, asked int64) measure.Agreement {
	switch served {
	case send.Unknown:
		return measure.AgreeUnknown
	case asked:
		return measure.AgreeEqual
	}
	return measure.AgreeDifferent
}
