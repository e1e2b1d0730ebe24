// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/ondisk"
	"github.com/moonloop/moonloop/mooncake"
)

// Ids that show what prompts share are made without a table of ids. Prompts form a tree of blocks, and each block belongs to
// the row that had it first. A row's own blocks are the end of its prompt, and their ids are consecutive. So the number of a
// row and a depth determine an id, and the ids of a prompt are a few ranges: one for each row whose blocks it shares, and one
// for its own blocks. The ids of the coarse blocks, which the exchange format uses, follow from the fine ones: two rows share a
// coarse block if they share the fine block at its end.

// FineBlockSize is the number of tokens per block of hash_ranges if it divides the block size of the trace. It is close to the
// block size of real prefix caches.
const FineBlockSize = 16

// FineBlockSizeOf returns the number of tokens per fine block, given the trace's block size.
func FineBlockSizeOf(size int) int {
	if size%FineBlockSize == 0 {
		return FineBlockSize
	}
	return size
}

// sharing is what a row has in common with rows before it.
type sharing struct {
	kind   sharingKind
	number int64 // of the row, among those of its kind
	parts  []portion
	turns  []turn
	// limit is the greatest number of fine blocks that the text shared with earlier rows can have; 0: unknown. last is the number
	// of the row that first had the end of this text. Only if the engine reports more cached tokens does the row share more than
	// its parts, and at most up to limit.
	limit int64
	last  int64
}

// sharingKind says how it is known what a row shares.
type sharingKind byte

const (
	unshared     sharingKind = iota // nothing
	byText                          // by text
	byStructure                     // by the turns of a session alone
	sharingKinds = iota
)

// portion is a run of a prompt's blocks, from the end of the portion before it to its own end.
type portion struct {
	first int64 // number of the row that had these blocks first
	depth int64 // fine blocks of the prompt up to the portion's end
}

// add appends a portion, unless it is empty.
func (s *sharing) add(first, depth int64) {
	n := len(s.parts)
	switch {
	case n > 0 && depth <= s.parts[n-1].depth, depth == 0:
	case n > 0 && s.parts[n-1].first == first:
		s.parts[n-1].depth = depth
	default:
		s.parts = append(s.parts, portion{first, depth})
	}
}

// appendTo appends s in the encoding that decode reads.
func (s *sharing) appendTo(dst []byte) []byte {
	if dst = append(dst, byte(s.kind)); s.kind == unshared {
		return dst
	}
	dst = binary.AppendVarint(dst, s.number)
	dst = binary.AppendUvarint(dst, uint64(len(s.parts)))
	for _, p := range s.parts {
		dst = binary.AppendVarint(binary.AppendVarint(dst, p.first), p.depth)
	}
	dst = binary.AppendUvarint(dst, uint64(len(s.turns)))
	for _, t := range s.turns {
		dst = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(dst, t.of), t.at), t.tokens)
	}
	return binary.AppendVarint(binary.AppendVarint(dst, s.limit), s.last)
}

// decode reads what appendTo wrote, reuses the memory of s, and returns the bytes that follow.
func (s *sharing) decode(b []byte) []byte {
	*s = sharing{kind: sharingKind(b[0]), parts: s.parts[:0], turns: s.turns[:0]}
	if b = b[1:]; s.kind == unshared {
		return b
	}
	next := func() int64 {
		v, n := binary.Varint(b)
		b = b[n:]
		return v
	}
	count := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[n:]
		return v
	}
	s.number = next()
	for range count() {
		s.parts = append(s.parts, portion{next(), next()})
	}
	for range count() {
		s.turns = append(s.turns, turn{of: next(), at: next(), tokens: next()})
	}
	s.limit, s.last = next(), next()
	return b
}

// owner describes a row that owns blocks. It takes 48 bytes.
type owner struct {
	fine   uint64 // id of its own block at depth d: fine + d
	coarse uint64 // id of its own coarse block i: coarse + i
	row    int64  // index in the trace
	from   int64  // number of the row whose own blocks come directly before; below 0: none
	tokens uint32 // of its prompt; 0: the row was not written
	begin  uint32 // depth at which its own blocks begin
	turns  uint32 // index in ledger.turns of the first reply that ends after the shared blocks
	many   uint32 // number of these replies
}

// reply is a turn as the ledger has it.
type reply struct{ of, at, tokens int64 }

// ledger gives the rows of a trace their ids.
type ledger struct {
	size, fine int                                // tokens per block
	owners     [sharingKinds]*ondisk.Array[owner] // by number
	next       uint64                             // fine id
	turns      *ondisk.Array[reply]               // of all rows, those replies that end after the blocks that the row shares
	count      int64                              // of turns
	ends       map[uint64]uint64                  // coarse ids of prompts that end within the blocks of others, by their last fine id
}

// newLedger returns a ledger that uses this many bytes of memory, and the disk beyond that.
func newLedger(size, fine int, dir string, memory int) ledger {
	l := ledger{size: size, fine: fine, turns: ondisk.NewArray[reply](dir, memory/4)}
	for kind := range l.owners { // numbers are not in the order of rows
		l.owners[kind] = ondisk.NewScattered[owner](dir, memory*3/8)
	}
	return l
}

// err returns the error that made the ledger lose data.
func (l *ledger) err() error {
	err := l.turns.Err()
	for _, owners := range l.owners {
		err = cmp.Or(err, owners.Err())
	}
	return err
}

func (l *ledger) close() {
	l.turns.Close()
	for _, owners := range l.owners {
		owners.Close()
	}
}

// known returns the owner with a number, or the zero owner if that row has not been written.
func (l *ledger) known(kind sharingKind, number int64) owner { return l.owners[kind].At(number) }

// turn returns one of the turns of all rows.
func (l *ledger) turn(i uint32) turn {
	r := l.turns.At(int64(i))
	return turn{of: r.of, at: r.at, tokens: r.tokens}
}

func (l *ledger) addTurn(t turn) {
	*l.turns.Put(l.count) = reply{t.of, t.at, t.tokens}
	l.count++
}

// at returns the owner of the block at a depth of a row, the owner's number, and a depth at which the owner's blocks have
// ended. ok is false if the owner is unknown.
func (l *ledger) at(kind sharingKind, number, depth int64) (o owner, by, end int64, ok bool) {
	o, by, end = l.known(kind, number), number, math.MaxInt64
	for o.tokens > 0 && depth < int64(o.begin) && o.from >= 0 {
		end, by = min(end, int64(o.begin)), o.from
		o = l.known(kind, by)
	}
	return o, by, end, o.tokens > 0 && depth >= int64(o.begin)
}

// assignment is the state of giving one row its ids.
type assignment struct {
	*ledger
	numbers *numbers
	kind    sharingKind
	tokens  int64
	blocks  int64 // fine ones
	done    int64 // number of fine blocks that have their ids
	from    int64 // number of the row whose own ids were taken last; below 0: none
	ranges  []mooncake.HashRange
	ids     []uint64
	turns   []turn // of the row
	own     int    // number of leading turns that are the row's own; they are in order
	asked   int    // number of its own turns before the one that was asked for last
}

// take gives the row consecutive ids, up to a depth.
func (p *assignment) take(first uint64, to int64) {
	n := len(p.ranges)
	if n > 0 && p.ranges[n-1].First+uint64(p.ranges[n-1].Count) == first { //nolint:gosec // above 0
		p.ranges[n-1].Count += to - p.done
	} else {
		p.ranges = append(p.ranges, mooncake.HashRange{First: first, Count: to - p.done})
	}
	p.done = to
}

// share gives the row the ids of another row up to a depth, and reports whether the other row has all of them.
func (p *assignment) share(number, to int64) bool {
	if of, _, _, ok := p.at(p.kind, number, p.done-1); to > p.done && p.done > 0 && (!ok || of.fine+uint64(p.done-1) != p.last()) {
		return false // the sender's claim cannot be true: the blocks before these are not the same
	}
	ratio := int64(p.size / p.fine)
	for to > p.done {
		// The current coarse block ends with this fine one.
		i := int64(len(p.ids))
		last := min((i+1)*ratio, p.blocks) - 1
		if last >= to {
			break
		}
		of, _, _, ok := p.at(p.kind, number, last)
		if !ok {
			return false
		}
		id := of.coarse + uint64(i)
		if last != (i+1)*ratio-1 && int64(of.tokens) != p.tokens {
			id = p.end(of.fine+uint64(last), p.numbers) //nolint:gosec // not negative
		}
		p.ids = append(p.ids, id)
		if last == p.blocks-1 {
			break
		}
	}
	for to > p.done {
		of, by, end, ok := p.at(p.kind, number, p.done)
		if !ok {
			return false
		}
		before := p.done
		p.take(of.fine+uint64(before), min(to, end)) //nolint:gosec // not negative
		p.inherit(of, before*int64(p.fine), p.done*int64(p.fine))
		p.from = by
	}
	return true
}

// inherit gives the row those replies of another row whose ends are in the range (from, to], in tokens.
func (p *assignment) inherit(of owner, from, to int64) {
	for i := range of.many {
		if t := p.turn(of.turns + i); from < t.end() && t.end() <= to {
			if !p.has(t.at) {
				p.turns = append(p.turns, t)
			}
		}
	}
}

// has reports whether the row itself has a reply that begins at a place in the prompt. Calls mostly come in increasing order.
func (p *assignment) has(at int64) bool {
	if p.asked > 0 && p.turns[p.asked-1].at >= at {
		p.asked = 0
	}
	for p.asked < p.own && p.turns[p.asked].at < at {
		p.asked++
	}
	return p.asked < p.own && p.turns[p.asked].at == at
}

// inOrder sorts the replies, removes repeated ones, and cuts them to the most that a row can have.
func (p *assignment) inOrder() {
	if len(p.turns) > p.own {
		slices.SortStableFunc(p.turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	}
	end := int64(0)
	p.turns = slices.DeleteFunc(p.turns, func(t turn) bool {
		if t.at <= end { // also a reply at 0: no prompt begins with one
			return true
		}
		end = t.end()
		return false
	})
	p.turns = p.turns[:min(len(p.turns), journal.MaxReplies)]
}

// keepTurns stores the replies that end after the shared tokens, for rows that will share them, and returns where they are.
func (p *assignment) keepTurns(shared int64) (first, many uint32) {
	first = uint32(p.count) //nolint:gosec // as many as there are in a journal
	for _, t := range p.turns {
		if t.end() > shared {
			p.addTurn(t)
		}
	}
	return first, uint32(p.count) - first //nolint:gosec // likewise
}

// whole returns the number of full blocks of another row, including a partial last block if that row is as long as this one.
func (p *assignment) whole(number int64) int64 {
	of := int64(p.known(p.kind, number).tokens)
	if of == p.tokens {
		return p.blocks
	}
	return min(of, p.tokens) / int64(p.fine)
}

// last returns the id of the last fine block that the row has so far, or 0 if it has none.
func (p *assignment) last() uint64 {
	if len(p.ranges) == 0 {
		return 0
	}
	r := p.ranges[len(p.ranges)-1]
	return r.First + uint64(r.Count-1) //nolint:gosec // a range has an id
}

// replied returns the number of full blocks of the prompt that the row's last reply answered, or 0 without a reply.
func (p *assignment) replied(s *sharing) int64 {
	if len(s.turns) == 0 {
		return 0
	}
	last := s.turns[len(s.turns)-1]
	return min(last.at/int64(p.fine), p.whole(last.of), p.blocks)
}

// assign gives the next row of the trace, whose index is given, the ids of its blocks of both sizes. It returns how many tokens
// of whole fine blocks the row shares with earlier rows.
func (l *ledger) assign(row *mooncake.Row, s *sharing, numbers *numbers, index int64) (shared int64) {
	tokens := row.InputLength.V
	p := assignment{
		ledger: l, numbers: numbers, kind: s.kind, tokens: tokens, blocks: int64(mooncake.BlockCount(tokens, l.fine)),
		ids:  make([]uint64, 0, mooncake.BlockCount(tokens, l.size)),
		from: -1, turns: s.turns, own: len(s.turns),
	}
	if n := len(s.turns); n > 0 {
		last := s.turns[n-1]
		p.inherit(l.known(s.kind, last.of), 0, last.at)
	}
	all := true // whether all shared text has its ids
	for _, part := range s.parts {
		if part.first == s.number {
			break
		}
		to := min(part.depth, p.whole(part.first), p.blocks)
		if all = p.share(part.first, to) && to == part.depth; !all {
			break
		}
	}
	if to := p.replied(s); all && to > p.done {
		// The prompt begins with the whole prompt that its last reply answered, whatever is known of the text between two
		// cells.
		p.share(s.turns[len(s.turns)-1].of, to)
	} else if to := min(row.Observed.CachedTokens.V/int64(l.fine), s.limit, p.whole(s.last)); all && p.done > 0 && to > p.done {
		// The engine had more cached. The common text may go on until the next end of a cell or message, and up to there the
		// engine can be right. Some providers count in steps of 128 tokens from 1,024 on, and nothing below; such counts
		// are too low, and change nothing here.
		p.share(s.last, to)
	}
	shared = min(p.done, tokens/int64(l.fine)) * int64(l.fine)
	p.inOrder()
	s.turns = p.turns
	turns, many := p.keepTurns(p.done * int64(l.fine))
	own := owner{
		turns: turns, many: many, row: index, from: p.from, tokens: uint32(tokens), begin: uint32(p.done), //nolint:gosec // at most MaxTokens
		fine: l.next - uint64(p.done), coarse: numbers.next - uint64(len(p.ids)), //nolint:gosec // wraps around, and back
	}
	if p.done < p.blocks {
		first := l.next
		l.next += uint64(p.blocks - p.done) //nolint:gosec // above 0
		p.take(first, p.blocks)
	}
	row.HashIDs = numbers.fresh(p.ids, cap(p.ids)-len(p.ids))
	l.keep(s.kind, s.number, own)
	if l.fine < l.size {
		row.HashRanges = p.ranges
	}
	return shared
}

// cachedOf returns how many prompt tokens of a row an infinite prefix cache would serve, given how many the row shares with
// earlier rows. A reply to an earlier row is cached, too, except its last token, which the engine never processed. No engine
// takes a whole prompt from its cache.
func cachedOf(row *mooncake.Row, shared int64) int64 {
	if row.HashRanges == nil { // only blocks of the exchange format, which may all be cached
		return shared
	}
	for _, r := range row.Replies {
		shared = max(shared, r.At+r.Tokens-1)
	}
	return min(shared, row.InputLength.V-1)
}

// end returns the id of the last block of a prompt that ends within the blocks of another row.
func (l *ledger) end(fine uint64, numbers *numbers) uint64 {
	id, known := l.ends[fine]
	if !known {
		if l.ends == nil {
			l.ends = map[uint64]uint64{}
		}
		id = numbers.next
		numbers.next++
		l.ends[fine] = id
	}
	return id
}

func (l *ledger) keep(kind sharingKind, number int64, o owner) {
	*l.owners[kind].Put(number) = o
}

// replies returns the parts of a row's prompt that were replies to rows of the trace, and the number of replies to requests
// that are not in it.
func (l *ledger) replies(s *sharing, index, tokens int64) (replies []mooncake.Reply, lost int64) {
	if len(s.turns) == 0 {
		return nil, 0
	}
	replies = make([]mooncake.Reply, 0, len(s.turns))
	for _, t := range s.turns {
		of := l.known(s.kind, t.of)
		if of.tokens == 0 || of.row >= index || t.end() >= tokens {
			lost++
			continue
		}
		replies = append(replies, mooncake.Reply{Back: index - of.row, At: t.at, Tokens: t.tokens})
	}
	if len(replies) == 0 {
		replies = nil
	}
	return replies, lost
}

// replayRows gives the rows of a replay the ranges and the replies that they were sent with.
type replayRows struct {
	ranges       mooncake.RenumberRanges
	came, became int64 // ranges of rows, and those that they were cut into
	// stretches of rows that are consecutive both in the replayed trace and in this one.
	stretches []stretchOfRows
}

// stretchOfRows has the index of its first row in the replayed trace (from), and the index of that row in this trace (to).
type stretchOfRows struct{ from, to int64 }

// Rows whose ranges would be cut into too many pieces, as in no real replay, get no ranges. Otherwise a journal could make a trace as long
// as the square of its own length.
const (
	freeRanges = 1 << 20
	cutsEach   = 16
)

// number returns a row's ranges by their numbers in this trace; nothing if they were cut into too many pieces.
func (r *replayRows) number(domain journal.Domain, ranges []mooncake.HashRange) []mooncake.HashRange {
	r.came += int64(len(ranges))
	if r.became > freeRanges+cutsEach*r.came {
		return nil
	}
	ranges = r.ranges.Domain(uint64(domain), nil, ranges)
	r.became += int64(len(ranges))
	return ranges
}

// row records the next row of the trace: its index in the replayed trace, above that of the row before, and its index in this one.
func (r *replayRows) row(from, to int64) {
	if n := len(r.stretches); n > 0 && from-r.stretches[n-1].from == to-r.stretches[n-1].to {
		return
	}
	r.stretches = append(r.stretches, stretchOfRows{from, to})
}

// replies returns the replies to rows of this trace: some rows of the replayed trace may not have been sent.
func (r *replayRows) replies(row *journal.Inference, index int64) (replies []mooncake.Reply) {
	for _, one := range row.Replies {
		if one.Back < 1 {
			continue
		}
		if to, ok := r.find(row.Row.V-one.Back, index); ok {
			replies = append(replies, mooncake.Reply{Back: index - to, At: one.At, Tokens: one.Tokens})
		}
	}
	return replies
}

// find returns the index in this trace, which has this many rows, of a row given by its index in the replayed trace.
func (r *replayRows) find(of, rows int64) (to int64, ok bool) {
	i, exact := slices.BinarySearchFunc(r.stretches, of, func(s stretchOfRows, of int64) int { return cmp.Compare(s.from, of) })
	if !exact {
		i--
	}
	if i < 0 {
		return 0, false
	}
	s, next := r.stretches[i], rows
	if i+1 < len(r.stretches) {
		next = r.stretches[i+1].to
	}
	to = s.to + of - s.from
	return to, to < next
}
