// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// DefaultPredictorIDs is the default number of prefixes that a predictor remembers if ids are not canonical. They use about 200 MB.
const DefaultPredictorIDs = 1 << 22

// PredictorOptions configures a [Predictor]. The zero value compares the hash ids of blocks of 512 tokens.
type PredictorOptions struct {
	BlockSize int // tokens per hash id; 0 = [mooncake.BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = ignore ranges.
	FineBlockSize int
	// EngineBlock is the number of tokens in one block of the engine's cache. 0 = unknown; then each row's own finest blocks are used.
	EngineBlock int
	// NoReplies predicts for a replay whose prompts do not contain the engine's own replies, so its prompts differ from the cached tokens
	// where the replies are.
	NoReplies bool
	// MaxIDs is the number of prefixes to remember if ids are not canonical; 0 = [DefaultPredictorIDs]. Of rows with canonical ids, four
	// times as many are remembered.
	MaxIDs int
}

// Predictor predicts how many of a row's prompt tokens an infinite prefix cache would serve after the rows before it. It follows the chain
// of a row's ids from the first one on, separately for each model: after other ids, the same id stands for another block. While ids are
// canonical (0, 1, 2, ... in order of first appearance), a row with new blocks uses 16 bytes of memory; otherwise each new block uses about
// 50. Ranges use about 30 bytes for a row, and 100 for a range that is not canonical. A Predictor is not safe for concurrent use.
type Predictor struct {
	sharing
	opt     PredictorOptions
	unknown int64
	prompts int64 // see WithoutReplies
}

// Prediction is the number of tokens of a row's prompt that an infinite prefix cache would serve.
type Prediction struct {
	// Whole counts the tokens in whole blocks that earlier rows had, too. The blocks are those of [PredictorOptions].EngineBlock, or else
	// the trace's. If a row has ranges, or the engine's blocks are not the trace's, at least one token is left to compute, because no
	// engine serves a whole prompt from its cache.
	Whole int64
	// Finest counts every token in common, including those of partial last blocks. No engine can reuse more of a row, however small its
	// blocks are.
	Finest int64
}

// NewPredictor returns a predictor.
func NewPredictor(opt PredictorOptions) *Predictor {
	if opt.BlockSize <= 0 {
		opt.BlockSize = mooncake.BlockSize
	}
	if opt.MaxIDs <= 0 {
		opt.MaxIDs = DefaultPredictorIDs
	}
	return &Predictor{opt: opt, sharing: newSharing(opt.BlockSize, opt.FineBlockSize, opt.MaxIDs)}
}

// Predict returns the cached tokens of the next row in file order. ok is false if they are unknown, because the row describes its prompt in
// another way, or because the limit of remembered prefixes was reached.
//
// A row refers to an earlier reply by the number of rows back, so call either Predict or [Predictor.Skip] for each row of the trace.
func (p *Predictor) Predict(row *mooncake.Row) (tokens Prediction, ok bool) {
	if !row.InputLength.Set {
		p.Skip()
		return Prediction{}, false
	}
	common := p.add(row)
	p.prompts = common.prompts
	if !common.sure {
		p.unknown++
		return Prediction{}, false
	}
	most, length, grain := common.all, row.InputLength.V, cmp.Or(p.opt.EngineBlock, p.opt.BlockSize)
	if p.opt.NoReplies {
		most = common.prompts
	}
	switch {
	case common.ranged:
		grain = cmp.Or(p.opt.EngineBlock, p.opt.FineBlockSize)
	case grain == p.opt.BlockSize:
		return Prediction{Whole: common.wholeByIDs(length, grain), Finest: most}, true
	}
	return Prediction{Whole: wholeBlocks(most, length, int64(grain)), Finest: most}, true
}

// wholeBlocks returns how many of a prompt's cached leading tokens lie in whole blocks. It excludes the prompt's last token, which an
// engine always computes.
func wholeBlocks(cached, length, block int64) int64 { return min(cached, length-1) / block * block }

// Skip passes over the next row in file order: it is not predicted, and no later row shares anything with it.
func (p *Predictor) Skip() { p.skip() }

// WithoutReplies returns what Finest of the last predicted row would be with [PredictorOptions].NoReplies.
func (p *Predictor) WithoutReplies() int64 { return p.prompts }

// Unknown returns the number of rows without a prediction because the limit of remembered prefixes was reached.
func (p *Predictor) Unknown() int64 { return p.unknown }
