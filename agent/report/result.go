// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/hex"
	"math"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
)

// result is the result of a row, the value of the key result in requests.jsonl. Times are milliseconds since the start of the run,
// durations milliseconds, both with three decimals (µs). Unknown values are absent.
type result struct {
	Outcome string `json:"outcome"` // served, failed, cancelled, skipped or disconnected
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Row     int64  `json:"row"` // index of the row in the trace, from 0
	Turn    int    `json:"turn"`
	Model   string `json:"request_model,omitempty"` // if it is not the row's own

	Intended   *float64 `json:"intended,omitempty"`
	Dispatched *float64 `json:"dispatched,omitempty"`
	Admitted   *float64 `json:"admitted,omitempty"`
	Start      *float64 `json:"start,omitempty"`
	Wire       *float64 `json:"wire,omitempty"`
	WireLate   bool     `json:"wire_unknown,omitempty"` // the reply arrived before this time was taken
	FirstEvent *float64 `json:"first_event,omitempty"`  // first event with a choice, if it differs from first
	First      *float64 `json:"first,omitempty"`        // first content
	Answer     *float64 `json:"first_answer,omitempty"` // first content that is not reasoning, if it differs from first
	Last       *float64 `json:"last,omitempty"`         // last content
	End        *float64 `json:"end,omitempty"`

	Lateness *float64 `json:"lateness_ms,omitempty"` // only of scheduled rows
	Excused  float64  `json:"excused_ms,omitempty"`  // the part of it that hiccups of the machine explain
	Spread   float64  `json:"spread_ms,omitempty"`
	// TTFT and Latency are summary.json's time_to_first_token and request_latency: from start.
	TTFT      *float64  `json:"ttft_ms,omitempty"`
	Latency   *float64  `json:"latency_ms,omitempty"`
	ITL       *float64  `json:"itl_ms,omitempty"`  // mean of the request
	Gaps      []float64 `json:"gaps_ms,omitempty"` // between consecutive content chunks
	Coalesced int       `json:"coalesced,omitempty"`
	Tokens    []int32   `json:"chunk_tokens,omitempty"` // number of tokens in each content chunk, if the server sent it
	Whole     bool      `json:"whole,omitempty"`        // the reply was not a stream
	Embedding bool      `json:"embedding,omitempty"`    // the reply was an embedding, without tokens
	Kernel    bool      `json:"kernel_stamps,omitempty"`
	Phases    *phases   `json:"phases_ms,omitempty"`
	BytesSent int64     `json:"bytes_sent,omitempty"`
	BytesRead int64     `json:"bytes_read,omitempty"`

	Usage     usage  `json:"usage,omitzero"`
	Refused   bool   `json:"cached_tokens_refused,omitempty"` // the reply reported more than the prompt has
	Predicted *int64 `json:"predicted_cached_tokens,omitempty"`
	Finest    *int64 `json:"predicted_cached_tokens_finest,omitempty"` // if it is greater than Predicted
	Block     int64  `json:"predicted_block,omitempty"`                // tokens in a block of the prediction
	// Asked is the reply length in the body, if it is not the row's output_length; Sized the number of prompt tokens in the body, if it is
	// not the row's input_length.
	Asked *int64 `json:"output_tokens_asked,omitempty"`
	Sized *int64 `json:"prompt_tokens_sent,omitempty"`
	// Priority is the priority in the body; absent if there was none.
	Priority *int64 `json:"priority,omitempty"`
	// Replies has, for each of the row's replies, the reason for invented words; empty: the live reply was inserted.
	Replies []string `json:"replies,omitempty"`
	// CarriedTokens are the prompt tokens in live replies, InventedTokens those in invented words instead of replies.
	CarriedTokens  int64 `json:"carried_reply_tokens,omitempty"`
	InventedTokens int64 `json:"invented_reply_tokens,omitempty"`

	Prompt string `json:"prompt_agreement,omitempty"` // equal, different or unknown
	// PromptError is the server's count minus the row's; absent if they do not differ.
	PromptError int64 `json:"prompt_token_error,omitempty"`

	Output   string `json:"output_agreement,omitempty"`
	TooShort bool   `json:"too_short,omitempty"`
	TailCut  bool   `json:"tail_cut,omitempty"`
	Assumed  bool   `json:"template_assumed,omitempty"`

	Status   int `json:"status,omitempty"`
	Attempts int `json:"attempts,omitempty"`
	// Unconnected counts those of several attempts that got no connection.
	Unconnected int `json:"unconnected_attempts,omitempty"`
	// Replays counts the kept connections that died during the request; Resent those of them that had been given the whole request. If
	// Resent is not 0, or there was a second attempt, no latency of the summary includes the row.
	Replays      int    `json:"replays,omitempty"`
	Resent       int    `json:"resent,omitempty"`
	Reused       bool   `json:"connection_reused,omitempty"`
	Choices      int    `json:"choices,omitempty"` // if there are several: usage counts the tokens of all, times are those of the first
	FinishReason string `json:"finish_reason,omitempty"`
	Server       string `json:"server,omitempty"`   // the engine, if there are several
	Instance     string `json:"instance,omitempty"` // the instance behind a router, from a response header
	ResponseID   string `json:"response_id,omitempty"`
	TraceID      string `json:"trace_id,omitempty"`
	SpanID       string `json:"span_id,omitempty"`
}

// phases are the phases of AIPerf's HTTP metrics.
type phases struct {
	Blocked   float64 `json:"blocked,omitempty"`
	DNS       float64 `json:"dns,omitempty"`
	Connect   float64 `json:"connect,omitempty"`
	TLS       float64 `json:"tls,omitempty"`
	Sending   float64 `json:"sending,omitempty"`
	Waiting   float64 `json:"waiting,omitempty"`
	Receiving float64 `json:"receiving,omitempty"`
}

// usage has the server's counts; absent members were not reported.
type usage struct {
	Prompt     *int64 `json:"prompt_tokens,omitempty"`
	Completion *int64 `json:"completion_tokens,omitempty"`
	Cached     *int64 `json:"cached_tokens,omitempty"`
	Reasoning  *int64 `json:"reasoning_tokens,omitempty"`
}

// values are what the pointers of a result point to. A result is written and forgotten, so the next one uses the same memory.
type values struct {
	floats []float64
	counts []int64
	gaps   []float64
	phases phases
}

// result returns the result of a record, which is valid until the next call.
func (v *values) result(r *measure.Record) result {
	v.floats, v.counts, v.gaps = v.floats[:0], v.counts[:0], v.gaps[:0]
	res := result{
		Outcome: r.Outcome.String(), Reason: r.Reason, Message: r.Message, Row: r.Index, Turn: r.Turn,
		TooShort: r.TooShort, TailCut: r.TailCut, Spread: millis(r.Spread), Predicted: v.count(r.Predicted),
		CarriedTokens: r.Carried, InventedTokens: r.Invented, Replies: r.Replies,
		Finest: v.known(r.Finest, r.Finest > r.Predicted), Block: r.Block,
	}
	if r.Row == nil || r.Model != r.Row.Model {
		res.Model = r.Model
	}
	if r.Server != nil {
		res.Server = r.Server.Name
	}
	if !r.Span.IsZero() {
		res.TraceID, res.SpanID = hex.EncodeToString(r.Span.TraceID[:]), hex.EncodeToString(r.Span.SpanID[:])
	}
	if r.Outcome == measure.Skipped {
		return res
	}
	res.Intended, res.Dispatched, res.Admitted = v.instant(r.Intended), v.instant(r.Dispatched), v.instant(r.Admitted)
	if r.Scheduled {
		res.Lateness, res.Excused = v.duration(r.Lateness(), true), millis(r.Excused)
	}
	if !r.Sent {
		return res
	}
	x := &r.Exchange
	res.Start, res.Wire, res.First, res.End = v.instant(x.Start), v.instant(r.Wire()), v.instant(r.FirstToken()), v.instant(x.End)
	if !x.Whole {
		res.FirstEvent, res.Answer = otherThan(res.First, v.instant(x.FirstEvent)), otherThan(res.First, v.instant(x.FirstAnswer))
	}
	res.Embedding = x.Embedding
	res.Whole, res.Tokens, res.Kernel, res.BytesSent, res.BytesRead = x.Whole, x.Tokens, x.KernelStamps, x.BytesSent, x.BytesRead
	if p := x.Phases; p != (send.Phases{}) {
		v.phases = phases{millis(p.Blocked), millis(p.DNS), millis(p.Connect), millis(p.TLS), millis(p.Sending), millis(p.Waiting), millis(p.Receiving)}
		res.Phases = &v.phases
	}
	res.Priority = v.known(r.Priority.V, r.Priority.Set)
	res.Refused, res.Assumed = r.CachedRefused, r.Assumed
	if row := r.Row; row != nil {
		res.Asked = v.known(r.OutputTokensAsked, r.OutputTokensAsked != row.OutputLength.V)
		res.Sized = v.known(r.PromptTokens, r.PromptTokens != row.InputLength.V)
	}
	res.Coalesced, res.Status, res.Attempts, res.Reused = x.Coalesced, x.Status, x.Attempts, x.Reused
	res.Unconnected, res.Replays, res.Resent, res.WireLate = x.Unconnected, x.Replays, x.Resent, x.WireLate
	if x.Choices > 1 {
		res.Choices = x.Choices
	}
	res.PromptError, _ = r.PromptError()
	res.FinishReason, res.ResponseID, res.Instance = x.FinishReason, x.ResponseID, x.Instance
	res.Usage = usage{v.count(x.Usage.Prompt), v.count(x.Usage.Completion), v.count(x.Usage.Cached), v.count(x.Usage.Reasoning)}
	res.TTFT = v.duration(r.TTFT(x.Start))
	for i := 1; i < len(x.At); i++ {
		v.gaps = append(v.gaps, millis(time.Duration(x.At[i]-x.At[i-1])))
	}
	res.Gaps = v.gaps
	if r.Outcome == measure.Served {
		res.Last = v.instant(r.LastToken())
		res.Latency = v.duration(r.Latency(x.Start))
		res.ITL = v.duration(r.ITL())
		res.Prompt, res.Output = r.Prompt.String(), r.Output.String()
	}
	return res
}

// otherThan returns the second time, or nil if it equals the first.
func otherThan(one, at *float64) *float64 {
	if one != nil && at != nil && *one == *at {
		return nil
	}
	return at
}

// millis returns the duration in milliseconds, rounded to µs.
func millis(d time.Duration) float64 { return math.Round(float64(d)/1e3) / 1e3 }

func (v *values) duration(d time.Duration, ok bool) *float64 {
	if !ok {
		return nil
	}
	v.floats = append(v.floats, millis(d))
	return &v.floats[len(v.floats)-1]
}

func (v *values) instant(at time.Duration) *float64 { return v.duration(at, at > clock.Never) }

func (v *values) known(n int64, ok bool) *int64 {
	if !ok {
		return nil
	}
	v.counts = append(v.counts, n)
	return &v.counts[len(v.counts)-1]
}

func (v *values) count(n int64) *int64 { return v.known(n, n > send.Unknown) }
