// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// streamKey identifies a stream. Caches of different models share nothing.
type streamKey struct{ model, tenant string }

// stream is the traffic of one model, and of one tenant if tenants are distinguished.
type stream struct {
	streamKey
	started pcommon.Timestamp // of its counters: a model that comes back after it expired begins again
	last    time.Time         // of its last analysed request
	reuse   *stats.Reuse
	kvBytes int64 // of a token; 0: not known

	promptTokens, reportedTokens, reportedOf int64
	results                                  map[string]int64

	// window holds states of the estimator, one for each interval, oldest first. If there were more than about windowStates, it has fewer.
	window []state
}

// windowStates makes a window longer by at most 1/windowStates. A state takes about 16 kB.
const windowStates = 128

// state is an estimator's counts at one time.
type state struct {
	at   time.Time
	hits stats.Hits
}

// Results of requests: analysed, or why not.
const (
	resultAnalysed  = "analysed"
	resultDuplicate = "duplicate" // another span of the same request came before
	resultFailed    = "failed"    // it was not served
	resultNoTokens  = "no_tokens" // its prompt tokens were not counted
	resultNoPrompt  = "no_prompt" // neither its span nor log records have a prompt
	resultStreams   = "too_many"  // there are max_streams models and tenants already
	resultReplay    = "replay"    // of a replay, and replays are off
	infinite        = "infinite"  // value of semconv.CacheCapacity
)

// Reasons why a span is neither a request nor used as the prompt of one.
const (
	ignoredOther     = "not_a_request"
	ignoredNoTraceID = "no_trace_id"
	ignoredNoSpanID  = "no_span_id"
	ignoredPrompt    = "unused_prompt" // a prompt from log records whose request did not come in time, was not analysed, or has another prompt
)

// add analyses a request, whose prompt and tokens are known.
func (s *stream) add(r *journal.Inference, p *prompt, now time.Time) {
	s.last = now
	s.reuse.Add(p.ids, p.size, float64(p.tokens), now.UnixNano())
	s.promptTokens += p.tokens
	if r.CachedTokens.Set {
		s.reportedTokens += min(r.CachedTokens.V, p.tokens)
		s.reportedOf += p.tokens
	}
}

// prompt is what is known of a request's prompt.
type prompt struct {
	tokens int64 // 0 or less: unknown
	known  bool  // more than its length is known
	ids    []uint64
	size   float64 // tokens of each block except the last
	all    uint64  // identifies the whole prompt
}

// promptOf returns the prompt of a request, of which the telemetry has this. Its blocks are the engine's or tokenizer's, else the cells of its
// text, whose size in tokens is the prompt's average. A text shorter than a cell has no block.
func promptOf(r *journal.Inference, of *journal.Prompt) prompt {
	tokens := r.InputTokens.V
	if !r.InputTokens.Set {
		tokens = r.InputLength.V // of a replayed row; 0 if there is none
	}
	switch {
	case len(of.HashIDs) > 0 && of.BlockSize > 0:
		return prompt{tokens, true, of.HashIDs, float64(of.BlockSize), of.HashIDs[len(of.HashIDs)-1]}
	case of.Chain.Bytes > 0:
		return prompt{tokens, true, of.Chain.Cells, float64(tokens) * blockhash.CellSize / float64(of.Chain.Bytes), of.Chain.Tail}
	}
	return prompt{tokens: tokens}
}

// recent returns the hits within the window, and stores the current state for later.
func (s *stream) recent(now time.Time, window time.Duration) stats.Hits {
	present := s.reuse.Hits()
	for len(s.window) > 1 && !s.window[1].at.After(now.Add(-window)) {
		s.window = s.window[1:]
	}
	since := present
	if len(s.window) > 0 && now.Sub(s.window[0].at) >= window {
		since = present.Since(s.window[0].hits)
	}
	if n := len(s.window); n > 1 && now.Sub(s.window[n-2].at) < window/windowStates {
		s.window = s.window[:n-1]
	}
	s.window = append(s.window, state{now, present})
	return since
}
