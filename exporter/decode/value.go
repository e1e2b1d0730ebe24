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
	maxCount   = 1e12 // more tokens or rows than that are no count
	maxNumber  = 1e15 // ms or s: beyond any clock
	maxSeconds = 1e7
	maxText    = 1 << 10 // bytes of a value that is hashed
	// maxHashIDs is how many ids fit into a record beside the longest chain and the longest lists of ranges and replies: 320 Mi tokens
	// in blocks of 512.
	maxHashIDs = (journal.MaxRecord - 3<<20) / 8
	maxCells   = (blockhash.MaxCells + 2) * 8 // bytes of mooncake.cells
	maxEnds    = blockhash.MaxEnds * 12       // bytes of mooncake.cells.ends
	maxExact   = 1 << 53                      // integers that a double holds exactly
)

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
	if !ok || n < 0 || n > maxCount {
		w.counts.invalid(key)
		return mooncake.Opt[int64]{}
	}
	return mooncake.Some(n)
}

// number reads a finite number of at least low.
func (w *worker) number(key string, v pcommon.Value, low float64) mooncake.Opt[float64] {
	var f float64
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		f = v.Double()
	case pcommon.ValueTypeInt:
		f = float64(v.Int())
	default:
		f = math.NaN()
	}
	if key == semconv.GenAIResponseTimeToFirstChunk && f > maxSeconds {
		f = math.NaN()
	}
	if !(f >= low && f <= maxNumber) {
		w.counts.invalid(key)
		return mooncake.Opt[float64]{}
	}
	return mooncake.Some(f)
}

func (w *worker) flag(key string, v pcommon.Value) bool {
	if v.Type() != pcommon.ValueTypeBool {
		w.counts.invalid(key)
		return false
	}
	return v.Bool()
}

// text reads a string that is to be parsed or hashed, and never kept.
func (w *worker) text(key string, v pcommon.Value) (s string, ok bool) {
	if v.Type() != pcommon.ValueTypeStr || len(v.Str()) > maxText {
		w.counts.invalid(key)
		return "", false
	}
	return v.Str(), true
}

// failed reports whether a kind of error is named. One that is no string is there all the same.
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

// order reads the order of a prompt.
func (w *worker) order(key string, v pcommon.Value) journal.PromptOrder {
	s, ok := w.text(key, v)
	if !ok {
		return ""
	}
	o, ok := journal.ParsePromptOrder(s)
	if !ok {
		w.counts.invalid(key)
		return ""
	}
	return o
}

func (w *worker) model(key string, v pcommon.Value) journal.Name {
	if v.Type() != pcommon.ValueTypeStr {
		w.counts.invalid(key)
		return journal.Name{}
	}
	return w.modelOf(key, v.Str())
}

// modelOf returns the name of a model. Two models whose names are no names must not become one, whose prompts would then share
// blocks: such a model is called by a hash of its name.
func (w *worker) modelOf(key, s string) journal.Name {
	name, err := journal.ParseName(s)
	if err != nil {
		w.counts.invalid(key)
		name, _ = journal.ParseName("sha256:" + journal.SessionOf(s).String())
	}
	return name
}

func (w *worker) session(v pcommon.Value) journal.Session {
	id, _ := w.text(semconv.Session, v)
	return journal.SessionOf(id)
}

func (w *worker) domain(key string, v pcommon.Value) journal.Domain {
	s, ok := w.text(key, v)
	if !ok {
		return 0
	}
	d, err := journal.ParseDomain(s)
	if err != nil {
		w.counts.invalid(key)
	}
	return d
}

// time reads an instant; 0 is unknown.
func (w *worker) time(t pcommon.Timestamp, name string) int64 {
	if t > math.MaxInt64 {
		w.counts.invalid(name)
		return 0
	}
	return int64(t)
}

// hashIDs reads ids: ints are the patterns of unsigned ones, and strings are what writers of JSON make of those that no
// signed int holds. One that cannot be read costs them all: those behind it would stand for other blocks.
func (w *worker) hashIDs(v pcommon.Value) []uint64 {
	if v.Type() != pcommon.ValueTypeSlice || v.Slice().Len() > maxHashIDs {
		w.counts.invalid(semconv.HashIDs)
		return nil
	}
	w.ids = w.ids[:0]
	for _, e := range v.Slice().All() {
		var id uint64
		err := strconv.ErrSyntax
		switch e.Type() {
		case pcommon.ValueTypeInt:
			id, err = uint64(e.Int()), nil //nolint:gosec // two's complement is the contract
		case pcommon.ValueTypeStr:
			id, err = strconv.ParseUint(e.Str(), 10, 64)
		default:
		}
		if err != nil {
			w.counts.invalid(semconv.HashIDs)
			return nil
		}
		w.ids = append(w.ids, id)
	}
	return w.ids
}

// chain reads cells.
func (w *worker) chain(v pcommon.Value, p *journal.Prompt) {
	if v.Type() != pcommon.ValueTypeBytes || v.Bytes().Len() > maxCells {
		w.counts.invalid(semconv.Cells)
		return
	}
	p.Chain.Cells = w.cells
	// A copy in one go, not byte by byte through At.
	if err := p.Chain.UnmarshalBinary(v.Bytes().AsRaw()); err != nil {
		w.counts.invalid(semconv.Cells)
		p.Chain = blockhash.Chain{}
		return
	}
	w.cells = p.Chain.Cells
}

// messages reads the ends of a text's messages and that of its reply. They belong to the cells, without which they are nothing.
func (w *worker) messages(ends, reply pcommon.Value, p *journal.Prompt) {
	if ends != (pcommon.Value{}) {
		p.Chain.Ends = w.ends
		if ends.Type() != pcommon.ValueTypeBytes || ends.Bytes().Len() > maxEnds || p.Chain.UnmarshalEnds(ends.Bytes().AsRaw()) != nil {
			w.counts.invalid(semconv.CellsEnds)
			p.Chain.Ends = nil
		} else {
			w.ends = p.Chain.Ends
		}
	}
	if reply == (pcommon.Value{}) {
		return
	}
	var end blockhash.End
	if reply.Type() != pcommon.ValueTypeBytes || reply.Bytes().Len() > maxEnds || end.UnmarshalBinary(reply.Bytes().AsRaw()) != nil ||
		p.Chain.Bytes == 0 || p.Prefix || p.Chain.ValidateReply(end) != nil {
		w.counts.invalid(semconv.CellsReply)
		return
	}
	p.Reply = end
}

// blockSize reads a number of tokens per block; 0 is unknown.
func (w *worker) blockSize(key string, v pcommon.Value) uint32 {
	n := w.count(key, v)
	if n.V > math.MaxInt32 {
		w.counts.invalid(key)
		return 0
	}
	return uint32(n.V) //nolint:gosec // just checked
}

// tuples reads a list of ints, so many to a member, and at most so many members, into the worker's memory.
func (w *worker) tuples(key string, v pcommon.Value, size, most int) (ints []int64, ok bool) {
	if v.Type() != pcommon.ValueTypeSlice || v.Slice().Len()%size != 0 || v.Slice().Len() > size*most {
		w.counts.invalid(key)
		return nil, false
	}
	w.ints = w.ints[:0]
	for _, e := range v.Slice().All() {
		if e.Type() != pcommon.ValueTypeInt {
			w.counts.invalid(key)
			return nil, false
		}
		w.ints = append(w.ints, e.Int())
	}
	return w.ints, true
}

// hashRanges reads ranges of fine ids. One that cannot be read costs them all, as with ids.
func (w *worker) hashRanges(v pcommon.Value) []mooncake.HashRange {
	ints, ok := w.tuples(semconv.HashRanges, v, 2, journal.MaxRanges)
	if !ok {
		return nil
	}
	w.ranges = slices.Grow(w.ranges[:0], 1) // an empty list is not an absent one
	for ; len(ints) > 0; ints = ints[2:] {
		if ints[1] < 1 || ints[1] > maxCount {
			w.counts.invalid(semconv.HashRanges)
			return nil
		}
		w.ranges = append(w.ranges, mooncake.HashRange{First: uint64(ints[0]), Count: ints[1]}) //nolint:gosec // two's complement is the contract
	}
	return w.ranges
}

// replies reads the parts of a prompt that were replies.
func (w *worker) replies(v pcommon.Value) []mooncake.Reply {
	ints, ok := w.tuples(semconv.Replies, v, 3, journal.MaxReplies)
	if !ok {
		return nil
	}
	w.parts = slices.Grow(w.parts[:0], 1) // an empty list is not an absent one
	for ; len(ints) > 0; ints = ints[3:] {
		if slices.Min(ints[:3]) < 1 || slices.Max(ints[:3]) > maxCount {
			w.counts.invalid(semconv.Replies)
			return nil
		}
		w.parts = append(w.parts, mooncake.Reply{Back: ints[0], At: ints[1], Tokens: ints[2]})
	}
	return w.parts
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

// finishOf returns a finish reason, of which one that is no name is nothing.
func (w *worker) finishOf(s string) journal.Name {
	name, err := journal.ParseName(s)
	if err != nil {
		w.counts.invalid(semconv.GenAIResponseFinishReasons)
	}
	return name
}

// firstGap reads the time from the span's start to the first chunk out of the series of arrivals.
func (w *worker) firstGap(v pcommon.Value) mooncake.Opt[int64] {
	if v.Type() != pcommon.ValueTypeSlice || v.Slice().Len() > 0 && v.Slice().At(0).Type() != pcommon.ValueTypeInt {
		w.counts.invalid(semconv.TokenGaps)
		return mooncake.Opt[int64]{}
	}
	if v.Slice().Len() == 0 {
		return mooncake.Opt[int64]{}
	}
	if n := v.Slice().At(0).Int(); n >= 0 && n <= maxSeconds*1e9 {
		return mooncake.Some(n)
	}
	w.counts.invalid(semconv.TokenGaps)
	return mooncake.Opt[int64]{}
}
