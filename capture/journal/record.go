// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// SpanID is the binary id of a span within its trace. The zero SpanID means no span.
type SpanID [8]byte

// Record is a record of a journal: an [*Inference], a [*Content] or a [*Link].
type Record interface {
	appendTo(dst []byte) encoder
}

// Inference is an inference span.
type Inference struct {
	Span   mooncake.SpanRef
	Parent SpanID
	// Start and End are in ns since the Unix epoch. End before Start counts as Start.
	Start, End int64
	Failed     bool // the request was not served
	// FirstToken is in ns since the Unix epoch.
	FirstToken mooncake.Opt[int64]

	// InputTokens, OutputTokens and CachedTokens are the server's counts: the prompt including its cached part, the output, and the cached
	// part of the prompt. 0 or more.
	InputTokens, OutputTokens, CachedTokens mooncake.Opt[int64]
	// CacheWriteTokens is the part of the prompt that the server wrote to its cache.
	CacheWriteTokens mooncake.Opt[int64]
	// Exclusive is true if the producer's input count was below the cached part, and so excluded it. InputTokens is the sum.
	Exclusive bool
	// OutputEstimate is an estimate of OutputTokens, if they were not counted.
	OutputEstimate mooncake.Opt[int64]

	Prompt // without identity for a raw span, which was not annotated

	// Order is the order in which the engine's template writes the prompt, as configured for the annotation; "" is unknown. The text of
	// Prompt is still in telemetry's order.
	Order PromptOrder

	// Remote is true if a part of the prompt is only at the server, so that no recorded text is complete.
	Remote bool

	Session  Session
	Model    Name // the requested model, else that of the reply
	Class    Name // what kind of request it is
	Finish   Name // the reason why the reply ended, in the producer's spelling; for several choices the first one's
	Answered Name // the model of the reply, if the span has it
	Priority mooncake.Opt[int64]
	Response Response

	// Joined is the span of the client, if a server's span without a parent is connected to it only by a link. Spans below such a span in
	// its own trace are not moved with it.
	Joined mooncake.SpanRef
	// Producer identifies the service and the instrumentation that wrote the span, Clock the process whose clock it uses. 0 is unknown.
	Producer, Clock uint64

	// Run is the replay that made the request; zero is production.
	Run Name
	// The fields below are for replays: the row, its request, and its schedule.
	Row                       mooncake.Opt[int64]   // index, from 0
	Timestamp                 mooncake.Opt[float64] // ms; the row's own
	InputLength, OutputLength mooncake.Opt[int64]   // tokens
	Offset, Spread            mooncake.Opt[float64] // s; scheduled time including spreading, and the part that spreading added
	Link                      mooncake.SpanRef      // the production span that the row was captured from
	Warmup                    bool                  // sent before the schedule, so it has no row
	Ending                    Ending                // why the request was not served if it did not fail; Failed is set then, too
	Waits                     Waits

	Synthetic bool // made from a log record, not from a span

	// Sampled describes the sample of production to which the request belongs; zero for none, for example if all requests are recorded.
	Sampled Sampled

	// Follows are the other spans of the same trace to which the span's links point, at most [MaxFollows].
	Follows []SpanID
	Tools   ToolIDs
	// Step is the request's position in a graph. Only Compile sets it.
	Step Step
}

// Sampled describes how a request of production was selected for recording. The zero Sampled means that none was left out.
type Sampled struct {
	PerMillion uint32 // of the groups of requests are recorded, 1 to [MaxPerMillion]
	ByPrefix   bool   // the prompt decides, and the session only if no prompt is known; false: the reverse
	List       Domain // fingerprint of the trunk list with which prompts were distinguished; 0 means none
}

// MaxPerMillion is the maximum of [Sampled].PerMillion: all but one in a million.
const MaxPerMillion = 999_999

// ToolIDs are hashes of the ids of tool calls, at most [MaxToolIDs] in each list.
type ToolIDs struct {
	Made  []uint64 // those of the calls that the reply made
	Given []uint64 // those of the calls whose results end the prompt
}

// Step is a request's position in a graph of requests that follow each other. The zero Step means no position.
type Step struct {
	ID      uint64 // 0: no other request of its OTel trace is connected to it
	WaitFor []Edge
	// Delay and ToolWait are the two parts of the time since the latest end of a step in WaitFor, in ns: ToolWait is the time in which tools
	// ran, Delay the rest.
	Delay, ToolWait int64
	// Endless is true if the end of a step in WaitFor is unknown: Delay counts from its start.
	Endless bool
	Turn    Turn
}

// Turn describes, for one request, the part of its session that is in its OTel trace. The zero Turn is unknown. Times are in ns since the Unix
// epoch.
type Turn struct {
	ID         uint64 // of the trace
	Begin, End int64  // of all its spans there
	From, To   int64  // of the span that sent the request; To is From if its end is unknown
	Acts       bool   // an agent, a workflow or a tool has a span there
	Waited     bool   // another request there follows this one
}

// Edge points to a step that another one follows.
type Edge struct {
	ID       uint64
	Evidence mooncake.Evidence
}

// Prompt is what is known of a prompt in addition to its length.
type Prompt struct {
	Identity  Identity        // the source of the rest; [NoIdentity] is nothing
	HashIDs   []uint64        // ids of blocks; nil means none
	BlockSize uint32          // tokens per hash id; 0 is unknown
	Domain    Domain          // the source of HashIDs or Chain
	Key       Domain          // fingerprint of the key that made them; 0 is unknown
	Chain     blockhash.Chain // keyed cells of the text; Bytes = 0 means none
	Prefix    bool            // Chain covers only the beginning of the prompt, for example if telemetry cut it
	// MediaEnd is the number of bytes of the text up to the end of its last image, audio or file, a multiple of [blockhash.CellSize]; 0 if
	// there is none. The number of its tokens is unknown.
	MediaEnd int64
	// Reply is the end of the reply to the prompt, as in the next prompt: of the prompt's text followed by a message of the assistant. Zero
	// if the reply is unknown, or not one whole text.
	Reply blockhash.End
	// HashRanges, FineBlockSize (tokens per id of ranges) and Replies are those of a replayed row.
	HashRanges    []mooncake.HashRange
	FineBlockSize uint32
	Replies       []mooncake.Reply
}

// Content has the prompt of its parent span: telemetry had it in one log record, or in several, of which a batch may have had only some.
type Content struct {
	Span   mooncake.SpanRef
	Parent SpanID
	Start  int64 // time of the first log record, in ns since the Unix epoch; 0 is unknown
	Prompt
	Tools ToolIDs
}

// Link is any other span. It matters for the spans below it.
type Link struct {
	Span    mooncake.SpanRef
	Parent  SpanID
	Session Session
	// Border is true for the run of a tool or of an agent: requests below it are not parts of a request above it.
	Border bool
	// Start and End are in ns since the Unix epoch; 0 is unknown.
	Start, End int64
	// Acts says what kind of run the span is.
	Acts     Actor
	Follows  []SpanID // as in [Inference]
	Class    Name     // as in [Inference], of the requests below the span
	Priority mooncake.Opt[int64]
	Tools    ToolIDs // for a tool's run: the calls that it answers
}

// Ending says how a replay itself kept one of its rows from being served. NoEnding means that it did not: the row was served, or failed.
type Ending uint8

// The endings. See mooncake.outcome.
const (
	NoEnding Ending = iota
	Skipped
	Cancelled
	Disconnected
)

var endings = [...]string{Skipped: semconv.OutcomeSkipped, Cancelled: semconv.OutcomeCancelled, Disconnected: semconv.OutcomeDisconnected}

// EndingOf reads a mooncake.outcome attribute. All other values are [NoEnding].
func EndingOf(outcome string) Ending {
	return Ending(max(0, slices.Index(endings[:], outcome))) //nolint:gosec // an index of endings
}

// String returns the attribute's value; "" for NoEnding.
func (e Ending) String() string {
	if int(e) < len(endings) {
		return endings[e]
	}
	return ""
}

// Actor is the kind of actor that makes requests, or runs between them.
type Actor uint8

// The actors.
const (
	NoActor Actor = iota
	Agent         // an agent, a workflow, or a step of one
	Tool
)

// Identity is the source of block ids. See mooncake.identity.
type Identity uint8

// The identities. Only compile sets Structure and Lengths.
const (
	NoIdentity Identity = iota
	Trace
	Engine
	Tokens
	Text
	Structure
	Lengths
	None // the span was annotated, but nothing in it identifies the prompt
)

var identities = [...]string{
	Trace: semconv.IdentityTrace, Engine: semconv.IdentityEngine, Tokens: semconv.IdentityTokens,
	Text: semconv.IdentityText, Structure: semconv.IdentityStructure, Lengths: semconv.IdentityLengths,
	None: semconv.IdentityNone,
}

// ParseIdentity reads a mooncake.identity attribute. ok is false for an unknown value; "" is [NoIdentity].
func ParseIdentity(s string) (i Identity, ok bool) {
	for i, name := range identities {
		if name == s {
			return Identity(i), true
		}
	}
	return NoIdentity, false
}

// String returns the attribute's value.
func (i Identity) String() string {
	if int(i) < len(identities) {
		return identities[i]
	}
	return ""
}
