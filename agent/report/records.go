// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

// This file reads records back from requests.jsonl, which has everything that figures are computed from. The figures of a part of a run are
// computed only when it has ended, and a resumed run continues the figures of the earlier parts.

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// Records calls yield for each record of a run's folder, in the order of its file, until yield returns an error. Records returns that
// error. The file is [RequestsFile], or, for a killed run, [PartialFile]: its last line may be torn, and is then ignored. Times and
// durations are exact to a microsecond. Every other error names the file, the line and the problem.
func Records(dir string, yield func(*measure.Record) error) error {
	return lines.Read(dir, parseRecord, yield)
}

// parseRecord reads a line.
func parseRecord(line []byte) (*measure.Record, error) {
	var in struct {
		Result result `json:"result"`
	}
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, err
	}
	res := &in.Result
	outcome, err := measure.ParseOutcome(res.Outcome)
	if err != nil {
		return nil, fmt.Errorf("its result is not that of a replay: %w", err)
	}
	row, err := mooncake.ParseRow(line)
	if err != nil {
		return nil, err
	}
	r := &measure.Record{
		Row: row, Index: res.Row, Turn: res.Turn, Model: cmp.Or(res.Model, row.Model), Outcome: outcome, Reason: res.Reason, Message: res.Message,
		Intended: at(res.Intended), Dispatched: at(res.Dispatched), Admitted: at(res.Admitted), Scheduled: res.Lateness != nil, Spread: nanos(res.Spread), Excused: nanos(res.Excused),
		CachedRefused: res.Refused, Assumed: res.Assumed, TooShort: res.TooShort, TailCut: res.TailCut, Block: res.Block,
		Predicted: number(res.Predicted), Replies: res.Replies, Carried: res.CarriedTokens, Invented: res.InventedTokens,
		Prompt: measure.ParseAgreement(res.Prompt), Output: measure.ParseAgreement(res.Output),
		PromptTokens: row.InputLength.V, OutputTokensAsked: row.OutputLength.V, Sent: res.Start != nil,
	}
	r.Finest = r.Predicted
	if res.Finest != nil {
		r.Finest = *res.Finest
	}
	if res.Asked != nil {
		r.OutputTokensAsked = *res.Asked
	}
	if res.Sized != nil {
		r.PromptTokens = *res.Sized
	}
	if res.Priority != nil {
		r.Priority = mooncake.Some(*res.Priority)
	}
	if res.Server != "" {
		r.Server = &measure.Server{Name: res.Server}
	}
	_, _ = hex.Decode(r.Span.TraceID[:], short(res.TraceID, 32)) // an invalid id becomes zero, which means no span
	_, _ = hex.Decode(r.Span.SpanID[:], short(res.SpanID, 16))
	res.fill(&r.Exchange)
	return r, nil
}

// fill sets the values of an exchange.
func (res *result) fill(x *send.Exchange) {
	x.Start, x.Wire, x.End, x.FirstByte, x.Headers = at(res.Start), at(res.Wire), at(res.End), clock.Never, clock.Never
	if x.WireLate = res.WireLate; x.WireLate {
		x.Wire = x.Start // no latency counts from it, but it must exist
	}
	x.FirstEvent, x.FirstAnswer = at(cmp.Or(res.FirstEvent, res.First)), at(cmp.Or(res.Answer, res.First))
	if res.First != nil {
		x.At = append(make([]int64, 0, 1+len(res.Gaps)), int64(at(res.First)))
		for i, gap := range res.Gaps {
			x.At = append(x.At, int64(limited(time.Duration(x.At[i])+nanos(gap))))
		}
	} else if res.Whole && res.Outcome == measure.Served.String() && !res.Embedding {
		x.At = slices.Repeat([]int64{int64(x.End)}, 1+len(res.Gaps))
	}
	x.Embedding = res.Embedding
	x.Tokens, x.Whole, x.KernelStamps, x.Coalesced = res.Tokens, res.Whole, res.Kernel, res.Coalesced
	x.Usage = send.Usage{Prompt: number(res.Usage.Prompt), Completion: number(res.Usage.Completion), Cached: number(res.Usage.Cached), Reasoning: number(res.Usage.Reasoning)}
	x.Choices, x.FinishReason, x.ResponseID, x.Instance, x.Status, x.Reused = res.Choices, res.FinishReason, res.ResponseID, res.Instance, res.Status, res.Reused
	x.Attempts, x.Unconnected, x.Replays, x.Resent = res.Attempts, res.Unconnected, res.Replays, res.Resent
	x.BytesSent, x.BytesRead = res.BytesSent, res.BytesRead
	if p := res.Phases; p != nil {
		x.Phases = send.Phases{
			Blocked: nanos(p.Blocked), DNS: nanos(p.DNS), Connect: nanos(p.Connect), TLS: nanos(p.TLS),
			Sending: nanos(p.Sending), Waiting: nanos(p.Waiting), Receiving: nanos(p.Receiving),
		}
	}
}

// at returns the time for a value in ms; a time that is absent was never reached.
func at(ms *float64) time.Duration {
	if ms == nil {
		return clock.Never
	}
	return nanos(*ms)
}

// nanos converts ms to ns, within limits.
func nanos(ms float64) time.Duration { return limited(mooncake.Duration(ms)) }

// limited limits a time or a duration, so that a sum of a few does not overflow whatever is in a file: from −11 days to 31 years.
func limited(d time.Duration) time.Duration { return max(-1e15, min(d, 1e18)) }

// number returns a count; a count that is absent is unknown.
func number(n *int64) int64 {
	if n == nil {
		return send.Unknown
	}
	return *n
}

// short returns the beginning of a text, at most this many bytes.
func short(text string, most int) []byte { return []byte(text[:min(most, len(text))]) }
