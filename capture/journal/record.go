// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// SpanID is the binary id of a span within its trace. The zero SpanID is none.
type SpanID [8]byte

// Record is what a journal holds: an [*Inference], a [*Content] or a [*Link].
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

	// InputTokens, OutputTokens and CachedTokens are what the server counted: the prompt with its cached part, the
	// output, and the cached part of the prompt. 0 or more.
	InputTokens, OutputTokens, CachedTokens mooncake.Opt[int64]
	// CacheWriteTokens are the part of the prompt that the server wrote to its cache.
	CacheWriteTokens mooncake.Opt[int64]
	// Exclusive is true where the count of input was below its cached part: its producer leaves that out. It has been added.
	Exclusive bool
	// OutputEstimate is of the order of OutputTokens, where nobody counted them.
	OutputEstimate mooncake.Opt[int64]

	Prompt // without identity on a raw span, which nobody annotated

	// Order is that in which the engine's template writes the prompt, as whoever annotated the span was told; "" is unknown. The text of
	// Prompt is in telemetry's order all the same.
	Order PromptOrder

	// Remote is true where a part of the prompt is at the server only: no text that is recorded is all of it.
	Remote bool

	Session  Session
	Model    Name // that was asked for, else the one that answered
	Class    Name // what kind of request it is
	Finish   Name // the reason why the reply ended, as the producer spells it; of several choices the first
	Answered Name // the model that answered, where the span says so
	Priority mooncake.Opt[int64]
	Response Response

	// Joined is the span of the client, where a server's span without a parent names it by a link alone. What stands below
	// such a span in a trace of its own does not follow it there.
	Joined mooncake.SpanRef
	// Producer stands for the service and the instrumentation that wrote the span, Clock for the process whose clock it
	// has. 0 is unknown.
	Producer, Clock uint64

	// Run is the replay that made the request; zero is production.
	Run Name
	// The fields below are of replays: the row, what it asked for, and how it was scheduled.
	Row                       mooncake.Opt[int64]   // index, from 0
	Timestamp                 mooncake.Opt[float64] // ms; the row's own
	InputLength, OutputLength mooncake.Opt[int64]   // tokens
	Offset, Spread            mooncake.Opt[float64] // s; planned instant with spreading, and the part that spreading added
	Link                      mooncake.SpanRef      // the production span that the row was captured from
	Warmup                    bool                  // sent before the schedule: no row
	Waits                     Waits

	Synthetic bool // made from a log record, not from a span

	// Sampled says of which sample of production the request is; zero is of none, as where all requests are recorded.
	Sampled Sampled

	// Follows are the spans of its trace that the span's links name, and that it is not a part of.
	Follows []SpanID
	Tools   ToolIDs
	// Step is the request's place in a graph. Compile alone makes it.
	Step Step
}

// Sampled is how a request of production was chosen to be recorded. The zero Sampled is that none was left out.
type Sampled struct {
	PerMillion uint32 // of the groups of requests are recorded, 1 to [MaxPerMillion]
	ByPrefix   bool   // prompts decided first, and sessions only where no prompt is known; else the other way round
	List       Domain // fingerprint of the trunk list by which prompts were told apart; 0 is none
}

// MaxPerMillion is the greatest part that is not all.
const MaxPerMillion = 999_999

// ToolIDs are hashes of the ids of tool calls, at most [MaxToolIDs] of a kind.
type ToolIDs struct {
	Made  []uint64 // those of the calls that the reply made
	Given []uint64 // those of the calls whose results end the prompt
}

// Step is a request's place in a graph of requests that follow each other. The zero Step is none.
type Step struct {
	ID      uint64 // 0: the request follows no other of its OTel trace, and none follows it
	WaitFor []Edge
	// Delay and ToolWait are the time since the last of them ended, in ns: that in which tools ran, and the rest.
	Delay, ToolWait int64
	Turn            Turn
}

// Turn is what an OTel trace has of a session, as a request of it knows that. The zero Turn is unknown. Times are in ns since the Unix
// epoch.
type Turn struct {
	ID         uint64 // of the trace
	Begin, End int64  // of all that has a span there
	From, To   int64  // of the span by which the request was sent
	Acts       bool   // an agent, a workflow or a tool has a span there
	Waited     bool   // another request there follows this one
}

// Edge leads to a step that another one follows.
type Edge struct {
	ID       uint64
	Evidence mooncake.Evidence
}

// Prompt is what is known of a prompt beyond its length.
type Prompt struct {
	Identity  Identity        // what the rest is made of; [NoIdentity] is nothing
	HashIDs   []uint64        // ids of blocks; nil is none
	BlockSize uint32          // tokens per hash id; 0 is unknown
	Domain    Domain          // who made HashIDs or Chain
	Key       Domain          // fingerprint of the key that made them; 0 is unknown
	Chain     blockhash.Chain // keyed cells of the text; Bytes = 0 is none
	Prefix    bool            // Chain is of the beginning of the prompt only, as where telemetry cut it
	// MediaEnd is the number of bytes of the text up to the end of its last image, sound or file, a multiple of
	// [blockhash.CellSize]; 0 where there is none. How many tokens such a one has is unknown.
	MediaEnd int64
	// Reply is the end of the reply to the prompt, as it would stand in the next prompt: of the prompt's text and a message of
	// the assistant behind it. Zero where the reply is unknown, or not one whole text.
	Reply blockhash.End
	// HashRanges are those of a replayed row, and FineBlockSize the tokens per id of theirs; Replies likewise.
	HashRanges    []mooncake.HashRange
	FineBlockSize uint32
	Replies       []mooncake.Reply
}

// Content holds the prompt of another span, that of its parent: telemetry had it in a log record, or in several, of which
// a batch may have held only some.
type Content struct {
	Span   mooncake.SpanRef
	Parent SpanID
	Start  int64 // time of the first log record, in ns since the Unix epoch; 0 is unknown
	Prompt
	Tools ToolIDs
}

// Link is any other span. It matters for what stands below it.
type Link struct {
	Span    mooncake.SpanRef
	Parent  SpanID
	Session Session
	// Border is true for the run of a tool or of an agent: requests below it are not parts of one above it.
	Border bool
	// Start and End are in ns since the Unix epoch; 0 is unknown.
	Start, End int64
	// Acts says what the span is a run of.
	Acts     Actor
	Follows  []SpanID // as of [Inference]
	Class    Name     // likewise, of the requests below it
	Priority mooncake.Opt[int64]
	Tools    ToolIDs // of a tool's run: the calls that it answers
}

// Actor is what requests of an agent are made by, or between.
type Actor uint8

// The actors.
const (
	NoActor Actor = iota
	Agent         // an agent, a workflow, or a step of one
	Tool
)

// Identity says what block ids rest on. See mooncake.identity.
type Identity uint8

// The identities. Structure and Lengths are made by [Compile] alone.
const (
	NoIdentity Identity = iota
	Trace
	Engine
	Tokens
	Text
	Structure
	Lengths
	None // a receiver has seen the span, and nothing in it identifies the prompt
)

var identities = [...]string{
	Trace: semconv.IdentityTrace, Engine: semconv.IdentityEngine, Tokens: semconv.IdentityTokens,
	Text: semconv.IdentityText, Structure: semconv.IdentityStructure, Lengths: semconv.IdentityLengths,
	None: semconv.IdentityNone,
}

// ParseIdentity reads a mooncake.identity attribute. ok is false for a value that nobody knows; "" is [NoIdentity].
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
