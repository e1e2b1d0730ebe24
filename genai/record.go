// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"

	"github.com/moonloop/moonloop/semconv"
)

// Opt is a value that may be absent from telemetry. The zero Opt is absent.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{V: v, Set: true} }

// or returns o if it is present, else other.
func (o Opt[T]) or(other Opt[T]) Opt[T] {
	if o.Set {
		return o
	}
	return other
}

// Kind says what a span or log record represents.
type Kind uint8

// The kinds.
const (
	// KindOther is everything else: the application's own spans, embeddings, HTTP. It may still have a session.
	KindOther Kind = iota
	// KindInference is one request to a model, seen from the application, a gateway or the engine.
	KindInference
	// KindWrapper is a span around requests or next to one (agent, step, chain, workflow, router, raw copy). Its usage, if any, repeats the
	// usage of requests.
	KindWrapper
	// KindTool is the run of a tool between requests.
	KindTool
	// KindContent is a log record about a span: messages of its prompt, or its reply.
	KindContent
)

// String returns the kind's name in lower case.
func (k Kind) String() string {
	return [...]string{"other", "inference", "wrapper", "tool", "content"}[min(k, KindContent)]
}

// Engine has the block hashes that an engine wrote for a prompt.
type Engine struct {
	// BlockSize is the number of tokens per hash; 0 if there are no hashes.
	BlockSize int
	// Hashes are rolling: each covers its block and all before it. The last one may be of a partial block.
	Hashes []uint64
	// Complete is false if some hashes could not be read; those before the first unreadable one are right.
	Complete bool
}

// Record contains what one span or log record reports about one request to a model. Strings are valid UTF-8 and at most 256 bytes; longer
// values are treated as content and are absent, except for the id of a session. Slices are reused by the [Reader].
type Record struct {
	Dialect Dialect
	Kind    Kind

	Operation     string // gen_ai.operation.name or the dialect's equivalent; "" if unknown
	Provider      string
	RequestModel  string
	ResponseModel string
	ResponseID    string // the engine's or provider's id of the reply; joins the spans of one request

	// StartUnixNano and EndUnixNano are the span's; for a Dynamo record, the request's arrival and end. 0 if unknown.
	StartUnixNano, EndUnixNano uint64

	Stream    Opt[bool]
	MaxTokens Opt[int64]
	Choices   Opt[int64] // requested replies; above 1 the output is not one sequence

	// Class is the kind of the request, such as a service tier: one word, by [IsWord]; "" if unknown. Priority is the one that a router
	// assigned. Both may come from a span around requests.
	Class    string
	Priority Opt[int64]

	// InputTokens include cached and cache-written tokens, OutputTokens include reasoning tokens.
	InputTokens, OutputTokens                       Opt[int64]
	CachedTokens, CacheWriteTokens, ReasoningTokens Opt[int64]
	// UsageDoubtful is true if the producer is known to invent counts that the server did not send, and nothing shows that these are real.
	UsageDoubtful bool
	// UsageExclusive is true if a part was larger than its whole. Such a producer excludes cached or reasoning tokens, so they were added.
	UsageExclusive bool
	// InputExclusive is true if the parts of the input were larger than the input.
	InputExclusive bool
	// OutputEstimate is present only without OutputTokens. It is computed from chunk events, the limit that ended the reply, durations or
	// characters, and is only an order of magnitude.
	OutputEstimate Opt[int64]

	// FinishReasons are in the producer's spelling ("tool_calls", "tool_call", "tool-calls"); a value that is not a word, by [IsWord], is
	// "_OTHER".
	FinishReasons []string
	// ErrorType is "" for a request without a known error; some producers record none. It is never a message: a value that is not a word,
	// by [IsWord], is "_OTHER".
	ErrorType string
	// TimeToFirstToken is in seconds, from the span's start if the producer measures from there.
	TimeToFirstToken Opt[float64]

	// Session is the best session id that was found, or "". It may have any length and contain any bytes. Hash it; do not store
	// it.
	Session string
	// PreviousResponseID is the id of the reply whose history the server kept: the recorded prompt is not complete.
	PreviousResponseID string

	Engine  Engine
	Content Content
	Reply   Reply
	Tools   ToolIDs // also for [KindTool]
}

// whole makes the counts of input and output include their parts, as the conventions require. If a part is larger than its whole, the
// producer excludes it.
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

// Model returns the requested model, or else that of the reply.
func (r *Record) Model() string {
	return cmp.Or(r.RequestModel, r.ResponseModel)
}
