// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"math/bits"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
)

// Some chat templates write a prompt in a different order than telemetry shows: Mistral's put the system text, or the tools, directly before
// the last message of the user, and so after everything that the turns of a conversation share. The marks of a prompt in such an order
// follow from those in telemetry's order: first the marks up to the last message of the user, closer to the beginning by what was moved;
// then one for what was moved; then the remaining ones.

// promptOrders are the orders that move something, in the order in which they are tried.
var promptOrders = [...]journal.PromptOrder{journal.SystemLast, journal.ToolsLast, journal.BothLast}

// heads are the roles of messages at the beginning of a prompt.
type heads uint8

const (
	systemHead heads = 1 << iota
	toolsHead
)

// head returns the kind of a message at the beginning of a prompt, 0 for another message.
func head(r blockhash.Role) heads {
	switch r {
	case blockhash.RoleSystem:
		return systemHead
	case blockhash.RoleTools:
		return toolsHead
	default:
		return 0
	}
}

// movedBy returns what an order moves.
func movedBy(o journal.PromptOrder) heads {
	switch o {
	case journal.SystemLast:
		return systemHead
	case journal.ToolsLast:
		return toolsHead
	case journal.BothLast:
		return systemHead | toolsHead
	case journal.AsSent:
	}
	return 0
}

// outline describes the messages of a prompt: the number of heads, their kinds, and the index of the last message of the user, which is
// below heads if there is none.
type outline struct {
	heads int
	found heads
	user  int
}

// outlineOf returns the outline of a prompt. ok is false if some ends of its messages are unknown.
func outlineOf(p *journal.Prompt) (o outline, ok bool) {
	ends := p.Chain.Ends
	if len(ends) == 0 || p.Prefix || ends[len(ends)-1].Bytes != p.Chain.Bytes {
		return outline{}, false
	}
	for ; o.heads < len(ends) && head(ends[o.heads].Role) != 0; o.heads++ {
		o.found |= head(ends[o.heads].Role)
	}
	for o.user = len(ends) - 1; o.user >= o.heads && ends[o.user].Role != blockhash.RoleUser; o.user-- {
	}
	return o, true
}

// movable returns the heads that an order can move after other messages.
func (o outline) movable() heads {
	if o.user <= o.heads {
		return 0
	}
	return o.found
}

// moves returns the heads of a prompt that an order moves: none if they are already directly before the last message of the user.
func (o outline) moves(p *journal.Prompt, order journal.PromptOrder) heads {
	moves := o.found & movedBy(order)
	switch {
	case o.user > o.heads:
		return moves
	case o.user < o.heads: // there is no message of the user
		return 0
	}
	for i := 1; i < o.heads; i++ {
		if head(p.Chain.Ends[i-1].Role)&moves != 0 && head(p.Chain.Ends[i].Role)&moves == 0 {
			return moves
		}
	}
	return 0
}

// turned is a prompt with its marks in another order.
type turned struct {
	laid
	out    laidOut
	marks  []byte
	model  int   // index in engines.list
	cached int64 // the engine's count; below 0: unknown
	fit
}

// fit has what the engine's counts can correct in the positions of marks: the number of the heads' tokens is a guess, because no prompt
// ends with them.
type fit struct {
	bounds []bound // where heads end
	// The marks after the heads, up to what was moved, are at their positions in telemetry's order, minus moved tokens.
	from, to int
	moved    int64
	key      uint64 // of what was moved
}

// bound is a range of marks, counted from 1: from the mark at which a head ends to the last mark that is less than a cell after it. All
// prompts with the key have the same heads up to the first of these marks.
type bound struct {
	mark, last int
	key        uint64
}

// guess is a number of tokens that can be corrected. The key identifies it.
type guess struct {
	key    uint64
	tokens int64
	less   bool // with fewer of these tokens, the marks are later
}

// guessOf returns the guess on which the position of a mark depends; ok is false if there is none.
func (f *fit) guessOf(mark int, ends []int64) (g guess, ok bool) {
	if f.from < mark && mark <= f.to {
		return guess{f.key, f.moved, true}, true
	}
	for _, b := range f.bounds {
		if b.mark <= mark && mark <= b.last {
			return guess{b.key, ends[mark-1], false}, true
		}
	}
	return guess{}, false
}

// correct moves marks. more has, for the key of a guess, by how many tokens the guess was too small.
func (f *fit) correct(ends []int64, more map[uint64]int64) {
	for _, b := range f.bounds {
		for i := b.mark; i <= b.last; i++ {
			ends[i-1] += more[b.key]
		}
	}
	if less := more[f.key]; less != 0 {
		for i := f.from; i < f.to; i++ {
			ends[i] = max(ends[i]-less, 0)
		}
	}
}

// turn reorders the marks of a prompt; ends are their positions in tokens.
func (d *turned) turn(order journal.PromptOrder, t *text, ends []int64) {
	d.marks, d.fit = d.marks[:0], fit{bounds: d.bounds[:0]}
	d.out = laidOut{tokens: t.InputTokens.V, whole: true, ends: d.out.ends[:0], turns: d.out.turns[:0]}
	moved := int64(0) // tokens
	from := 0
	until := func(to int) { // copies the marks before this one
		for ; from < to; from++ {
			d.marks = append(d.marks, t.marks[markLength*from:markLength*(from+1)]...)
			d.out.ends = append(d.out.ends, ends[from]-moved)
			if from+1 == t.media {
				d.out.media = len(d.out.ends)
			}
		}
	}
	o, _ := outlineOf(&t.Prompt)
	moves := o.moves(&t.Prompt, order)
	for i := range o.heads {
		to := t.ends[i]
		if head(t.Chain.Ends[i].Role)&moves != 0 {
			begin := int64(0)
			if from > 0 {
				begin = ends[from-1]
			}
			from, moved = to, moved+ends[to-1]-begin
			continue
		}
		until(to)
		key := t.value(to)
		if moved > 0 {
			key = turnValue(key)
		}
		d.bounds = append(d.bounds, bound{len(d.out.ends), len(d.out.ends), key})
	}
	// Prompts may have the same text within a cell after their heads.
	behind := from
	for behind > 0 && behind < len(ends) && t.at[behind] < t.at[from-1]+blockhash.CellSize {
		behind++
	}
	if n := len(d.bounds); n > 0 && o.user > o.heads {
		until(min(behind, t.ends[o.user-1]))
		d.bounds[n-1].last = len(d.out.ends)
	} else if n > 0 && moves == 0 {
		until(behind)
		d.bounds[n-1].last = len(d.out.ends)
	}
	d.from, d.to = len(d.out.ends), len(d.out.ends)
	last := 0 // marks up to the end of the last message of the user, if heads were moved to it
	if moves != 0 {
		d.moved, d.key = moved, t.value(t.ends[o.heads-1])
		if len(d.bounds) > 0 { // only some of the heads
			d.key = turnValue(turnValue(d.key))
		}
		until(t.ends[o.user-1])
		d.to = len(d.out.ends)
		// The mark of what was moved depends on everything before it, like any mark.
		d.marks = binary.BigEndian.AppendUint64(d.marks, turnValue(binary.BigEndian.Uint64(d.marks[len(d.marks)-markLength:])))
		d.out.ends = append(d.out.ends, ends[from-1])
		moved, last = 0, t.ends[o.user]
		if o.user == o.heads {
			mark := len(d.out.ends)
			key := t.value(from)
			until(behind)
			d.bounds = append(d.bounds, bound{mark, len(d.out.ends), key})
		}
	}
	until(len(ends))
	for _, r := range t.turns {
		// A reply is in the engine's cache only if its own prompt began like this one, and so had the same last message of the user.
		if r.mark > last {
			d.out.turns = append(d.out.turns, r)
		}
	}
}

// turnValue derives another value from a mark's.
func turnValue(value uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15
	return bits.RotateLeft64(value, 29) * odd
}
