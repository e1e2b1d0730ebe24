// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"time"
)

// Latency is the latency model; the package comment has its formulas. The zero Latency takes no time.
type Latency struct {
	Prefill         time.Duration // of every prompt
	PrefillPerToken time.Duration // of each prompt token that was not cached
	SerialPrefill   bool          // one prefill at a time, in order of admission; otherwise side by side
	Decode          time.Duration // of every decode step
	// DecodePerSequence is added to a step for each sequence in it.
	DecodePerSequence time.Duration
	MaxBatch          int // sequences in a step; more take turns. 0 means no limit
}

// prefill returns the duration of a prefill that computes the given number of tokens.
func (l *Latency) prefill(tokens int) time.Duration {
	return l.Prefill + time.Duration(tokens)*l.PrefillPerToken
}

// step returns the time from one token of a sequence to the next while the given number of sequences decodes.
func (l *Latency) step(decoding int) time.Duration {
	turns := 1
	if b := l.MaxBatch; b > 0 && decoding > b {
		turns = (decoding + b - 1) / b
		decoding = b
	}
	return time.Duration(turns) * (l.Decode + time.Duration(decoding)*l.DecodePerSequence)
}

// pacer waits for the planned instants of one request.
type pacer struct {
	ctx   context.Context //nolint:containedctx // lives exactly as long as the request
	now   func() time.Duration
	timer *time.Timer
}

// until waits until the clock has reached the instant at. It returns an error as soon as the request is cancelled.
func (p *pacer) until(at time.Duration) error {
	wait := at - p.now()
	if wait <= 0 {
		return p.ctx.Err()
	}
	if p.timer == nil {
		p.timer = time.NewTimer(wait)
	} else {
		p.timer.Reset(wait)
	}
	select {
	case <-p.timer.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}
