// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// Observed is what production's telemetry reported for the request from which a row was captured. A replay does not use it; replays are
// compared with it. Absent does not mean 0: many producers never report how much of a prompt was cached.
type Observed struct {
	// CachedTokens is the number of prompt tokens that the engine took from its prefix cache, 0 to input_length.
	CachedTokens Opt[int64] // cached_tokens
	// TTFT is the time from the start of the request's span to its first token, Duration the time to the end of the span. Both are in
	// milliseconds, 0 or more.
	TTFT, Duration Opt[float64] // ttft_ms, duration_ms
	// FinishReason is why the reply ended, in the producer's words: stop, length, ... At most 64 letters, digits, _, - and ., with ;
	// between the reasons of several replies; empty if unknown.
	FinishReason string // finish_reason
}

// IsZero reports whether nothing was observed.
func (o Observed) IsZero() bool { return o == Observed{} }

// faultObserved checks that the observed values are possible.
func faultObserved(r *Row) *RowError {
	o := r.Observed
	if n := o.CachedTokens; n.Set && (n.V < 0 || n.V > maxTokens || r.InputLength.Set && n.V > r.InputLength.V) {
		return fault("observed.cached_tokens", n.V, "must be from 0 to input_length",
			"an engine cannot have cached more of a prompt than there is; "+correctOrOmit)
	}
	const rule = "must be 0 or more milliseconds, at most 2^53"
	if e := cmp.Or(faultTime("observed.ttft_ms", o.TTFT, rule, correctOrOmit),
		faultTime("observed.duration_ms", o.Duration, rule, correctOrOmit)); e != nil {
		return e
	}
	if !IsFinishReason(o.FinishReason) && o.FinishReason != "" {
		return fault("observed.finish_reason", word(o.FinishReason), "must be a word of at most 64 letters, digits, _, -, . and ;",
			correctOrOmit)
	}
	return nil
}

// IsFinishReason reports whether a text can be an [Observed].FinishReason: 1 to 64 letters, digits, _, -, . and ; of ASCII.
func IsFinishReason(s string) bool {
	return s != "" && len(s) <= 64 && strings.Trim(s, wordCharacters+".;") == ""
}

// ObservedCache compares, over the rows for which both are known, the prompt tokens that production's engine had cached with those that hit
// in an infinite prefix cache according to the trace. It shows, before a replay, whether the trace shares as much as production did. The
// zero value is ready to use.
type ObservedCache struct {
	Rows        int64 `json:"rows"`             // rows for which both are known
	InputTokens int64 `json:"input_tokens"`     // their prompt tokens
	Cached      int64 `json:"cached_tokens"`    // those of them that the engine had cached
	Predicted   int64 `json:"predicted_tokens"` // those of them that hit in an infinite prefix cache, by the trace's ids and the engine's steps
	// Above counts rows of which the engine had cached more than the trace shares, by a whole block or more. Below counts rows of which it
	// had cached less, by a whole block or more.
	Above int64 `json:"rows_cached_more"`
	Below int64 `json:"rows_cached_less"`
	// Ranged counts rows whose sharing is known from hash_ranges. Step is the greatest number of tokens that divides all the engine's
	// counts of these rows; usually it is the engine's block. ByStep are the predicted tokens of these rows in steps of 16, 32, 64, ...
	// tokens.
	Ranged int64    `json:"rows_with_ranges,omitzero"`
	Step   int64    `json:"cached_in_steps_of,omitzero"`
	ByStep [7]int64 `json:"-"`
	// OutsideRows counts rows whose prompt is known and of which the engine had cached more than they share with earlier rows, by a whole
	// block or more. OutsideTokens is the sum of these differences. These tokens were cached by requests from outside the capture. An
	// engine with larger blocks than the trace, or a provider that counts in steps, reports less, so both are lower bounds.
	OutsideRows   int64 `json:"outside_rows,omitzero"`
	OutsideTokens int64 `json:"outside_tokens,omitzero"`
}

const (
	minStep  = 16 // tokens; no engine has smaller blocks that it caches only as a whole
	stepRows = 8  // with fewer rows, the step of the counts is not reliable: two random counts are both even in one of four cases
)

// Add adds the next row. predicted is the number of its prompt tokens that hit in an infinite cache with blocks of blockSize tokens: the
// blocks of hash_ranges, if the row has them.
func (c *ObservedCache) Add(row *Row, predicted int64, blockSize int) {
	cached := row.Observed.CachedTokens
	if !cached.Set || !row.InputLength.Set {
		return
	}
	c.Rows++
	c.InputTokens += row.InputLength.V
	c.Cached += cached.V
	c.Predicted += predicted
	if row.HashRanges != nil {
		c.addRanged(cached.V, predicted)
	}
	switch difference := cached.V - predicted; {
	case difference >= int64(blockSize):
		c.Above++
		if row.HashIDs != nil {
			c.OutsideRows++
			c.OutsideTokens += difference
		}
	case difference <= -int64(blockSize):
		c.Below++
	}
}

// CommonStep returns the greatest common divisor of two token counts; both are 0 or more. If one is 0, it returns the other.
func CommonStep(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// addRanged counts the tokens that the engine would have cached of a row, for each step in which it may count. So an engine with coarser
// blocks than the trace's finest is not mistaken for one that caches less.
func (c *ObservedCache) addRanged(cached, predicted int64) {
	c.Predicted -= c.ByStep[c.steps()]
	c.Ranged++
	c.Step = CommonStep(c.Step, cached)
	c.ByStep[0] += predicted // in the trace's finest blocks
	for i := 1; i < len(c.ByStep); i++ {
		step := int64(minStep) << i
		c.ByStep[i] += predicted / step * step
	}
	c.Predicted += c.ByStep[c.steps()] - predicted
}

// steps returns the index in ByStep of the engine's step.
func (c *ObservedCache) steps() int {
	at := 0
	for c.Step > 0 && c.Ranged >= stepRows && at+1 < len(c.ByStep) && c.Step%(minStep<<(at+1)) == 0 {
		at++
	}
	return at
}

// Rates returns the share of the prompt tokens that the engine had cached, and the share that the trace predicts, both from 0 to 1; 0 and 0
// without rows.
func (c ObservedCache) Rates() (cached, predicted float64) {
	tokens := float64(max(c.InputTokens, 1))
	return float64(c.Cached) / tokens, float64(c.Predicted) / tokens
}

// noticeable is the difference of the two rates, as a share of the prompt tokens, above which people should be warned. It is larger than
// the effect of finite caches and of block borders in a complete capture.
const noticeable = 0.02

// fineBlock is the largest block size, in tokens, that is about as fine as an engine's, which usually has 16 tokens.
const fineBlock = 32

// String returns both rates in one sentence. It is empty without rows.
func (c ObservedCache) String() string {
	if c.Rows == 0 {
		return ""
	}
	cached, predicted := c.Rates()
	text := fmt.Sprintf("the engine had cached %.1f %% of the prompt tokens of %s; this trace predicts %.1f %%",
		100*cached, words.Plural(c.Rows, "request"), 100*predicted)
	if c.OutsideRows > 0 {
		text += fmt.Sprintf("; %s of %s were cached from outside the capture", words.Plural(c.OutsideTokens, "token"),
			words.Plural(c.OutsideRows, "request"))
	}
	return text
}

// Warning returns one sentence: how far the rates are apart, the likely reason, and advice. It is empty if they differ by at most 2 points.
// blockSize is the number of tokens per hash id of the trace.
func (c ObservedCache) Warning(blockSize int) string {
	cached, predicted := c.Rates()
	points := 100 * (cached - predicted)
	switch {
	case math.Abs(cached-predicted) <= noticeable:
		return ""
	case points < 0 && c.Cached == 0:
		return fmt.Sprintf("the engine reports no cached token at all, where this trace predicts %.1f %%: prefix caching was off or is not reported, "+
			"and a replay on an engine that caches has less work than production had", 100*predicted)
	case points < 0:
		return fmt.Sprintf("this trace shares %.1f points more than the engine had cached: the engine evicted blocks, other tenants shared its cache, several replicas "+
			"served the traffic, or a chat template puts parts of the prompt in a different order than the telemetry; a replay has less prefill work than production had", -points)
	}
	why := "requests from before or outside this capture had left blocks in the cache, or the text of some prompts is unknown"
	if blockSize > fineBlock && 2*c.Above <= c.Rows && 2*c.Ranged < c.Rows {
		why = fmt.Sprintf("prompts that share only a part of a block of %d tokens share nothing of it; compile the journals with --block-size %d to keep more", blockSize, fineBlock)
	}
	return fmt.Sprintf("this trace shares %.1f points less than the engine had cached: %s; a replay has more prefill work than production had", points, why)
}
