// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"

	"github.com/moonloop/moonloop/semconv"
)

// Opt is a value that telemetry may leave out. The zero Opt is absent.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, Set: true} }

// or returns o where it is present, else other.
func (o Opt[T]) or(other Opt[T]) Opt[T] {
	if o.Set {
		return o
	}
	return other
}

// Kind says what a span or log record stands for.
type Kind uint8

// The kinds.
const (
	// KindOther is everything else: the application's own spans, embeddings, HTTP. It may still name a session.
	KindOther Kind = iota
	// KindInference is one request to a model, seen from the application, a gateway or the engine.
	KindInference
	// KindWrapper is a span around requests or beside one (agent, step, chain, workflow, router, raw copy). Its usage, if any,
	// repeats the usage of requests.
	KindWrapper
	// KindTool is the run of a tool between requests.
	KindTool
	// KindContent is a log record about the span that it names: messages of its prompt, or its reply.
	KindContent
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	return [...]string{"other", "inference", "wrapper", "tool", "content"}[min(k, KindContent)]
}

// Engine holds the block hashes that an engine wrote for a prompt.
type Engine struct {
	// BlockSize is the number of tokens per hash; 0 when there are no hashes.
	BlockSize int
	// Hashes are rolling: each stands for its block and all before it. The last one may be of a partial block.
	Hashes []uint64
	// Complete is false when not every hash could be read; those before the damage are right.
	Complete bool
}

// Record is what one span or log record says about one request to a model. Strings are valid UTF-8 and at most 256 bytes;
// longer values are treated as content and are absent, except for the id of a session. Slices are reused by the [Reader].
type Record struct {
	Dialect Dialect
	Kind    Kind

	Operation     string // gen_ai.operation.name or what the dialect has for it; "" when unknown
	Provider      string
	RequestModel  string
	ResponseModel string
	ResponseID    string // the engine's or provider's id of the reply; joins the spans of one request

	// StartUnixNano and EndUnixNano are the span's; of a Dynamo record the request's arrival and end. 0 when unknown.
	StartUnixNano, EndUnixNano uint64

	Stream    Opt[bool]
	MaxTokens Opt[int64]
	Choices   Opt[int64] // requested replies; above 1 the output is not one sequence

	// Class is what kind of request it is, such as a service tier: one word, by [IsWord]; "" when unknown. Priority is that which a router
	// gave it. Both may be those of a span around requests.
	Class    string
	Priority Opt[int64]

	// InputTokens include the cached and the cache-written ones, OutputTokens the reasoning ones.
	InputTokens, OutputTokens                       Opt[int64]
	CachedTokens, CacheWriteTokens, ReasoningTokens Opt[int64]
	// UsageDoubtful is true when the producer is known to invent counts that the server did not give, and nothing shows that
	// these are real.
	UsageDoubtful bool
	// UsageExclusive is true when a part was larger than its whole. Such a producer leaves out the cached or the reasoning
	// tokens, so they were added.
	UsageExclusive bool
	// InputExclusive is true when the input was such a whole.
	InputExclusive bool
	// OutputEstimate is present only without OutputTokens. It comes from chunk events, the limit that ended the reply,
	// durations or characters, and gives the order of magnitude only.
	OutputEstimate Opt[int64]

	// FinishReasons are as the producer spells them ("tool_calls", "tool_call", "tool-calls"); what is no word, by
	// [IsWord], is "_OTHER".
	FinishReasons []string
	// ErrorType is "" for a request without a known error; some producers record none. Never a message: what is no word, by
	// [IsWord], is "_OTHER".
	ErrorType string
	// TimeToFirstToken is in seconds, from the span's start if the producer measures from there.
	TimeToFirstToken Opt[float64]

	// Session is the best session id that was found, or "". It may have any length and contain any bytes. Hash it; do not store
	// it.
	Session string
	// PreviousResponseID names the reply whose history the server kept: the recorded prompt is not the whole one.
	PreviousResponseID string

	Engine  Engine
	Content Content
	Reply   Reply
	Tools   ToolIDs // of [KindTool] too
}

// whole makes the counts of input and output include their parts, as the conventions require. A part that is larger than its
// whole shows that the producer leaves it out.
func (r *Record) whole() {
	if parts := r.CachedTokens.V + r.CacheWriteTokens.V; r.InputTokens.Set && parts > r.InputTokens.V {
		r.InputTokens.V += parts
		r.UsageExclusive, r.InputExclusive = true, true
	}
	if r.OutputTokens.Set && r.ReasoningTokens.V > r.OutputTokens.V {
		r.OutputTokens.V += r.ReasoningTokens.V
		r.UsageExclusive = true
	}
}

// addReason appends a finish reason.
func (r *Record) addReason(reason string) {
	if reason != "" {
		r.FinishReasons = append(r.FinishReasons, wordOr(reason, semconv.ErrorOther))
	}
}

// Model returns the requested model, or else the one that answered.
func (r *Record) Model() string {
	return cmp.Or(r.RequestModel, r.ResponseModel)
}
