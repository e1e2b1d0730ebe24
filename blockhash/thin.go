// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

// This file selects the ends of messages that are worth their bytes. Cells take 8 bytes for every 128 bytes of text, and ends 12 for every
// message, so the ends of short messages would be most of a prompt's size. Readers of many prompts can restore omitted ends: an end before
// the last turn was the last end of an earlier prompt, which always has its own last end.

const (
	leastEnds = 4
	endEvery  = 768 // bytes of text: its cells take 48 bytes, and 12 is a quarter of that
	moreEnds  = 2
	headRuns  = 2 // a system text and tools, in any order
)

// MostEnds returns the maximum number of ends of messages that [Chain.KeptEnds] keeps for a text of this many bytes: 4, or, if that is more,
// 2 plus one for every 768 bytes of text, but never more than [MaxEnds].
func MostEnds(bytes int64) int {
	return int(min(max(leastEnds, moreEnds+bytes/endEvery), MaxEnds))
}

// KeptEnds returns the ends to keep of a chain that has all ends, in order: all, if they are not more than [MostEnds], else that many. The
// order of preference is: the last end; the end of the assistant's last message, and the end before it; the ends of the system text and the
// tools; the end of the user's last message, and the end before it; ends in the same cell as the end before the assistant's last message;
// the ends of other messages of the assistant, with the ends before them, from the last one backwards; then all others, also backwards. The
// result is c.Ends, or new memory.
func (c Chain) KeptEnds() []End {
	most := MostEnds(c.Bytes)
	if len(c.Ends) <= most {
		return c.Ends
	}
	p := picked{ends: c.Ends, is: make([]bool, len(c.Ends)), left: most}
	last := len(c.Ends) - 1
	p.pick(last)
	reply := p.before(last, RoleAssistant)
	p.pick(reply, reply-1)
	for i, runs := 0, 0; i < last && p.head(i) && runs < headRuns; i++ {
		if c.Ends[i+1].Role != c.Ends[i].Role {
			p.pick(i)
			runs++
		}
	}
	user := p.before(last, RoleUser)
	p.pick(user, user-1)
	for i := reply - 1; i > 0 && c.Ends[i-1].Bytes/CellSize == c.Ends[reply-1].Bytes/CellSize; i-- {
		p.pick(i - 1)
	}
	for i := p.before(reply-1, RoleAssistant); i >= 0 && p.left > 1; i = p.before(i-1, RoleAssistant) {
		p.pick(i, i-1)
	}
	for i := last; i >= 0 && p.left > 0; i-- {
		p.pick(i)
	}
	kept := make([]End, 0, most)
	for i, is := range p.is {
		if is {
			kept = append(kept, c.Ends[i])
		}
	}
	return kept
}

// picked are the selected ends.
type picked struct {
	ends []End
	is   []bool
	left int // how many more may be selected
}

// pick selects ends, as far as they exist and there is room.
func (p *picked) pick(indices ...int) {
	for _, i := range indices {
		if i >= 0 && p.left > 0 && !p.is[i] {
			p.is[i] = true
			p.left--
		}
	}
}

// before returns the index of the last end with a role at or before an index; below 0 if there is none.
func (p *picked) before(i int, role Role) int {
	for i >= 0 && p.ends[i].Role != role {
		i--
	}
	return i
}

// head reports whether an end belongs to the system text or the tools.
func (p *picked) head(i int) bool { return p.ends[i].Role == RoleSystem || p.ends[i].Role == RoleTools }
