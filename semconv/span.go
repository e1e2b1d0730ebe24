// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Names of spans. An inference span is called "{gen_ai.operation.name} {gen_ai.request.model}".
const (
	SpanSession  = "session"          // root of the trace of one session; its name continues with " S from row N, MODEL, run R"
	SpanMeasure  = "calibration"      // a request with which a replay measures the engine; it has no row
	SpanWarmup   = "warmup"           // a request before the schedule of a replay; it has no row
	SpanContent  = "mooncake.content" // child of an inference span whose content came in logs: its cells and ids of tool calls
	PhaseQueue   = "queue"            // intended instant → wire
	PhasePrefill = "prefill"          // wire → first token
	PhaseDecode  = "decode"           // first token → last token
	PhaseReply   = "reply"            // wire → end, of a reply that was not a stream
)

// EventToken is the span event of one output chunk, at its arrival.
const EventToken = "mooncake.token"

// Attributes of [EventToken].
const (
	TokenIndex = "mooncake.token.index" // int: index of the chunk, from 0
	TokenCount = "mooncake.token.count" // int: tokens in the chunk; absent when unknown
	TokenGap   = "mooncake.token.gap"   // double, s: since the chunk before; absent on the first
)

// Attributes of an inference span that replace its token events, or describe which are missing.
const (
	// TokenGaps is an int[] in ns: the first value is the time from the span's start to the first chunk, the others
	// the gaps between chunks, so that sums give every arrival exactly.
	TokenGaps = "mooncake.token.gaps"
	// TokenCounts is an int[]: tokens in each chunk. Absent when unknown.
	TokenCounts = "mooncake.token.counts"
	// TokenDropped is an int: events of the last chunks that a limit cut off. Absent when 0.
	TokenDropped = "mooncake.token.dropped"
)
