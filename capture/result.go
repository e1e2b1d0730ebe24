// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"maps"
	"slices"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// Partition is one workload of the journals: production, or one replay.
type Partition struct {
	Replay bool         `json:"replay"`
	Run    journal.Name `json:"run,omitzero"` // of a replay; zero when its spans name none
}

// Result says what was compiled, and what was not.
type Result struct {
	Traces []TraceResult `json:"traces"` // production first, then runs by name; one without rows was not written

	Journals   int64        `json:"journals"`
	Inferences int64        `json:"inferences"` // records read, by kind
	Contents   int64        `json:"contents"`
	Links      int64        `json:"links"`
	Copies     int64        `json:"copies"` // records that were there before, byte for byte, and change nothing
	Torn       journal.Torn `json:"torn"`
	// TornIn are the journals that Torn is of, the first 100 at most.
	TornIn []string `json:"torn_in,omitempty"`
	// Damage is each stretch of damage, the first 100 at most; DamageCount and DamageBytes are of all.
	Damage      []journal.Damage `json:"damage,omitempty"`
	DamageCount int64            `json:"damage_count"`
	DamageBytes int64            `json:"damage_bytes"`
	// Dropped counts what belongs to no partition.
	Dropped []mooncake.Dropped `json:"dropped,omitempty"`
}

// TraceResult is the trace of one partition.
type TraceResult struct {
	Partition
	// Meta is the sidecar, with what was dropped. It counts what belongs to no partition, too.
	Meta mooncake.Meta `json:"meta"`
	// Spans is the number of distinct inference spans: as many as there are rows, merged spans, and rows, requests and spans that
	// were dropped for another reason than that they are duplicates.
	Spans int64 `json:"spans"`
	// Merged is the number of inference spans that stand for a request of which another span is the row.
	Merged int64 `json:"merged"`
}

// loss is a reason for dropping something.
type loss struct{ what, reason string }

// What is dropped. Where what is not rows, requests or spans, the row is there without it.
var (
	lostTorn       = loss{"records", "torn"}
	lostDamaged    = loss{"stretches of a journal", "damaged"}
	lostRun        = loss{"spans", "more runs than the limit"}
	lostDuplicate  = loss{"spans", "duplicate"}
	lostWarmup     = loss{"spans", "warm-up"}
	lostNoRow      = loss{"spans", "of a replay without a row"}
	lostPolicy     = loss{"spans", "replays policy"}
	lostFailed     = loss{"requests", "failed"}
	lostTime       = loss{"rows", "start before 2000 or after 2199"}
	lostTokens     = loss{"rows", "no token counts"}
	lostLength     = loss{"rows", "implausible token counts"}
	lostInvalid    = loss{"rows", "invalid"}
	lostRepeated   = loss{"rows", "row index occurs twice"}
	lostOrphan     = loss{"contents", "no inference span above"}
	lostSecond     = loss{"contents", "another one of the same span"}
	lostPart       = loss{"contents", "a part of a prompt that is not its beginning"}
	lostAncestry   = loss{"ancestries", "trace larger than the limit"}
	lostCycle      = loss{"parents", "cycle"}
	lostGraph      = loss{"graphs", "of a trace with too many spans that could be steps"}
	lostReversed   = loss{"ends", "before start"}
	lostBlockSize  = loss{"hash ids", "other block size"}
	lostSurplus    = loss{"hash ids", "more than the prompt has blocks"}
	lostCells      = loss{"cells", "not those of a text"}
	lostResponse   = loss{"response ids", "shared by too many spans"}
	lostRawPrompts = loss{"prompts", "span not annotated"}
	lostObserved   = loss{"observed cached tokens", "more than the prompt has"}
	lostRemote     = loss{"prompts", "a part is at the server only"}
	lostHidden     = loss{"prompts", "more tokens than the text has bytes"}
	lostClock      = loss{"arrivals", "by a clock that differs from those of clients"}
	lostRanges     = loss{"hash ranges", "not those of the prompt"}
	lostReply      = loss{"replies", "to a request that is no row"}
	lostRest       = loss{"prompts", "only a beginning is known"}
)

// tally counts losses.
type tally map[loss]int64

func (t tally) add(l loss, n int64) {
	if n > 0 {
		t[l] += n
	}
}

// remove takes one back.
func (t tally) remove(l loss) {
	if t[l]--; t[l] == 0 {
		delete(t, l)
	}
}

// list returns the counts in a fixed order.
func (t tally) list(more ...tally) []mooncake.Dropped {
	all := maps.Clone(t)
	for _, m := range more {
		for l, n := range m {
			all[l] += n
		}
	}
	var out []mooncake.Dropped
	for l, n := range all {
		out = append(out, mooncake.Dropped{What: l.what, Reason: l.reason, Count: n})
	}
	slices.SortFunc(out, func(a, b mooncake.Dropped) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// partition is what is known of a partition while it is compiled.
type partition struct {
	index uint32
	lost  tally
	TraceResult

	maxInput int64 // tokens of a row of production
	multi    bool  // a session has two rows
	// Sums over rows, for estimates: tokens and bytes of prompts that have both, outputs and their number.
	tokens, bytes, output, outputs uint64
}

func (p *partition) wanted(r Replays) bool {
	return r == ReplaysSeparate || p.Replay == (r == ReplaysOnly)
}
