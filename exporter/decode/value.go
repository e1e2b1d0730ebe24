// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"math"
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

const (
	maxCount   = 1e12 // a larger value is not a number of tokens or rows
	maxNumber  = 1e15 // ms or s: beyond any clock
	maxSeconds = 1e7
	maxText    = 1 << 10 // bytes of a value that is hashed
	// maxHashIDs is the number of ids that fit into a record together with the longest chain and the longest lists of ranges and replies:
	// 320 Mi tokens in blocks of 512.
	maxHashIDs = (journal.MaxRecord - 3<<20) / 8
	maxCells   = (blockhash.MaxCells + 2) * 8 // bytes of mooncake.cells
	maxEnds    = blockhash.MaxEnds * 12       // bytes of mooncake.cells.ends
	maxExact   = 1 << 53                      // a double holds every integer up to this one exactly
)

// valid returns a value if it follows the contract. Otherwise it counts the violation, and returns the zero value.
func valid[T any](w *worker, key string, v T, ok bool) (got T) {
	if !ok {
		w.counts.invalid(key)
		return got
	}
	return v
}

// count reads a number of things. Not all producers write ints.
func (w *worker) count(key string, v pcommon.Value) mooncake.Opt[int64] {
	n, ok := int64(0), false
	switch v.Type() {
	case pcommon.ValueTypeInt:
		n, ok = v.Int(), true
	case pcommon.ValueTypeDouble:
		f := v.Double()
		if ok = f == math.Trunc(f) && math.Abs(f) <= maxExact; ok {
			n = int64(f)
		}
	case pcommon.ValueTypeStr:
		var err error
		n, err = strconv.ParseInt(v.Str(), 10, 64)
		ok = err == nil
	default:
	}
	return valid(w, key, mooncake.Some(n), ok && n >= 0 && n <= maxCount)
}

// number reads a number within two limits.
func (w *worker) number(key string, v pcommon.Value, low, high float64) mooncake.Opt[float64] {
	f := math.NaN()
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		f = v.Double()
	case pcommon.ValueTypeInt:
		f = float64(v.Int())
	default:
	}
	return valid(w, key, mooncake.Some(f), f >= low && f <= high)
}

func (w *worker) flag(key string, v pcommon.Value) bool {
	return valid(w, key, v.Bool(), v.Type() == pcommon.ValueTypeBool)
}

// text reads a string that will be parsed or hashed, never stored.
func (w *worker) text(key string, v pcommon.Value) (s string, ok bool) {
	ok = v.Type() == pcommon.ValueTypeStr && len(v.Str()) <= maxText
	return valid(w, key, v.Str(), ok), ok
}

// parsed reads a string that is parsed.
func parsed[T any](w *worker, key string, v pcommon.Value, parse func(string) (T, bool)) (got T) {
	s, ok := w.text(key, v)
	if !ok {
		return got
	}
	got, ok = parse(s)
	return valid(w, key, got, ok)
}

// failed reports whether an error type is set; a value that is not a string counts, too.
func (w *worker) failed(key string, v pcommon.Value) bool {
	switch v.Type() {
	case pcommon.ValueTypeEmpty:
		return false
	case pcommon.ValueTypeStr:
		return v.Str() != ""
	default:
		w.counts.invalid(key)
		return true
	}
}

func (w *worker) model(key string, v pcommon.Value) journal.Name {
	return w.modelOf(key, valid(w, key, v.Str(), v.Type() == pcommon.ValueTypeStr))
}

// modelOf returns the name of a model. Two models with invalid names must not become one, because their prompts would then share blocks:
// such a model gets a hash of its name.
func (w *worker) modelOf(key, s string) journal.Name {
	name, err := journal.ParseName(s)
	if err != nil {
		w.counts.invalid(key)
		name, _ = journal.ParseName("sha256:" + journal.SessionOf(s).String())
	}
	return name
}

func (w *worker) domain(key string, v pcommon.Value) journal.Domain {
	return parsed(w, key, v, func(s string) (journal.Domain, bool) {
		d, err := journal.ParseDomain(s)
		return d, err == nil
	})
}

// time reads a time; 0 is unknown.
func (w *worker) time(t pcommon.Timestamp, name string) int64 {
	return valid(w, name, int64(t), t <= math.MaxInt64) //nolint:gosec // just checked
}

// hashIDs reads ids: ints are the bit patterns of unsigned ids, and strings are ids that some JSON writers cannot represent as signed ints.
// If one cannot be read, all are dropped, because those after it would stand for other blocks.
func (w *worker) hashIDs(v pcommon.Value) []uint64 {
	ok := v.Type() == pcommon.ValueTypeSlice && v.Slice().Len() <= maxHashIDs
	w.ids = slices.Grow(w.ids[:0], 1) // an empty list is not an absent one
	for i := 0; ok && i < v.Slice().Len(); i++ {
		var id uint64
		switch e := v.Slice().At(i); e.Type() {
		case pcommon.ValueTypeInt:
			id = uint64(e.Int()) //nolint:gosec // two's complement is the contract
		case pcommon.ValueTypeStr:
			var err error
			id, err = strconv.ParseUint(e.Str(), 10, 64)
			ok = err == nil
		default:
			ok = false
		}
		w.ids = append(w.ids, id)
	}
	return valid(w, semconv.HashIDs, w.ids, ok)
}

// bytesOf returns a copy of the bytes of a value, in one step instead of byte by byte through At. It refuses a value with more bytes than
// the limit.
func bytesOf(v pcommon.Value, limit int) (b []byte, ok bool) {
	if v.Type() != pcommon.ValueTypeBytes || v.Bytes().Len() > limit {
		return nil, false
	}
	return v.Bytes().AsRaw(), true
}

// chain reads cells.
func (w *worker) chain(v pcommon.Value, p *journal.Prompt) {
	p.Chain.Cells = w.cells
	if b, ok := bytesOf(v, maxCells); !ok || p.Chain.UnmarshalBinary(b) != nil {
		w.counts.invalid(semconv.Cells)
		p.Chain = blockhash.Chain{}
		return
	}
	w.cells = p.Chain.Cells
}

// messages reads the ends of a text's messages and the end of the reply. The ends are useless without the cells.
func (w *worker) messages(ends, reply pcommon.Value, p *journal.Prompt) {
	if ends != (pcommon.Value{}) {
		p.Chain.Ends = w.ends
		if b, ok := bytesOf(ends, maxEnds); !ok || p.Chain.UnmarshalEnds(b) != nil {
			w.counts.invalid(semconv.CellsEnds)
			p.Chain.Ends = nil
		} else {
			w.ends = p.Chain.Ends
		}
	}
	if reply != (pcommon.Value{}) {
		var end blockhash.End
		b, ok := bytesOf(reply, maxEnds)
		ok = ok && end.UnmarshalBinary(b) == nil && p.Chain.Bytes > 0 && !p.Prefix && p.Chain.ValidateReply(end) == nil
		p.Reply = valid(w, semconv.CellsReply, end, ok)
	}
}

// blockSize reads a number of tokens per block; 0 is unknown.
func (w *worker) blockSize(key string, v pcommon.Value) uint32 {
	n := w.count(key, v).V
	return valid(w, key, uint32(n), n <= math.MaxInt32) //nolint:gosec // just checked
}

// tuples reads a list of ints as tuples, each of this size. The limit is the maximum number of tuples. If a tuple cannot be read, all are
// dropped, as for ids.
func tuples[T any](w *worker, key string, v pcommon.Value, memory *[]T, size, limit int, member func([]int64) (T, bool)) []T {
	ok := v.Type() == pcommon.ValueTypeSlice && v.Slice().Len()%size == 0 && v.Slice().Len() <= size*limit
	list := slices.Grow((*memory)[:0], 1) // an empty list is not an absent one
	w.ints = w.ints[:0]
	for i := 0; ok && i < v.Slice().Len(); i++ {
		e := v.Slice().At(i)
		ok = e.Type() == pcommon.ValueTypeInt
		if w.ints = append(w.ints, e.Int()); ok && len(w.ints) == size {
			var t T
			t, ok = member(w.ints)
			list, w.ints = append(list, t), w.ints[:0]
		}
	}
	*memory = list
	return valid(w, key, list, ok)
}

// hashRanges reads ranges of fine ids.
func (w *worker) hashRanges(v pcommon.Value) []mooncake.HashRange {
	return tuples(w, semconv.HashRanges, v, &w.ranges, 2, journal.MaxRanges, func(n []int64) (mooncake.HashRange, bool) {
		return mooncake.HashRange{First: uint64(n[0]), Count: n[1]}, n[1] >= 1 && n[1] <= maxCount //nolint:gosec // two's complement is the contract
	})
}

// replies reads the parts of a prompt that were replies.
func (w *worker) replies(v pcommon.Value) []mooncake.Reply {
	return tuples(w, semconv.Replies, v, &w.parts, 3, journal.MaxReplies, func(n []int64) (mooncake.Reply, bool) {
		return mooncake.Reply{Back: n[0], At: n[1], Tokens: n[2]}, slices.Min(n) >= 1 && slices.Max(n) <= maxCount
	})
}

// finish reads the reason why the first choice ended. The list may be empty.
func (w *worker) finish(key string, v pcommon.Value) journal.Name {
	if v.Type() == pcommon.ValueTypeSlice {
		if v.Slice().Len() == 0 {
			return journal.Name{}
		}
		v = v.Slice().At(0)
	}
	s, _ := w.text(key, v)
	return w.finishOf(s)
}

// finishOf returns a finish reason; an invalid name is dropped.
func (w *worker) finishOf(s string) journal.Name {
	name, err := journal.ParseName(s)
	return valid(w, semconv.GenAIResponseFinishReasons, name, err == nil)
}

// firstGap reads the time from the span's start to the first chunk from the series of arrivals, in ns.
func (w *worker) firstGap(v pcommon.Value) mooncake.Opt[int64] {
	if v.Type() == pcommon.ValueTypeSlice {
		if v.Slice().Len() == 0 {
			return mooncake.Opt[int64]{}
		}
		v = v.Slice().At(0)
		return valid(w, semconv.TokenGaps, mooncake.Some(v.Int()), v.Type() == pcommon.ValueTypeInt && v.Int() >= 0 && v.Int() <= maxSeconds*1e9)
	}
	w.counts.invalid(semconv.TokenGaps)
	return mooncake.Opt[int64]{}
}
