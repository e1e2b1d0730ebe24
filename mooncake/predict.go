// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// DefaultPredictorIDs is the number of prefixes that a predictor remembers, when their ids are not canonical, unless it is
// told otherwise; about 200 MB.
const DefaultPredictorIDs = 1 << 22

// Predictor tells how many prompt tokens of a row an infinite prefix cache would serve after the rows before. It follows the
// chain of a row's ids from the first one on, for each model by itself: an id after other ids than before is another block.
// It takes 16 bytes for a row with new blocks while ids are canonical (0, 1, 2, ... in order of first appearance), else some
// 50 for each new block. It is not safe for concurrent use.
type Predictor struct {
	prefixes *prefixes
	unknown  int64
}

// Prediction is what an infinite prefix cache would have of a row's prompt, in tokens.
type Prediction struct {
	// Whole counts the blocks that rows before had in full: what an engine caches whose blocks are the trace's.
	Whole int64
	// Finest counts every token in common, those of partial last blocks included: no engine has more from these rows alone,
	// however fine its blocks are.
	Finest int64
}

// NewPredictor returns a predictor. blockSize is in tokens, 0 is [BlockSize]; bound is the number of prefixes to
// remember when ids are not canonical, 0 is [DefaultPredictorIDs]. Of rows with canonical ids it remembers four times as many.
func NewPredictor(blockSize, bound int) *Predictor {
	if blockSize <= 0 {
		blockSize = BlockSize
	}
	if bound <= 0 {
		bound = DefaultPredictorIDs
	}
	return &Predictor{prefixes: newPrefixes(blockSize, bound)}
}

// Predict returns the cached tokens of the next row in file order. ok is false when they cannot be told: the row gives its
// prompt in another way, or the bound is passed.
func (p *Predictor) Predict(row *Row) (tokens Prediction, ok bool) {
	if !row.InputLength.Set {
		return Prediction{}, false
	}
	common := p.prefixes.add(row)
	if !common.known {
		p.unknown++
		return Prediction{}, false
	}
	size := int64(p.prefixes.blockSize)
	return Prediction{Whole: min(int64(common.blocks), row.InputLength.V/size) * size, Finest: common.tokens}, true
}

// Unknown returns the number of rows without a prediction because the bound was passed.
func (p *Predictor) Unknown() int64 { return p.unknown }
