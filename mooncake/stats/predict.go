// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// DefaultPredictorIDs is the number of prefixes that a predictor remembers, when their ids are not canonical, unless it is
// told otherwise; about 200 MB.
const DefaultPredictorIDs = 1 << 22

// PredictorOptions says what to predict. The zero value predicts by the hash ids of blocks of 512 tokens.
type PredictorOptions struct {
	BlockSize int // tokens per hash id; 0 is [mooncake.BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 leaves ranges out.
	FineBlockSize int
	// EngineBlock is the number of tokens that the engine caches as one; 0 is unknown: the trace's own blocks, the finest that a row
	// has.
	EngineBlock int
	// NoReplies predicts for an engine that sees other replies in a prompt than those it gave: a replay that does not carry them.
	NoReplies bool
	// MaxIDs is the number of prefixes to remember when ids are not canonical, 0 is [DefaultPredictorIDs]. Of rows with
	// canonical ids it remembers four times as many.
	MaxIDs int
}

// Predictor tells how many prompt tokens of a row an infinite prefix cache would serve after the rows before. It follows the
// chain of a row's ids from the first one on, for each model by itself: an id after other ids than before is another block.
// It takes 16 bytes for a row with new blocks while ids are canonical (0, 1, 2, ... in order of first appearance), else some
// 50 for each new block; ranges take some 30 for a row, and 100 for a range that is not canonical. It is not safe for
// concurrent use.
type Predictor struct {
	sharing
	opt     PredictorOptions
	unknown int64
	prompts int64 // see WithoutReplies
}

// Prediction is what an infinite prefix cache would have of a row's prompt, in tokens.
type Prediction struct {
	// Whole counts the blocks that rows before had in full: what an engine caches whose blocks are those of
	// [PredictorOptions].EngineBlock, or the trace's. Where a row has ranges, or the engine's blocks are not the trace's, it
	// leaves a token to compute: no engine takes all of a prompt from its cache.
	Whole int64
	// Finest counts every token in common, those of partial last blocks included: no engine has more from these rows alone,
	// however fine its blocks are.
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

// Predict returns the cached tokens of the next row in file order. ok is false when they cannot be told: the row gives its
// prompt in another way, or the bound is passed.
//
// Replies are named by the number of rows back, so each row of the trace is either predicted or skipped ([Predictor.Skip]).
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

// wholeBlocks returns the tokens in the whole blocks among the leading tokens of a prompt that a cache has, of which an engine
// computes the last one at least.
func wholeBlocks(cached, length, block int64) int64 { return min(cached, length-1) / block * block }

// Skip tells of the next row in file order that it is not predicted, and that no row shares anything with it.
func (p *Predictor) Skip() { p.skip() }

// WithoutReplies returns Finest of the row that was predicted last as it is for an engine that sees other replies in the prompt than
// those it gave.
func (p *Predictor) WithoutReplies() int64 { return p.prompts }

// Unknown returns the number of rows without a prediction because the bound was passed.
func (p *Predictor) Unknown() int64 { return p.unknown }
