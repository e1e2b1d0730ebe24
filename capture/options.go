// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"

	"github.com/moonloop/moonloop/mooncake"
)

// The defaults of [Options].
const (
	DefaultMemory        = 256 << 20
	DefaultMaxTraceSpans = 1 << 18
	DefaultMaxRuns       = 1 << 10
)

// Replays says what happens to the requests of replays.
type Replays string

// The choices. The zero Replays is ReplaysSeparate.
const (
	ReplaysSeparate Replays = "separate" // each run gets its own trace, next to that of production
	ReplaysDrop     Replays = "drop"     // only production is compiled
	ReplaysOnly     Replays = "only"     // only runs are compiled
)

// Format says which fields rows have.
type Format string

// The formats. The zero Format is FormatFull.
const (
	FormatFull     Format = "full"     // in addition to the four fields: session_id, delay, model, class, otel and others
	FormatMooncake Format = "mooncake" // timestamp, input_length, output_length and hash_ids, for tools that know no others
)

// MissingTokens says what happens to rows of production without token counts.
type MissingTokens string

// The choices. The zero MissingTokens is MissingDrop.
const (
	MissingDrop MissingTokens = "drop"
	// MissingEstimate computes the prompt's tokens from its bytes, at the mean rate of the rows that have both (1 token for 4 bytes if
	// there are none), or from its number of blocks. It takes the tokens of the output from the span, such as the limit at which the reply
	// ended, else from the mean of the rows that have them. Without any basis, the row is dropped.
	MissingEstimate MissingTokens = "estimate"
)

// Stage is a part of the work of Compile.
type Stage string

// The stages, in order.
const (
	StageRead  Stage = "reading journals"        // done is in bytes, the total unknown
	StageGroup Stage = "grouping spans"          // all records
	StageJoin  Stage = "joining requests"        // those with a response id
	StageTurns Stage = "following sessions"      // requests of sessions
	StageText  Stage = "laying blocks over text" // requests with text, twice
	StageWrite Stage = "writing rows"            // all requests
	StageWait  Stage = "waiting for shards"      // shards that are done, of all shards; before each stage except the first
)

// Options configures [Compile]. The zero Options is usable.
type Options struct {
	Replays       Replays
	Format        Format
	MissingTokens MissingTokens
	// FollowEngine says whether prompts share blocks in the order in which their engine saw them: in the order that requests state, see
	// [journal.Inference.Order], or else in an order that the engine's counts of cached tokens prove. The sidecar records this order.
	FollowEngine FollowEngine
	// Graphs says which requests of production wait for others: see graph.go.
	Graphs Graphs
	// BlockSize is the number of tokens per block of production, at most [mooncake.MaxBlockSize]; 0 = [mooncake.BlockSize]. A run has that
	// of its rows.
	BlockSize int
	// Memory is the number of bytes above which records are sorted and grouped on disk; 0 = [DefaultMemory]. It does not affect the result.
	Memory int
	// TempDir is the folder for temporary files; "" = the system's.
	TempDir string
	// MaxTraceSpans is the maximum number of spans of one trace whose ancestry is used; 0 = [DefaultMaxTraceSpans]. In a larger trace, each
	// inference span is separate.
	MaxTraceSpans int
	// MaxRuns is the maximum number of runs; 0 = [DefaultMaxRuns]. The spans of further runs are dropped.
	MaxRuns int
	// Before and After are journals that were written before and after the compiled ones, to complete requests whose records are in several
	// journals. A record in Before or After does not become a row, and is not counted; it is an ancestor of others like any record. A record
	// that is in Before and in a compiled journal counts as one of Before. A record that is in a compiled journal and in After counts as one
	// of the compiled journal.
	Before, After []Source
	// Progress, unless nil, is called from time to time, by several goroutines, but never by two at once: first with the bytes of all journals
	// read so far, then, for each further stage, with the records done and their total.
	Progress func(stage Stage, done, total int64)
	// Tool is the name and version of the program, for the sidecar.
	Tool string
}

func (o *Options) complete() error {
	for _, f := range []struct {
		n    *int
		v    int
		name string
	}{
		{&o.BlockSize, mooncake.BlockSize, "block size"},
		{&o.Memory, DefaultMemory, "memory"},
		{&o.MaxTraceSpans, DefaultMaxTraceSpans, "limit of spans in a trace"},
		{&o.MaxRuns, DefaultMaxRuns, "limit of runs"},
	} {
		if *f.n < 0 {
			return fmt.Errorf("%s %d must be above 0, or 0 for %d", f.name, *f.n, f.v)
		}
		*f.n = cmp.Or(*f.n, f.v)
	}
	o.Replays, o.Format = cmp.Or(o.Replays, ReplaysSeparate), cmp.Or(o.Format, FormatFull)
	o.Graphs = cmp.Or(o.Graphs, GraphsAgents)
	o.MissingTokens, o.FollowEngine = cmp.Or(o.MissingTokens, MissingDrop), cmp.Or(o.FollowEngine, FollowAuto)
	switch {
	case o.Replays != ReplaysSeparate && o.Replays != ReplaysDrop && o.Replays != ReplaysOnly:
		return fmt.Errorf("replays %q must be separate, drop or only", o.Replays)
	case o.Format != FormatFull && o.Format != FormatMooncake:
		return fmt.Errorf("format %q must be full or mooncake", o.Format)
	case o.MissingTokens != MissingDrop && o.MissingTokens != MissingEstimate:
		return fmt.Errorf("missing tokens %q must be drop or estimate", o.MissingTokens)
	case o.FollowEngine != FollowAuto && o.FollowEngine != FollowNever:
		return fmt.Errorf("follow engine %q must be auto or never", o.FollowEngine)
	case o.Graphs != GraphsAgents && o.Graphs != GraphsAll && o.Graphs != GraphsNever:
		return fmt.Errorf("graphs %q must be agents, all or never", o.Graphs)
	case o.BlockSize > mooncake.MaxBlockSize: // no sidecar may say more
		return fmt.Errorf("block size %d must be at most %d", o.BlockSize, mooncake.MaxBlockSize)
	}
	return nil
}
