// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/moonloop/moonloop/mooncake"
)

// AnalyzeOptions configures an [Analyzer]. The zero value is usable.
type AnalyzeOptions struct {
	BlockSize int // tokens per id; 0 = [mooncake.BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = ignore ranges.
	FineBlockSize int
	MaxIDs        int      // distinct ids to remember; 0 = [mooncake.DefaultMaxIDs]
	Capacities    []int    // of the simulated caches, in blocks
	Eviction      Eviction // of the simulated caches
	// Potential asks for the hits of caches of all sizes; nil = not computed.
	Potential *PotentialOptions
	// Sample asks for the error of the hit rate of a sample; nil = not computed.
	Sample     *SampleOptions
	TrunkShare float64 // ids in more than this share of the rows belong to no session; 0 = 0.01, and more than [TrunkRows] rows
}

// TrunkRows is the number of rows above which an id belongs to the trunk, unless a share is given. One conversation may have that many
// turns, so in a shorter trace the trunk cannot be told from a conversation.
const TrunkRows = 10

// Analysis is the result of an [Analyzer].
type Analysis struct {
	BlockSize int          `json:"block_size"`
	Rows      int64        `json:"rows"`
	Kinds     KindCounts   `json:"rows_by_kind"`
	Arrivals  ArrivalStats `json:"arrivals"`
	Input     LengthStats  `json:"input_length"`
	Output    LengthStats  `json:"output_length"`
	// Classes are the classes of the rows, by name; nil if no row has one.
	Classes  []ClassStats `json:"classes,omitempty"`
	Blocks   BlockStats   `json:"blocks"`
	Sessions SessionStats `json:"sessions"`
	// Graphs is zero if no row waits for others.
	Graphs GraphStats `json:"graphs,omitzero"`
	// Eviction is the order in which the finite caches in Caches evict the blocks of a row. Caches are sorted by capacity; the infinite cache is last.
	Eviction string       `json:"eviction"`
	Caches   []CacheStats `json:"caches"`
	// Potential is nil if it was not asked for.
	Potential *Potential `json:"cache_potential,omitempty"`
	// Sample is nil if it was not asked for.
	Sample *SampleStats `json:"sample,omitempty"`
	// ObservedCache is zero if no row has the tokens that production's engine had cached.
	ObservedCache mooncake.ObservedCache `json:"observed_cache,omitzero"`
	// Fine is zero if no row has hash_ranges or replies.
	Fine       FineStats            `json:"fine_sharing,omitzero"`
	Digests    mooncake.Digests     `json:"digests"`
	Violations []mooncake.Violation `json:"violations"`
	// Unchecked is the reason why rules V4 to V7 could not be checked; empty if they were.
	Unchecked string `json:"unchecked,omitempty"`
	// UncheckedRanges is the reason why rule V9 could not be checked; empty if it was, or if no row has hash_ranges.
	UncheckedRanges string `json:"unchecked_ranges,omitempty"`
}

// KindCounts counts rows by the kind of their prompt.
type KindCounts struct {
	Length   int64 `json:"input_length"`
	Text     int64 `json:"text_input"`
	Messages int64 `json:"messages"`
	Payload  int64 `json:"payload"`
}

// LengthStats describes one of the two lengths, in tokens, over the rows that have it.
type LengthStats struct {
	Rows int64   `json:"rows"`
	Sum  int64   `json:"sum"`
	Mean float64 `json:"mean"`
	// Quantiles are nearest-rank.
	Min       int64 `json:"min"`
	P1        int64 `json:"p1"`
	P10       int64 `json:"p10"`
	P25       int64 `json:"p25"`
	P50       int64 `json:"p50"`
	P75       int64 `json:"p75"`
	P90       int64 `json:"p90"`
	P95       int64 `json:"p95"`
	P99       int64 `json:"p99"`
	P999      int64 `json:"p99.9"`
	Max       int64 `json:"max"`
	AtMax     int64 `json:"rows_at_max"` // many rows at the maximum show that lengths were capped
	Mode      int64 `json:"mode"`
	ModeCount int64 `json:"mode_count"`
	// Exact is true if the quantiles are exact, as they are for up to a million distinct values.
	Exact bool `json:"exact"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s LengthStats) MarshalJSON() ([]byte, error) {
	type plain LengthStats
	return s.Undefined.marshal(plain(s))
}

// BlockStats describes the hash ids. Figures that need the prefix forest are undefined unless Forest is true.
type BlockStats struct {
	References int64   `json:"references"`
	MeanPerRow float64 `json:"per_row_mean"`
	MinPerRow  int64   `json:"per_row_min"`
	MaxPerRow  int64   `json:"per_row_max"`
	Tiled      int64   `json:"rows_with_full_last_block"` // input_length is a multiple of the block size
	Short      int64   `json:"rows_below_one_block"`
	// Forest is true if every id has one parent (V4 and V5 hold) and all ids were remembered.
	Forest   bool  `json:"forest"`
	Distinct int64 `json:"distinct_ids"`
	Once     int64 `json:"ids_used_once"`
	Again    int64 `json:"ids_used_again"`
	Roots    int64 `json:"roots"`
	Trunk    int64 `json:"trunk_ids"` // in more than TrunkShare of the rows, and in more than TrunkRows
	Forks    int64 `json:"ids_with_several_successors"`
	Leaves   int64 `json:"leaves"`
	Depth    int64 `json:"depth"`
	// Sequences is the number of distinct id lists, Copies the number of rows with the most frequent list.
	Sequences  int64 `json:"distinct_sequences"`
	Copies     int64 `json:"most_copies_of_a_sequence"`
	InnerLasts int64 `json:"last_ids_also_inside"` // distinct last ids of rows that other rows have in front of further ids
	// Top are the most referenced ids, as numbered by first appearance.
	Top []TopID `json:"top"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s BlockStats) MarshalJSON() ([]byte, error) {
	type plain BlockStats
	return s.Undefined.marshal(plain(s))
}

// TopID is an id and the number of rows that have it.
type TopID struct {
	ID    uint64 `json:"id"`
	Count int64  `json:"references"`
}

// SessionStats describes sessions, both named and inferred.
type SessionStats struct {
	Rows  int64 `json:"rows_with_session_id"`
	Named int64 `json:"session_ids"`
	// NamedExact is false if there were too many session ids to count. Named is then a lower bound.
	NamedExact bool                 `json:"session_ids_exact"`
	Mode       mooncake.SessionMode `json:"mode"`
	ModeText   string               `json:"mode_found"`
	// Inferred is the number of groups of rows that share an id after the trunk: these are conversations, if rows have full prompts.
	// Largest are the sizes of the largest groups. They are undefined without [BlockStats].Forest, and with at most [TrunkRows] rows.
	Inferred int64   `json:"inferred"`
	Single   int64   `json:"inferred_with_one_row"`
	Largest  []int64 `json:"inferred_largest"`

	Undefined UndefinedFigures `json:"undefined,omitempty"`
}

// MarshalJSON writes null for undefined figures.
func (s SessionStats) MarshalJSON() ([]byte, error) {
	type plain SessionStats
	return s.Undefined.marshal(plain(s))
}

// Analyzer measures a trace row by row.
type Analyzer struct {
	opt       AnalyzeOptions
	trunkRows int64 // an id in more rows belongs to the trunk
	digester  *mooncake.Digester
	cache     *CacheSim
	potential *potential // nil unless asked for
	sampled   *sampled   // likewise
	arrivals  Arrivals
	detector  *SessionDetector
	graphs    graphs

	counted               Analysis // with only the figures that are counted row by row
	input, output, perRow tally

	seed     maphash.Seed
	sessions map[uint64]struct{}
	classes  Classes
}

// NewAnalyzer returns an analyzer.
func NewAnalyzer(opt AnalyzeOptions) *Analyzer {
	if opt.BlockSize <= 0 {
		opt.BlockSize = mooncake.BlockSize
	}
	trunkRows := int64(0)
	if opt.TrunkShare <= 0 {
		opt.TrunkShare, trunkRows = 0.01, TrunkRows
	}
	asked := opt.Potential
	a := &Analyzer{
		opt: opt, trunkRows: trunkRows,
		counted: Analysis{BlockSize: opt.BlockSize, Eviction: opt.Eviction.String(), Sessions: SessionStats{NamedExact: true}},
		digester: mooncake.NewDigester(mooncake.CheckOptions{
			BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize,
			MaxIDs: opt.MaxIDs,
		}),
		cache: NewCacheSim(CacheOptions{
			BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize, Capacities: opt.Capacities, Eviction: opt.Eviction, MaxIDs: opt.MaxIDs,
			Curve: asked != nil && asked.Sample == 0,
		}),
		detector: NewSessionDetector(opt.BlockSize, 0), graphs: newGraphs(),
		seed: maphash.MakeSeed(), sessions: make(map[uint64]struct{}),
	}
	if opt.Sample != nil {
		a.sampled = newSampled(*opt.Sample, opt.BlockSize)
	}
	if asked != nil {
		a.potential = &potential{opt: *asked, curve: a.cache.curve}
		if asked.Sample != 0 {
			a.potential.estimate = newEstimate(opt.BlockSize, asked.Sample, cmp.Or(max(opt.MaxIDs, 0), mooncake.DefaultMaxIDs))
		}
	}
	return a
}

// Add measures the next row of the file, which is on the given line. It keeps references to the ids of rows with a session id, so rows must
// not be changed afterwards.
func (a *Analyzer) Add(row *mooncake.Row, line int64) {
	out := &a.counted
	out.Rows++
	kinds := &out.Kinds
	*[...]*int64{&kinds.Length, &kinds.Text, &kinds.Messages, &kinds.Payload}[row.Kind()]++
	if a.potential != nil {
		a.potential.arrive(row, a.digester.Checker())
	}
	a.digester.Add(row, line)
	if a.potential != nil {
		if e := a.potential.estimate; e != nil {
			e.add(row)
		}
	}
	before := a.cache.hitTokens()
	a.cache.Add(row)
	if a.sampled != nil {
		a.sampled.add(row, a.cache.hitTokens()-before)
	}
	a.arrivals.Add(row)
	a.detector.Add(row)
	a.graphs.add(row)
	a.classes.Add(row.Class, row.InputLength.V, row.OutputLength.V, row.Priority)
	if n := row.InputLength; n.Set {
		a.input.add(n.V)
		if n.V%int64(a.opt.BlockSize) == 0 {
			out.Blocks.Tiled++
		}
		if n.V < int64(a.opt.BlockSize) {
			out.Blocks.Short++
		}
		a.perRow.add(int64(len(row.Blocks(a.opt.BlockSize))))
	}
	if row.OutputLength.Set {
		a.output.add(row.OutputLength.V)
	}
	if row.SessionID != "" {
		out.Sessions.Rows++
		key := maphash.String(a.seed, row.SessionID)
		if _, ok := a.sessions[key]; !ok && len(a.sessions) >= maxSessions {
			out.Sessions.NamedExact = false
		} else {
			a.sessions[key] = struct{}{}
		}
	}
}

// Analysis returns the figures of the rows so far.
func (a *Analyzer) Analysis() *Analysis {
	out, checker := a.counted, a.digester.Checker()
	out.Arrivals, out.Input, out.Output = a.arrivals.Stats(), lengths(&a.input), lengths(&a.output)
	out.Caches, out.ObservedCache, out.Fine = a.cache.Stats(), a.cache.Observed(), a.cache.Fine()
	out.Digests, out.Violations = a.digester.Digests(), checker.Violations()
	out.Unchecked, out.UncheckedRanges = checker.Unchecked(), checker.UncheckedRanges()
	out.Graphs, out.Classes = a.graphs.stats(), a.classes.Stats()
	out.Sessions.Named = int64(len(a.sessions))
	out.Sessions.Mode, out.Sessions.ModeText = a.detector.Mode()
	q := a.perRow.quantiles(0, 100)
	out.Blocks.References, out.Blocks.MeanPerRow = a.perRow.sum, a.perRow.mean()
	out.Blocks.MinPerRow, out.Blocks.MaxPerRow = q[0], q[1]
	trunk, inferred := []string{"trunk_ids"}, []string{"inferred", "inferred_with_one_row", "inferred_largest"}
	why := out.Unchecked
	switch {
	case a.perRow.n == 0:
		why = "no row has a length"
		out.Blocks.Undefined.add(why, "references", "per_row_mean", "per_row_min", "per_row_max", "rows_with_full_last_block", "rows_below_one_block")
	case why == "" && slices.ContainsFunc(out.Violations, func(v mooncake.Violation) bool { return v.Rule == mooncake.V4 || v.Rule == mooncake.V5 }):
		why = "ids do not identify prefixes: rule V4 or V5 is broken"
	}
	if a.sampled != nil {
		out.Sample = a.sampled.stats()
	}
	if a.potential != nil {
		var forest mooncake.Forest
		if why == "" {
			forest = checker.Forest()
		}
		out.Potential = a.potential.stats(&out.Caches[len(out.Caches)-1], a.opt.Eviction, int64(a.opt.BlockSize), forest, why)
	}
	if why != "" {
		out.Blocks.Undefined.add(why, append(trunk, "distinct_ids", "ids_used_once", "ids_used_again", "roots", "ids_with_several_successors",
			"leaves", "depth", "distinct_sequences", "most_copies_of_a_sequence", "last_ids_also_inside", "top")...)
		out.Sessions.Undefined.add(why, inferred...)
		return &out
	}
	a.forest(&out.Blocks, &out.Sessions)
	if out.Rows <= a.trunkRows {
		why = fmt.Sprintf("too few rows: a trunk can be told from a conversation only with more than %d", TrunkRows)
		out.Blocks.Undefined.add(why, trunk...)
		out.Sessions.Undefined.add(why, inferred...)
		out.Blocks.Trunk, out.Sessions.Inferred, out.Sessions.Single, out.Sessions.Largest = 0, 0, 0, nil
	}
	return &out
}

func lengths(t *tally) LengthStats {
	q := t.quantiles(0, 1, 10, 25, 50, 75, 90, 95, 99, 99.9, 100)
	s := LengthStats{
		Rows: t.n, Sum: t.sum, Mean: t.mean(), Exact: t.shift == 0,
		Min: q[0], P1: q[1], P10: q[2], P25: q[3], P50: q[4], P75: q[5], P90: q[6], P95: q[7], P99: q[8], P999: q[9], Max: q[10],
	}
	s.AtMax = t.of(s.Max)
	s.Mode, s.ModeCount = t.mode()
	if t.n == 0 {
		s.Undefined.add("no row has one", "sum", "mean", "min", "p1", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p99.9", "max",
			"rows_at_max", "mode", "mode_count")
	}
	return s
}

const (
	topIDs      = 8
	topSessions = 5
	maxSessions = 1 << 20 // maximum number of sessions that are counted: up to 40 MiB
)

// forest computes the figures of the prefix forest. Sessions are the connected components of rows that share an id outside the trunk. A
// parent is in at least as many rows as its child. So the trunk is the top of the forest, and a component is one subtree below it: its size
// is the number of rows of the subtree's root.
func (a *Analyzer) forest(b *BlockStats, s *SessionStats) {
	nodes := a.digester.Checker().Forest()
	limit := max(a.opt.TrunkShare*float64(a.counted.Rows), float64(a.trunkRows))
	trunk := func(n uint32) bool { return n == mooncake.NoParent || float64(nodes.Node(n).References) > limit }
	b.Forest, b.Distinct = true, int64(nodes.Len())
	depth := make([]uint32, nodes.Len())
	successors := make([]uint32, nodes.Len())
	var sizes tally
	inTrunk := a.counted.Rows // rows that end in the trunk, or have no ids
	for id, node := range nodes.All() {
		n, parent := int(id), node.Parent
		depth[n] = 1
		if parent == mooncake.NoParent {
			b.Roots++
		} else {
			depth[n] += depth[parent]
			successors[parent]++
			if successors[parent] == 2 {
				b.Forks++
			}
		}
		b.Depth = max(b.Depth, int64(depth[n]))
		if node.References == 1 {
			b.Once++
		}
		if node.Last > 0 {
			b.Sequences++
			b.Copies = max(b.Copies, int64(node.Last))
			if node.References > node.Last {
				b.InnerLasts++
			}
		}
		switch {
		case trunk(id):
			b.Trunk++
		case trunk(parent):
			sizes.add(int64(node.References))
			inTrunk -= int64(node.References)
		}
		b.Top = append(b.Top, TopID{uint64(id), int64(node.References)})
		if len(b.Top) >= 64*topIDs {
			b.Top = largest(b.Top)
		}
	}
	b.Top = largest(b.Top)
	b.Again = b.Distinct - b.Once
	for _, n := range successors {
		if n == 0 {
			b.Leaves++
		}
	}
	sizes.addMany(1, inTrunk)
	s.Inferred, s.Single = sizes.n, sizes.of(1)
	s.Largest = sizes.largest(topSessions)
}

func largest(top []TopID) []TopID {
	slices.SortFunc(top, func(a, b TopID) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID)) })
	return top[:min(len(top), topIDs)]
}
