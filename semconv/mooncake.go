// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// The request's row.
const (
	HashIDs     = "mooncake.hash_ids"     // int[]: two's-complement patterns of uint64; read them back as uint64
	BlockSize   = "mooncake.block_size"   // int: tokens per block
	HashDomain  = "mooncake.hash.domain"  // string: 8 hex digits; an id is (domain, 64 bits)
	HashKey     = "mooncake.hash.key"     // string: 8 hex digits, the fingerprint of the key under which ids or cells were made
	Cells       = "mooncake.cells"        // bytes: identity text only; 8 bytes little-endian for each cell, then 8 for the tail and 8 for the length of the text
	CellsPrefix = "mooncake.cells.prefix" // bool: the cells cover only the beginning of the prompt, because telemetry truncated it; absent = false
	// CellsMedia is an int: the bytes of the text up to the end of its last image, audio or file, a multiple of 128. The tokens
	// of these cannot be computed from their bytes. Absent = there is none.
	CellsMedia = "mooncake.cells.media"
	// CellsEnds is bytes, in addition to [Cells]: where messages of the text end (of many short messages, only some). An end has 12 bytes,
	// little-endian: 8 for its keyed value, and 4 for 16 times the length of the text up to there plus the number of its role. Absent =
	// unknown.
	CellsEnds = "mooncake.cells.ends"
	// CellsReply is bytes: one end as in [CellsEnds]: where the reply will end in the next prompt. Absent = unknown.
	CellsReply = "mooncake.cells.reply"
	// PromptOrder is a string, in addition to the model: the order in which the model's template writes a prompt, as configured in the receiver:
	// [PromptOrderAsSent], ... The cells always follow the order that telemetry shows. Absent = unknown.
	PromptOrder = "mooncake.prompt_order"
	// HashRanges is an int[]: the ids of the prompt in blocks of [FineBlockSize] tokens, as pairs of the first id and the number of
	// consecutive ids.
	HashRanges    = "mooncake.hash_ranges"
	FineBlockSize = "mooncake.fine_block_size" // int: tokens per id of [HashRanges]
	// Replies is an int[]: the parts of the prompt that were replies to earlier rows, as triples: how many rows earlier that row is,
	// the tokens of the prompt before the reply, and the tokens of the reply.
	Replies = "mooncake.replies"
	// ToolCalls is an int[]: the calls of tools that the reply made, each as 64 bits of a keyed hash of its id. ToolResults is an int[]
	// likewise: the calls whose results end the prompt, and on the span of a tool's run the call that it answers. So a request is known to
	// follow the one whose reply made the call. At most 64 each.
	ToolCalls   = "mooncake.tool_calls"
	ToolResults = "mooncake.tool_results"
	// RepliesCarried is an int: prompt tokens that were the replay's own live replies. RepliesInvented is an int: prompt tokens
	// that were invented in place of a reply, because the live reply was late or had another length.
	RepliesCarried  = "mooncake.replies.carried_tokens"
	RepliesInvented = "mooncake.replies.invented_tokens"
	// Record is bytes, the only attribute of a span of that name: all that a journal would keep of another span with the same ids, as
	// package capture/journal encodes it. The extension mooncake_encoding makes such spans from messages.
	Record = "mooncake.record"
	// Identity is a string: [IdentityTrace], ... A span that has it is a request. A log record that has it was read by a
	// receiver.
	Identity     = "mooncake.identity"
	InputLength  = "mooncake.input_length"  // int: prompt tokens that the row asks for
	OutputLength = "mooncake.output_length" // int: output tokens that the row asks for
	Timestamp    = "mooncake.timestamp"     // double, ms: the row's own
	Row          = "mooncake.row"           // int: index in the trace, from 0
	// Session is a string, on every span that has a session, inference or not: the session id of a trace's row, or the
	// keyed hash of a production session id (16 hex digits).
	Session = "mooncake.session"
	Turn    = "mooncake.turn" // int: index of the request within its session, from 0
	// WaitFor is an int[], on a replay's spans: the rows, by index, that the request waited for; empty for the first row of a graph.
	// Absent = the row belongs to no graph, or the replay ignored the graph.
	WaitFor = "mooncake.wait_for"
	// WaitEvidence is a string[] in addition to [WaitFor], with one word for each row named there: the evidence for the edge (link, tool_call,
	// parent, session, time). Absent = the trace lacks it for some of them.
	WaitEvidence = "mooncake.wait_evidence"
	// Delay and ToolWait are doubles in ms, in addition to [WaitFor]: the row's delay and tool_wait_ms, before scaling. Absent = the row
	// has none.
	Delay    = "mooncake.delay"
	ToolWait = "mooncake.tool_wait"
	// Class is a string, one word such as interactive or batch: the kind of the span's request, or of the requests below the span. It is the
	// class of a trace's row, or in production an OpenAI service tier or the value of an attribute that the receiver's configuration names.
	Class = "mooncake.class"
	// Priority is an int: in a replay, the priority in the request's body; in production, the one that a router assigned.
	Priority = "mooncake.priority"
	// LinkTraceID is a string, on a replay's spans: the trace id, 32 hex digits, of the production span that the span's link leads to.
	// Trace stores find spans by attributes, not by links: with this attribute, a search finds the replays of a production span.
	LinkTraceID = "mooncake.link.trace_id"
	// RunID is a string on the resource: one per replay. Absent in production.
	RunID = "mooncake.run.id"
	// Synthetic is a bool: the span was made from a log record, not from a span.
	Synthetic = "mooncake.synthetic"
	// PromptRemote is a bool: a part of the prompt is only on the server, so any recorded text is incomplete. Absent = false.
	PromptRemote = "mooncake.prompt.remote"
	// OutputEstimate is an int: an estimate of output tokens that nobody counted; only its order of magnitude is reliable.
	OutputEstimate = "mooncake.output_estimate"
	// InputExclusive is a bool: the producer's count of input tokens was below its cached part. Such a producer leaves out
	// cached tokens, so they were added. Absent = false.
	InputExclusive = "mooncake.input_exclusive"
)

// Values of [PromptOrder]: what the template moves directly before the last message of the user.
const (
	PromptOrderAsSent     = "as_sent"     // nothing
	PromptOrderSystemLast = "system_last" // the system text
	PromptOrderToolsLast  = "tools_last"  // the definitions of tools
	PromptOrderBothLast   = "both_last"   // both
)

// Values of [Identity]: what block ids are computed from.
const (
	IdentityNone      = "none"      // a receiver has read the span, and nothing in it identifies the prompt
	IdentityTrace     = "trace"     // a row of a trace gave them
	IdentityEngine    = "engine"    // the engine's own block hashes
	IdentityTokens    = "tokens"    // token ids of the engine's tokenizer
	IdentityText      = "text"      // the text, by cells
	IdentityStructure = "structure" // only the turns of a session; made when a trace is compiled
	IdentityLengths   = "lengths"   // nothing: only lengths are known; made when a trace is compiled
)

// How a row was sent. On spans of a replay. The first five are absent where no timestamp or delay set the instant.
//
//nolint:gosec // names, not credentials
const (
	ScheduleOffset   = "mooncake.schedule.offset"   // double, s of replay time from the schedule's zero, spreading included
	ScheduleSpread   = "mooncake.schedule.spread"   // double, s: the part of the offset that spreading added
	ScheduleSpeedup  = "mooncake.schedule.speedup"  // double: trace time ÷ replay time
	ScheduleLateness = "mooncake.schedule.lateness" // double, s: dispatch − intended instant, without the cap's wait
	// LatenessClass is a string, in addition to [ScheduleLateness], for trace stores that cannot compare numbers:
	// [LatenessOnTime], ...
	LatenessClass = "mooncake.schedule.lateness_class"
	// ScheduleCapWait is a double in s: the wait for the concurrency cap, a part of the queue phase. Absent when 0.
	ScheduleCapWait = "mooncake.schedule.cap_wait"

	// CachePredictedTokens is an int: the prompt tokens that an infinite block cache would have served after the
	// earlier rows. Absent when unknown.
	CachePredictedTokens = "mooncake.cache.predicted_tokens"

	PromptTooShort = "mooncake.prompt.too_short" // bool: the row is shorter than the chat template; absent = false
	PromptTailCut  = "mooncake.prompt.tail_cut"  // bool: the prompt lacks its last block, to make room for the template; absent = false
)

// Values of [LatenessClass]. The bounds are those by which a run is judged (lateness_p99).
const (
	LatenessOnTime   = "on_time"   // at most 10 ms late
	LatenessLate     = "late"      // at most 250 ms
	LatenessVeryLate = "very_late" // more
)

// Attributes of the root span of a session, in addition to the session, the provider, and the model of its first request. In the GenAI
// conventions, invoke_workflow is for spans around requests, not for requests.
const (
	SessionFirstRow         = "mooncake.session.first_row" // int: [Row] of the session's first request
	GenAIWorkflowName       = "gen_ai.workflow.name"       // string: [SpanSession]
	OperationInvokeWorkflow = "invoke_workflow"            // of [GenAIOperationName]
)

// How a row ended. On spans of a replay, and on metrics where stated.
const (
	Outcome       = "mooncake.outcome"        // string: [OutcomeServed], ...
	OutcomeReason = "mooncake.outcome.reason" // string: why the row was skipped; failures have [ErrorType]
	// RequestResendCount is an int: how often the whole request was sent again because its kept-alive connection died before
	// the first byte of the reply. The engine may have received it twice. A part of [HTTPRequestResendCount]; absent when 0.
	RequestResendCount = "mooncake.request.resend_count"
	// WireUnknown is a bool: the reply arrived before the time of the request's last byte was known. Then the queue phase ends
	// with the reply's first byte, and no duration counts from the wire. Absent = false.
	WireUnknown = "mooncake.wire.unknown"
	// ChunksCoalesced is an int: chunks that were sent separately and arrived in one read with the chunk before them. Absent
	// when 0.
	ChunksCoalesced = "mooncake.chunks.coalesced"
)

// Values of [Outcome].
const (
	OutcomeServed       = "served"
	OutcomeFailed       = "failed"
	OutcomeCancelled    = "cancelled" // the run was stopped
	OutcomeSkipped      = "skipped"
	OutcomeDisconnected = "disconnected" // the client closed the connection on purpose
)
