// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"

	"github.com/moonloop/moonloop/semconv"
)

// Opt is a fact that telemetry may leave out. The zero Opt is an absent one.
type Opt[T any] struct {
	V   T
	Set bool
}

// Some returns a present fact.
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
	// KindWrapper stands around requests or beside one (agent, step, chain, workflow, router, raw copy). Its usage,
	// where it has any, repeats that of requests.
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

// Record is what one span or log record says about one request to a model. Strings are valid UTF-8 and at most 256
// bytes; longer values are taken for content and are absent, but for the id of a session. Slices are reused by the [Reader].
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
	Choices   Opt[int64] // replies asked for; above 1 the output is not one sequence
	Priority  Opt[int64]

	// InputTokens include the cached and the cache-written ones, OutputTokens the reasoning ones.
	InputTokens, OutputTokens                       Opt[int64]
	CachedTokens, CacheWriteTokens, ReasoningTokens Opt[int64]
	// UsageDoubtful is true when the producer is known to make counts up where the server gave none, and did
	// nothing to show that it did not.
	UsageDoubtful bool
	// UsageExclusive is true when a part was larger than its whole, which shows a producer that leaves the cached or the
	// reasoning tokens out. They have been added then.
	UsageExclusive bool
	// InputExclusive is true when that was so of the input.
	InputExclusive bool
	// OutputEstimate is present only where OutputTokens is not: chunk events, the limit of a reply that ended by it,
	// durations or characters. Of the order of the truth, no more.
	OutputEstimate Opt[int64]

	// FinishReasons are as the producer spells them ("tool_calls", "tool_call", "tool-calls"); what is no word, by
	// [IsWord], is "_OTHER".
	FinishReasons []string
	// ErrorType is "" for a request that no error is known of; some producers leave none. Never a message: what is no
	// word, by [IsWord], is "_OTHER".
	ErrorType string
	// TimeToFirstToken in seconds, from the span's start where the producer measures there.
	TimeToFirstToken Opt[float64]

	// Session is the best session id that was found, or "". It may be of any length and hold any bytes: it is a piece of the
	// telemetry, to be hashed and not to be kept.
	Session string
	// PreviousResponseID names the reply whose history the server kept: the recorded prompt is not the whole one.
	PreviousResponseID string

	Engine  Engine
	Content Content
	Reply   Reply
}

// whole makes the counts of input and output those of the whole, as the conventions have them. That a producer leaves
// parts out shows where they are larger than the whole.
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

// Model returns the model asked for, else the one that answered.
func (r *Record) Model() string {
	return cmp.Or(r.RequestModel, r.ResponseModel)
}
