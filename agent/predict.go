// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file converts the trace's prediction of a row's cache hits into one for this engine: for the blocks of its cache, and for the
// replies that were really carried.

import (
	"cmp"
	"sync/atomic"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// learnAfter is the number of replies with cached tokens from which the engine's block size is inferred.
const learnAfter = 16

// blocks are the numbers of tokens in a block: of the trace, of its ranges (0 = it has none) and of the engine's cache (0 =
// unknown).
type blocks struct{ size, fine, engine int64 }

// predictor predicts the cache hits of rows, and infers the engine's block size from its replies if nothing else states it.
type predictor struct {
	blocks
	learned atomic.Int64 // tokens in a block of the engine's cache, as inferred from its replies

	// Owned by the recorder.
	divisor int64 // the greatest common divisor of all cached counts so far
	replies int   // with cached tokens
}

// predict sets how many of a row's prompt tokens an infinite cache with the engine's blocks has.
func (c *predictor) predict(rec *measure.Record) {
	p, row := rec.Prediction, rec.Row
	if p.Finest < 0 || !row.InputLength.Set {
		return
	}
	if rec.Finest = p.Finest; p.Finest > rec.Prompts { // the rest is known to be cached only where replies were carried
		rec.Finest = rec.Prompts
		for i, why := range rec.Replies {
			// The engine never saw the last token that it generated.
			if n := row.Replies[i].At + row.Replies[i].Tokens - 1; why == "" && n <= p.Finest {
				rec.Finest = max(rec.Finest, n)
			}
		}
	}
	block := cmp.Or(c.engine, c.learned.Load())
	if block == 0 && len(row.HashRanges) > 0 {
		block = c.fine
	}
	if block == 0 { // whole blocks of the trace
		rec.Block, rec.Predicted = c.size, p.Whole
		return
	}
	// An engine computes at least one token of each prompt.
	rec.Block, rec.Predicted = block, max(0, min(rec.Finest, row.InputLength.V-1)/block*block)
}

// learn infers the engine's block size from the cached tokens of its replies: their greatest common divisor. This works only with a trace
// that is finer than the cache.
func (c *predictor) learn(rec *measure.Record) {
	cached := rec.Exchange.Usage.Cached
	if c.engine > 0 || c.fine == 0 || rec.Outcome != measure.Served || cached <= max(0, send.Unknown) {
		return
	}
	for n := cached; n > 0; {
		c.divisor, n = n, c.divisor%n
	}
	if c.replies++; c.replies >= learnAfter {
		c.learned.Store(c.divisor)
	}
}
