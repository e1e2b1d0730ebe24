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

// Outcome is how a row ended. Every row has exactly one.
type Outcome uint8

// The outcomes.
const (
	Served       Outcome = iota // a finish reason came and no error
	Failed                      // sent, or tried, and not served
	Cancelled                   // in flight when the run was stopped
	Skipped                     // never tried
	Disconnected                // its connection was closed on purpose, like that of a client that gives up
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
	SkipSessionClosed = "session_closed"     // its session, whose state the turn needs, was dropped to make room
	SkipGraph         = "predecessor_failed" // a row that it waits for was not served
	SkipInterrupted   = "interrupted"        // the run was stopped before the row was due
	SkipDuration      = "max_duration"       // it is due after --max-duration
	SkipTooShort      = "prompt_too_short"   // shorter than the chat template alone, with --too-short=skip
	SkipAborted       = "aborted"            // the run reached its own error limit and ended early
)

// CancelEnd is the Record.Reason of a cancelled row whose request had not ended when the run did, after its grace. Unlike an interrupt, which
// says itself that the run is not whole, this leaves out the slowest requests of a run that counts as complete.
const CancelEnd = "cut_off"

// CancelBroken is the Record.Reason of a cancelled row that had been sent, or was about to be, when its run was cut short. Its result is
// not known.
const CancelBroken = "broken_off"

// FailUnsendable is the Record.Reason of a row from which no request could be built.
const FailUnsendable = "unsendable"

// Agreement compares one count of a row with the server's.
type Agreement uint8

// The agreements.
const (
	AgreeUnknown Agreement = iota // the server sent no count, or the row has none
	AgreeEqual
	AgreeDifferent
)

var agreementNames = [...]string{"unknown", "equal", "different"}

func (a Agreement) String() string { return agreementNames[a] }

// ParseAgreement reads the name of an agreement; any other text is AgreeUnknown.
func ParseAgreement(name string) Agreement {
	return Agreement(max(0, slices.Index(agreementNames[:], name))) //nolint:gosec // an index of agreementNames
}

// Record is the result of one row: the replay has exactly one for each row. Later stages (spans, metrics, report) read it and do not change
// it.
type Record struct {
	Row   *mooncake.Row
	Index int64 // row index in the trace, from 0
	Turn  int   // turn of its session, from 0
	// After are the rows that it waited for, by index: empty for the first row of a graph, nil for a row outside graphs.
	After []int64

	// Model is the requested model; empty if none was requested.
	Model string
	// CachedRefused says that the reply reported more cached tokens than its prompt has. Its number of cached tokens then counts as unknown.
	CachedRefused bool
	// Assumed says that the template overhead of another model was assumed, because this model's was not measured.
	Assumed bool

	// Server is the engine to which the request was sent, if there are several; nil = the run has only one engine, or the row was sent to
	// none.
	Server *Server

	Outcome Outcome
	Reason  string // error class ("connect_timeout", "429"), or skip reason; empty if served
	Message string // for people; no prompt text, no secrets

	// Offset is the scheduled time in replay time, from the start of the schedule, including spreading; Spread is the part that spreading
	// added. Both are 0 in a closed loop.
	Offset, Spread time.Duration
	// Intended is the time, on the run's clock, at which the row should have been sent: from the schedule, from the time at which the end of
	// the rows before it was noticed, or, in a closed loop, the time at which its slot became free.
	Intended time.Duration
	// Scheduled says whether Intended comes from a timestamp or delay (then lateness is judged) or from a free slot.
	Scheduled bool
	// Dispatched is the time at which the scheduler released the request; Admitted the time at which a capped run let it through (equal to
	// Dispatched without a cap).
	Dispatched, Admitted time.Duration
	// Excused is the part of the time from Intended to Dispatched during which the machine had hiccups.
	Excused time.Duration

	// Sent is true if Exchange is filled in.
	Sent     bool
	Exchange send.Exchange

	// PromptTokens is the number of prompt tokens in the body, including overhead: the row's input length, unless the row was too short. 0
	// if unknown (messages, text, payload).
	PromptTokens int64
	// OutputTokensAsked is the reply length that the body requested; 0 if none.
	OutputTokensAsked int64
	// Priority is the priority in the body; absent if there is none.
	Priority mooncake.Opt[int64]
	Stream   bool // the body requested a stream
	TooShort bool // the row is shorter than the template: it was sent longer
	TailCut  bool // the prompt lacks the row's last block, to make room for the template
	Prompt   Agreement
	Output   Agreement

	// Replies says, for each of the row's replies, what was inserted: empty for the live reply, else the reason why its words were invented
	// (the reasons of package carry). Nil if the row has none. Carried and Invented are the numbers of prompt tokens that come from live
	// replies and from invented words.
	Replies           []string
	Carried, Invented int64

	// Span is the span of this request in this replay; zero without telemetry.
	Span mooncake.SpanRef

	// Predicted is the number of prompt tokens that an infinite cache of whole blocks would have served after the earlier rows, or
	// send.Unknown. Finest is the same for a cache of the finest blocks, which also shares partial blocks: earlier rows cannot provide
	// more.
	Predicted, Finest int64
	// Prediction is what Predicted and Finest are computed from: the trace's own prediction, which assumes its blocks and that every reply is
	// carried.
	Prediction stats.Prediction
	// Prompts is what Prediction.Finest would be if no reply were carried.
	Prompts int64
	// Block is the size, in tokens, of the blocks that Predicted assumes: the engine's, or the trace's finest if the engine's are not known; 0
	// if neither is known.
	Block int64
}

// Shift moves all times of the record to another clock.
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

// Lateness returns Dispatched − Intended, which includes neither the wait for a cap nor what is left of building the request; the latter is
// in [Record.WireLag]. Zero for rows that were never dispatched.
func (r *Record) Lateness() time.Duration {
	if r.Outcome == Skipped {
		return 0
	}
	return r.Dispatched - r.Intended
}
