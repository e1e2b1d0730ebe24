// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/semconv"
)

// Outcome is how a row ended. Every row ends in exactly one.
type Outcome uint8

// The outcomes.
const (
	Served       Outcome = iota // a finish reason came and no error did
	Failed                      // sent, or tried, and not served
	Cancelled                   // under way when the run was stopped
	Skipped                     // never tried
	Disconnected                // its connection was closed on purpose, as a client does that gives up
)

var outcomeNames = [...]string{semconv.OutcomeServed, semconv.OutcomeFailed, semconv.OutcomeCancelled, semconv.OutcomeSkipped, semconv.OutcomeDisconnected}

func (o Outcome) String() string { return outcomeNames[o] }

// ParseOutcome reads the name of an outcome.
func ParseOutcome(name string) (Outcome, error) {
	i := slices.Index(outcomeNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("outcome %.64q: want %s", name, strings.Join(outcomeNames[:], ", "))
	}
	return Outcome(i), nil //nolint:gosec // an index of outcomeNames
}

// Skip reasons; Record.Reason of a skipped row.
const (
	SkipSession       = "session_failed"     // an earlier turn of its session was not served
	SkipSessionClosed = "session_closed"     // its session, and what the turn needs of it, was given up to make room
	SkipGraph         = "predecessor_failed" // a row that it waits for was not served
	SkipInterrupted   = "interrupted"        // the run was stopped before its turn came
	SkipDuration      = "max_duration"       // its turn lies past --max-duration
	SkipTooShort      = "prompt_too_short"   // shorter than the chat template alone, under --too-short=skip
	SkipAborted       = "aborted"            // the run ended early on its own error limit
)

// CancelBroken is the Record.Reason of a cancelled row that had been sent, or was about to be, when its run was broken off: what became
// of it is not known.
const CancelBroken = "broken_off"

// FailUnsendable is the Record.Reason of a row that no request could be built from.
const FailUnsendable = "unsendable"

// Agreement compares one count that a row asked for with what the server counted.
type Agreement uint8

// The agreements.
const (
	AgreeUnknown Agreement = iota // the server did not count, or the row did not ask
	AgreeEqual
	AgreeDifferent
)

var agreementNames = [...]string{"unknown", "equal", "different"}

func (a Agreement) String() string { return agreementNames[a] }

// ParseAgreement reads the name of an agreement; every other text is AgreeUnknown.
func ParseAgreement(name string) Agreement {
	return Agreement(max(0, slices.Index(agreementNames[:], name))) //nolint:gosec // an index of agreementNames
}

// Record is what became of one row: exactly one per row of the replay. The pieces after it (spans, metrics,
// report) read it and change nothing.
type Record struct {
	Row   *mooncake.Row
	Index int64 // row index in the trace, from 0
	Turn  int   // turn of its session, from 0
	// After are the rows that it waited for, by index.
	After []int64

	// Model is the model that was asked for; empty when none was.
	Model string
	// CachedRefused says that the reply named more cached tokens than its prompt has: they count as unknown.
	CachedRefused bool
	// Assumed says that the template's overhead of another model was taken, since this one was not measured.
	Assumed bool

	// Server is the engine that the request went to, where there are several; nil = the run's only one, or none.
	Server *Server

	Outcome Outcome
	Reason  string // error class ("connect_timeout", "429"), or skip reason; empty when served
	Message string // for people; no prompt text, no secrets

	// Offset is the intended instant in replay time, seconds from the schedule's zero, spreading included;
	// Spread is the part that spreading added. Both are 0 in a closed loop.
	Offset, Spread time.Duration
	// Intended is the instant, on the run's clock, at which the row should have gone out: from the schedule, from
	// the end of the rows before it, or, in a closed loop, the instant at which its slot became free.
	Intended time.Duration
	// Scheduled is whether Intended comes from a timestamp or delay (lateness is judged) or from a free slot.
	Scheduled bool
	// Dispatched is the instant at which the scheduler let the request go; Admitted that at which a capped run let it
	// through (equal to Dispatched without a cap).
	Dispatched, Admitted time.Duration
	// Excused is how much of the time from Intended to Dispatched the machine's own hiccups took.
	Excused time.Duration

	// Sent is true when Exchange says anything.
	Sent     bool
	Exchange send.Exchange

	// PromptTokens is the number of prompt tokens that were put into the body for this row, overhead included:
	// the row's input length unless the row was too short. 0 when unknown (messages, text, payload).
	PromptTokens int64
	// OutputTokensAsked is the reply length that the body asked for; 0 when it asked for none.
	OutputTokensAsked int64
	// Priority is the one that the body states; absent where it states none.
	Priority mooncake.Opt[int64]
	Stream   bool // the body asked for a stream
	TooShort bool // the row is shorter than the template: sent longer than it asks
	TailCut  bool // the template's tokens ate into the row's last full block
	Prompt   Agreement
	Output   Agreement

	// Replies says of each of the row's replies what stood in its place: empty for the live reply, else why its words were
	// invented (the reasons of package carry). Nil where the row has none. Carried and Invented are their prompt tokens.
	Replies           []string
	Carried, Invented int64

	// Span is the span of this request in this replay; zero without telemetry.
	Span mooncake.SpanRef

	// Predicted is the number of prompt tokens that an infinite cache of whole blocks would have served after the rows
	// before, or send.Unknown. Finest is the same for a cache of the finest blocks, which shares partial ones, too: more
	// cannot come from the rows before.
	Predicted, Finest int64
	// Prediction is what both come from: of an engine whose blocks nobody knows, and to which every reply is carried.
	Prediction stats.Prediction
	// Prompts is Prediction.Finest where no reply is carried.
	Prompts int64
	// Block is the number of tokens in the blocks that Predicted counts: the engine's, or the trace's finest where that is not
	// known; 0 where nothing is.
	Block int64
}

// Shift moves all instants of the record, onto another clock.
func (r *Record) Shift(by time.Duration) {
	for _, at := range []*time.Duration{&r.Intended, &r.Dispatched, &r.Admitted} {
		if *at > clock.Never {
			*at += by
		}
	}
	if !r.Sent {
		return
	}
	x := &r.Exchange
	for _, at := range []*time.Duration{&x.Start, &x.Wire, &x.FirstByte, &x.Headers, &x.FirstEvent, &x.FirstAnswer, &x.End} {
		if *at > clock.Never {
			*at += by
		}
	}
	for i := range x.At {
		x.At[i] += int64(by)
	}
}

// Lateness is dispatch minus intention, the cap's wait not included. Zero for rows that were never dispatched.
func (r *Record) Lateness() time.Duration {
	if r.Outcome == Skipped {
		return 0
	}
	return r.Dispatched - r.Intended
}
