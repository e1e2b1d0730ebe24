// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// DefaultPredictorIDs is the number of ids that a predictor remembers, when they are not canonical, unless it is told
// otherwise; about 200 MB.
const DefaultPredictorIDs = 1 << 22

// Predictor tells how many prompt tokens of a row an infinite prefix cache would serve after the rows before. It
// takes no memory while ids are canonical (0, 1, 2, ... in order of first appearance): an id has been seen exactly when
// it is not above the largest one before. It is not safe for concurrent use.
type Predictor struct {
	blockSize int
	seen      seenIDs
	unknown   int64
}

// NewPredictor returns a predictor. blockSize is in tokens, 0 is [BlockSize]; bound is the number of ids to
// remember when they are not canonical, 0 is [DefaultPredictorIDs].
func NewPredictor(blockSize, bound int) *Predictor {
	if blockSize <= 0 {
		blockSize = BlockSize
	}
	if bound <= 0 {
		bound = DefaultPredictorIDs
	}
	return &Predictor{blockSize: blockSize, seen: seenIDs{max: bound}}
}

// Predict returns the cached tokens of the next row in file order: min(hit blocks * block size, input length). ok is
// false when that cannot be told: the row gives its prompt in another way, or the bound is passed.
func (p *Predictor) Predict(row *Row) (tokens int64, ok bool) {
	if !row.InputLength.Set {
		return 0, false
	}
	k, known := p.seen.add(row.Blocks(p.blockSize))
	if !known {
		p.unknown++
		return 0, false
	}
	return hitTokens(k, row.InputLength.V, p.blockSize), true
}

// Unknown returns the number of rows without a prediction because the bound was passed.
func (p *Predictor) Unknown() int64 { return p.unknown }

// seenIDs is the set of ids before a row.
type seenIDs struct {
	max  int
	next uint64              // ids below it have been seen, while ids are canonical and after
	rest map[uint64]struct{} // the other ones; nil while ids are canonical
	full bool                // ids were not remembered
}

// add puts a row's ids into the set and returns the number of leading ones that were there. known is false when an id
// that was not remembered may have been among them.
func (s *seenIDs) add(ids []uint64) (k int, known bool) {
	for k < len(ids) && s.has(ids[k]) {
		k++
	}
	known = k == len(ids) || !s.full
	for _, id := range ids[k:] {
		switch {
		case s.has(id):
		case s.rest == nil && id == s.next:
			s.next++
		case len(s.rest) >= s.max:
			s.full = true
		default:
			if s.rest == nil {
				s.rest = make(map[uint64]struct{})
			}
			s.rest[id] = struct{}{}
		}
	}
	return k, known
}

func (s *seenIDs) has(id uint64) bool {
	if id < s.next {
		return true
	}
	_, ok := s.rest[id]
	return ok
}
