// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash

// Which ends of messages are worth their bytes. Cells are 8 bytes for every 128 bytes of text, and ends 12 for every message, so those
// of short messages would be most of what a prompt takes. Who has many prompts puts back what one of them leaves out: what stands
// before the end of a turn was the end of an earlier prompt, which listed it.

const (
	leastEnds = 4
	endEvery  = 768 // bytes of text: as many take 48 bytes of cells, of which 12 are a quarter
	moreEnds  = 2
	headRuns  = 2 // a system text and tools, in any order
)

// MostEnds returns the most ends of messages that [Chain.KeptEnds] keeps of a text of this many bytes: 4, or where they are more 2 and one for
// every 768 bytes of text, and never more than [MaxEnds].
func MostEnds(bytes int64) int {
	return int(min(max(leastEnds, moreEnds+bytes/endEvery), MaxEnds))
}

// KeptEnds returns the ends that are kept of a chain which has all of them, in order: all, if these are not more than [MostEnds], and else
// as many as that. First comes the last one; then where the assistant spoke last, and what that was the reply to; where the system text and the tools
// end; the last message of the user, and the end before it; then those in the same cell before that reply; further replies, from the end backwards;
// and then all others, likewise. The result is c.Ends, or it is in memory of its own.
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

// picked are ends that are kept.
type picked struct {
	ends []End
	is   []bool
	left int // that may be picked yet
}

// pick keeps ends, as far as there are such and there is room.
func (p *picked) pick(indices ...int) {
	for _, i := range indices {
		if i >= 0 && p.left > 0 && !p.is[i] {
			p.is[i] = true
			p.left--
		}
	}
}

// before returns the last end of a role at or before an index; below 0 where there is none.
func (p *picked) before(i int, role Role) int {
	for i >= 0 && p.ends[i].Role != role {
		i--
	}
	return i
}

// head reports whether an end is that of what a prompt begins with.
func (p *picked) head(i int) bool { return p.ends[i].Role == RoleSystem || p.ends[i].Role == RoleTools }
