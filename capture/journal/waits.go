// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

// This file records what a row of a replay waited for. The spans of a replay have it, so that a capture of the replay has the graph of the
// replayed trace.

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// Waits is what a row of a replay waited for. The zero Waits is that of a row outside graphs.
type Waits struct {
	InGraph         bool
	For             []RowEdge             // none for the first row of a graph
	Delay, ToolWait mooncake.Opt[float64] // in ms, 0 or more, as the row has them
}

// evidences are the bytes for kinds of evidence in a journal. A byte never changes its meaning.
var evidences = [...]mooncake.Evidence{
	0, mooncake.EvidenceTime, mooncake.EvidenceParent, mooncake.EvidenceToolCall, mooncake.EvidenceLink, mooncake.EvidenceSession,
}

// RowEdge identifies, by its index in the replayed trace, a row that another row follows.
type RowEdge struct {
	Row      int64
	Evidence mooncake.Evidence // 0 is unknown
}

func (e *encoder) waits(w *Waits) {
	if !w.InGraph {
		return
	}
	e.b = binary.AppendUvarint(append(e.b, tagWaits), uint64(len(w.For)))
	for _, edge := range w.For {
		e.b = append(binary.AppendUvarint(e.b, uint64(edge.Row)), byte(slices.Index(evidences[:], edge.Evidence))) //nolint:gosec // an index is never negative
	}
	at := len(e.b)
	e.b = append(e.b, 0)
	for i, ms := range [...]mooncake.Opt[float64]{w.Delay, w.ToolWait} {
		if ms.Set {
			e.b[at] |= 1 << i
			e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(ms.V))
		}
	}
}

func (p *parser) waits() Waits {
	w := Waits{InGraph: true}
	for range p.length(mooncake.MaxWaitFor) {
		edge := RowEdge{Row: p.count()}
		if said := p.byte(); int(said) < len(evidences) {
			edge.Evidence = evidences[said]
		} else {
			p.fail(errors.New("unknown evidence"))
		}
		w.For = append(w.For, edge)
	}
	set := p.byte()
	for i, ms := range [...]*mooncake.Opt[float64]{&w.Delay, &w.ToolWait} {
		if set&(1<<i) != 0 {
			*ms = mooncake.Some(p.float())
		}
	}
	if set>>2 != 0 {
		p.fail(errors.New("unknown time of a wait"))
	}
	return w
}
