// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// Every formula returns false if the record lacks what it needs. Times are on the run's clock.

// between returns to − from, unless one of them was never reached.
func between(from, to time.Duration) (time.Duration, bool) {
	if from <= clock.Never || to <= clock.Never {
		return 0, false
	}
	return to - from, true
}

// Wire returns the time at which the kernel had the request's last byte; clock.Never if that did not happen, or if the timestamp was taken
// too late to be valid.
func (r *Record) Wire() time.Duration {
	if r.Exchange.WireLate {
		return clock.Never
	}
	return r.Exchange.Wire
}

// streamed reports whether the reply came in separate chunks.
func (r *Record) streamed() bool { return !r.Exchange.Whole && len(r.Exchange.At) > 0 }

// FirstToken returns the arrival of the first chunk with content, reasoning or tool-call text (AIPerf's rule: role-only, empty and
// usage-only chunks do not count); clock.Never if none came or the reply was not a stream.
func (r *Record) FirstToken() time.Duration {
	if !r.streamed() {
		return clock.Never
	}
	return time.Duration(r.Exchange.At[0])
}

// LastToken returns the arrival of the last chunk with content (AIPerf's end of a request: usage chunk and [DONE] do not count), or the end
// of the reply if it had none or was not a stream.
func (r *Record) LastToken() time.Duration {
	if !r.streamed() {
		return r.Exchange.End
	}
	return time.Duration(r.Exchange.At[len(r.Exchange.At)-1])
}

// TTFT returns the time to the first token: content[0] − from. From the Exchange's Start it is AIPerf's
// time_to_first_token.
func (r *Record) TTFT(from time.Duration) (time.Duration, bool) { return between(from, r.FirstToken()) }

// TTFE returns the time to the first event: the first chunk with a choice, including role-only ones, − start. This is vLLM's TTFT.
func (r *Record) TTFE() (time.Duration, bool) {
	return between(r.Exchange.Start, r.inStream(r.Exchange.FirstEvent))
}

// TTFO returns the time to the first output token that is not reasoning: its arrival − start. This is AIPerf's time_to_first_output_token.
func (r *Record) TTFO() (time.Duration, bool) {
	return between(r.Exchange.Start, r.inStream(r.Exchange.FirstAnswer))
}

// inStream returns the given time within a stream; clock.Never if the reply was not a stream.
func (r *Record) inStream(at time.Duration) time.Duration {
	if r.Exchange.Whole {
		return clock.Never
	}
	return at
}

// TTST returns the time from the first to the second token: content[1] − content[0]. AIPerf's time_to_second_token.
func (r *Record) TTST() (time.Duration, bool) {
	at := r.Exchange.At
	if !r.streamed() || len(at) < 2 {
		return 0, false
	}
	return time.Duration(at[1] - at[0]), true
}

// Latency returns content[last] − from. From the Exchange's Start it is AIPerf's request_latency.
func (r *Record) Latency(from time.Duration) (time.Duration, bool) {
	return between(from, r.LastToken())
}

// DecodeDuration returns request latency − TTFT = content[last] − content[0] (AIPerf's decode_duration).
func (r *Record) DecodeDuration() (time.Duration, bool) { return r.Latency(r.FirstToken()) }

// ITL returns the mean inter-token latency of one request: (request latency − TTFT) / (OSL − 1), for OSL ≥ 2 (AIPerf's
// inter_token_latency). Unlike in AIPerf, a reply of one chunk has none, because its decode time is unknown, not 0.
func (r *Record) ITL() (time.Duration, bool) { return r.perToken(r.FirstToken()) }

// TPOT returns vLLM's time per output token without the first: (latency − TTFT) / (OSL − 1) with vLLM's TTFT, so it differs from ITL if a
// role-only chunk comes before the first token. vLLM's latency ends at the last chunk with a choice, ours at the last one with content.
func (r *Record) TPOT() (time.Duration, bool) { return r.perToken(r.Exchange.FirstEvent) }

// perToken returns the time from an instant to the last token, divided by the tokens after the first.
func (r *Record) perToken(from time.Duration) (time.Duration, bool) {
	n := r.choiceTokens()
	d, ok := r.Latency(from)
	if !ok || !r.streamed() || n < 2 || len(r.Exchange.At) < 2 {
		return 0, false
	}
	return d / time.Duration(n-1), true
}

// TPOTWithFirst returns request latency / OSL, including the prefill: GuideLLM's TPOT, inference-perf's NTPOT, and the inverse of AIPerf's
// e2e_normalized_interactivity.
func (r *Record) TPOTWithFirst() (time.Duration, bool) {
	n := r.choiceTokens()
	d, ok := r.Latency(r.Exchange.Start)
	if !ok || n < 1 {
		return 0, false
	}
	return d / time.Duration(n), true
}

// OutputTokens returns the output sequence length (OSL), including reasoning: the server's count, else the sum of the chunks' counts, else
// the number of chunks. The last two are estimates. It returns [send.Unknown] if a reply that was not a stream has no count, because its
// only chunk has all its tokens, and for an embedding.
func (r *Record) OutputTokens() (n int64, estimated bool) {
	x := &r.Exchange
	switch {
	case x.Usage.Completion > send.Unknown:
		return x.Usage.Completion, false
	case x.Whole || x.Embedding:
		return send.Unknown, false
	case x.Tokens == nil:
		return int64(len(x.At)), true
	}
	for _, t := range x.Tokens {
		n += int64(t)
	}
	return n, true
}

// choiceTokens returns the number of output tokens of choice 0, whose chunks the times are of. Servers count the tokens of all choices
// together, so they are assumed to be equally long. It returns [send.Unknown] if the number is not known.
func (r *Record) choiceTokens() int64 {
	n, _ := r.OutputTokens()
	if x := &r.Exchange; n > 0 && (x.Usage.Completion > send.Unknown || x.Tokens != nil) {
		n /= int64(max(1, x.Choices))
	}
	return n
}

// InputTokens returns the input sequence length (ISL): the server's count, else the tokens in the body, else the row's length. The last two
// are estimates.
func (r *Record) InputTokens() (n int64, estimated bool) {
	switch {
	case r.Exchange.Usage.Prompt > send.Unknown:
		return r.Exchange.Usage.Prompt, false
	case r.PromptTokens > 0:
		return r.PromptTokens, true
	case r.Row != nil:
		return r.Row.InputLength.V, true
	}
	return 0, true
}

// CapWait returns how long a capped run held the request back: Admitted − Dispatched.
func (r *Record) CapWait() (time.Duration, bool) { return between(r.Dispatched, r.Admitted) }

// WireLag returns the time from the release of the request to its last byte in the kernel: what is left of building it (a large image takes
// long), connection set-up, wait for a pooled connection and the write of the body. It starts at Admitted, which equals Dispatched in a run
// without a cap, so that waiting for a cap is not counted as the client's delay. A request that was sent again has none, because its wire
// time is that of the last attempt.
func (r *Record) WireLag() (time.Duration, bool) {
	if r.Retried() {
		return 0, false
	}
	return between(r.Admitted, r.Wire())
}

// SendGap returns Wire − Intended: the part that latencies from the wire leave out (coordinated omission).
func (r *Record) SendGap() (time.Duration, bool) { return between(r.Intended, r.Wire()) }

// Retried reports whether the request took more than one attempt, or was sent again as a whole because its kept connection died. Its times
// are those of the last attempt, so no latency includes it.
func (r *Record) Retried() bool { return r.Exchange.Attempts > 1 || r.Exchange.Resent > 0 }

// Resent reports whether the engine may have received the request more than once. An attempt that got no connection does not count.
func (r *Record) Resent() bool {
	return r.Exchange.Attempts-r.Exchange.Unconnected > 1 || r.Exchange.Resent > 0
}

// PromptError returns the number of prompt tokens that the server counted minus those that the row has; false if Prompt says that the two
// cannot be compared.
func (r *Record) PromptError() (diff int64, ok bool) {
	if r.Prompt == AgreeUnknown || r.Row == nil {
		return 0, false
	}
	return r.Exchange.Usage.Prompt - r.Row.InputLength.V, true
}

// CachePair returns the predicted and the reported number of cached prompt tokens of a served row that has both. The realisation is the
// ratio of their sums.
func (r *Record) CachePair() (predicted, cached int64, ok bool) {
	predicted, cached = r.Predicted, r.Exchange.Usage.Cached
	if r.Outcome != Served || !r.Sent || predicted <= send.Unknown || cached <= send.Unknown {
		return 0, 0, false
	}
	return predicted, cached, true
}
