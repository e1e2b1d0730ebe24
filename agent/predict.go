// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file turns what the trace predicts of a row's cache hits into what this engine should have: by the blocks of its cache,
// and by the replies that were really carried.

import (
	"cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// learnAfter is the number of replies with cached tokens from which the engine's block is concluded.
const learnAfter = 16

// predict says how many of a row's prompt tokens an infinite cache with the engine's blocks has.
func (r *run) predict(rec *measure.Record) {
	p, row := rec.Prediction, rec.Row
	if p.Finest < 0 || !row.InputLength.Set {
		return
	}
	if rec.Finest = p.Finest; p.Finest > rec.Prompts { // by the replies in it
		rec.Finest = rec.Prompts
		for i, why := range rec.Replies {
			// The engine never saw the last token that it generated.
			if n := row.Replies[i].At + row.Replies[i].Tokens - 1; why == "" && n <= p.Finest {
				rec.Finest = max(rec.Finest, n)
			}
		}
	}
	ranged := len(row.HashRanges) > 0 && r.cfg.Trace.FineBlockSize > 0
	block := int64(cmp.Or(r.cfg.Target.CacheBlock, int(r.learned.Load())))
	switch {
	case block == 0 && !ranged: // whole blocks of the trace, as they stand
		rec.Block, rec.Predicted = int64(r.cfg.Trace.BlockSize), p.Whole
		return
	case block == 0:
		block = int64(r.cfg.Trace.FineBlockSize)
	}
	// An engine computes a token of each prompt at least.
	rec.Block, rec.Predicted = block, max(0, min(rec.Finest, row.InputLength.V-1)/block*block)
}

// learnBlock concludes the engine's block from the cached tokens of its replies: what divides them all. Only a trace that is
// finer than a cache shows it.
func (rc *recorder) learnBlock(rec *measure.Record) {
	r := rc.run
	cached := rec.Exchange.Usage.Cached
	if r.cfg.Target.CacheBlock > 0 || r.cfg.Trace.FineBlockSize == 0 || rec.Outcome != measure.Served || cached <= max(0, send.Unknown) {
		return
	}
	for n := cached; n > 0; {
		rc.divisor, n = n, rc.divisor%n
	}
	if rc.cachedReplies++; rc.cachedReplies >= learnAfter {
		r.learned.Store(rc.divisor)
	}
}
