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

// Partition is one workload in the journals: production, or one replay.
type Partition struct {
	Replay bool         `json:"replay"`
	Run    journal.Name `json:"run,omitzero"` // of a replay; zero when its spans name none
}

// Result describes what was compiled, and what was left out.
type Result struct {
	Traces []TraceResult `json:"traces"` // production first, then runs by name; a trace without rows has no file

	Journals   int64        `json:"journals"`
	Inferences int64        `json:"inferences"` // records read, by kind
	Contents   int64        `json:"contents"`
	Links      int64        `json:"links"`
	Copies     int64        `json:"copies"` // records that repeat an earlier one byte for byte, and change nothing
	Torn       journal.Torn `json:"torn"`
	// TornIn lists the journals with torn bytes, at most the first 100.
	TornIn []string `json:"torn_in,omitempty"`
	// Damage lists stretches of damage, at most the first 100; DamageCount and DamageBytes count all of them.
	Damage      []journal.Damage `json:"damage,omitempty"`
	DamageCount int64            `json:"damage_count"`
	DamageBytes int64            `json:"damage_bytes"`
	// LeftOut lists optional journals that were not read, at most the first 100; Dropped counts all of them and their bytes.
	LeftOut []LeftOut `json:"left_out,omitempty"`
	// Dropped counts losses that belong to no partition.
	Dropped []mooncake.Dropped `json:"dropped,omitempty"`
}

// TraceResult is the trace of one partition.
type TraceResult struct {
	Partition
	// Meta is the sidecar file, including what was dropped. It also counts what belongs to no partition.
	Meta mooncake.Meta `json:"meta"`
	// Spans is the number of distinct inference spans. It equals the sum of the rows, the merged spans, and the rows, requests
	// and spans that were dropped, except duplicates.
	Spans int64 `json:"spans"`
	// Merged is the number of inference spans that describe a request for which another span became the row.
	Merged int64 `json:"merged"`
	// MergedByResponse is the number of those merged spans that were found by their response id and their time, because they are not below
	// each other in one OTel trace.
	MergedByResponse int64 `json:"merged_by_response_id"`
}

// loss is a reason for dropping something.
type loss struct{ what, reason string }

// The losses and their reasons. If a loss is not of rows, requests or spans, the row exists and lacks only that part.
var (
	lostTorn       = loss{"records", "torn"}
	lostDamaged    = loss{"stretches of a journal", "damaged"}
	lostForeign    = loss{"journals", whyForeign}
	lostForeignOf  = loss{"bytes of journals", whyForeign}
	lostRemoved    = loss{"journals", whyRemoved}
	lostRemovedOf  = loss{"bytes of journals", whyRemoved}
	lostRun        = loss{"spans", "more runs than the limit"}
	lostDuplicate  = loss{"spans", "duplicate"}
	lostWarmup     = loss{"spans", "warm-up"}
	lostNoRow      = loss{"spans", "of a replay without a row"}
	lostPolicy     = loss{"spans", "replays policy"}
	lostFailed     = loss{"requests", "failed"}
	lostSkipped    = loss{"requests", "skipped"}
	lostCancelled  = loss{"requests", "cancelled"}
	lostCut        = loss{"requests", "disconnected"}
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
	lostEdge       = loss{"edges", "to a row that is not here"}
	lostTools      = loss{"tool call ids", "of a trace with too many"}
	lostReversed   = loss{"ends", "before start"}
	lostBlockSize  = loss{"hash ids", "other block size"}
	lostDomain     = loss{"hash domains and keys", "of a row, beyond those that a sidecar lists"}
	lostSurplus    = loss{"hash ids", "more than the prompt has blocks"}
	lostCells      = loss{"cells", "not those of a text"}
	lostResponse   = loss{"response ids", "shared by too many spans"}
	lostMixed      = loss{"response ids", "shared by different requests"}
	lostRawPrompts = loss{"prompts", "span not annotated"}
	lostObserved   = loss{"observed cached tokens", "more than the prompt has"}
	lostExclusive  = loss{"prompt token counts", "cached tokens were added, because other spans of the same service and model show that its counts exclude them"}
	lostUnlike     = loss{"prompt token counts", "cached tokens were added to these only: too few spans of the same service and model have more cached tokens than prompt tokens"}
	lostRemote     = loss{"prompts", "a part is at the server only"}
	lostHidden     = loss{"prompts", "more tokens than the text has bytes"}
	lostClock      = loss{"arrivals", "by a clock that differs from those of clients"}
	lostRanges     = loss{"hash ranges", "not those of the prompt"}
	lostReply      = loss{"replies", "to a request without a row"}
	lostRest       = loss{"prompts", "only a beginning is known"}
)

// Why journals are left out: their first line cannot be read, or they are gone.
const (
	whyForeign = "damaged at the beginning, of another version, or not a journal"
	whyRemoved = "removed meanwhile"
)

// LeftOutReasons returns all reasons for which a request has no row: those of [mooncake.Dropped] rows and requests.
func LeftOutReasons() (reasons []string) {
	for _, l := range []loss{lostFailed, lostSkipped, lostCancelled, lostCut, lostTime, lostTokens, lostLength, lostInvalid, lostRepeated} {
		reasons = append(reasons, l.reason)
	}
	return reasons
}

// lossOf returns the reason for which a request that was not served has no row. A replay also ends requests itself.
func lossOf(e journal.Ending) loss {
	switch e {
	case journal.Skipped:
		return lostSkipped
	case journal.Cancelled:
		return lostCancelled
	case journal.Disconnected:
		return lostCut
	case journal.NoEnding:
	}
	return lostFailed
}

// tally counts losses.
type tally map[loss]int64

func (t tally) add(l loss, n int64) {
	if n > 0 {
		t[l] += n
	}
}

// remove subtracts one.
func (t tally) remove(l loss) {
	if t[l]--; t[l] == 0 {
		delete(t, l)
	}
}

// list returns the counts, with those of other tallies added, in a fixed order.
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

// partition is the state of a partition while it is compiled.
type partition struct {
	index uint32
	met   bool // it has at least one span
	lost  tally
	TraceResult

	maxInput int64 // tokens of a row of production
	multi    bool  // a session has two rows or more
	sums
}

// sums are sums over rows, for estimates: tokens and bytes of prompts that have both; tokens of outputs, and the number of outputs.
type sums struct {
	tokens, bytes, output, outputs uint64
}

func (p *partition) wanted(r Replays) bool {
	return r == ReplaysSeparate || p.Replay == (r == ReplaysOnly)
}
