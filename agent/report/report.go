// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package report writes the results of a run: the table at the end, summary.json and summary.csv, and requests.jsonl, which has a line for
// each request. From requests.jsonl, package page makes the tables over time and by session.
//
// # Names
//
// A figure has AIPerf's field name exactly if it has AIPerf's meaning, so time_to_first_token counts from the hand-over to the transport;
// time_to_first_token_wire and time_to_first_token_intended are ours. Latencies are in milliseconds. A figure that was not measured is
// absent, never 0.
//
// # Files
//
// Every file has the mode 0600 and is renamed to its name when it is complete: until then its name ends in .partial. Only [JournalFile]
// grows under its own name; it is removed when the run is complete. requests.jsonl has a Mooncake row on each line, with one more key,
// result, so it can be replayed unchanged. A killed run leaves [PartialFile] instead, which can be read in the same way. Only one run at a
// time can use a directory, and it replaces files only if asked to: [OpenFolder].
package report

import (
	"time"

	"github.com/moonloop/moonloop/agent/judge"
	"github.com/moonloop/moonloop/agent/measure"
)

// SchemaVersion is the version of summary.json. It changes when a field is removed or changes its meaning.
const SchemaVersion = "1.0"

// Report has all results of a run. New fills in what was measured, the caller the rest.
type Report struct {
	Run       Run
	Settings  []Setting
	Trace     Trace
	Schedule  Schedule
	Machine   Machine
	Telemetry Telemetry
	Shard     *Shard   // nil: the report is not that of one shard
	Merged    *Merged  // nil: it was not merged from shards
	Resumed   *Resumed // nil: it was not resumed
	Saved     *Saved   // nil: no prompts were saved
	Warmup    *Warmup  // nil: there was none
	Warnings  []string
	// Missed has a sentence for each goal that the run did not reach.
	Missed  []string
	Verdict judge.Verdict
	// Steady has the figures of the steady state; nil: none was requested, or there was none. NoSteady says that it was requested, but
	// there was none; Warnings have the reason.
	Steady   *Steady
	NoSteady bool
	// ExitStatus is the exit status for a command (judge.ExitCode). It is in no file.
	ExitStatus int
	// Percentiles are those in the table; empty = those of its layout. Layout is its layout; empty = LayoutMoonloop. Neither is in a file,
	// because files have all percentiles.
	Percentiles Percentiles
	Layout      Layout

	figures *measure.Figures
}

// New returns a report with the figures.
func New(f *measure.Figures) *Report { return &Report{figures: f} }

// Figures returns the argument of New.
func (r *Report) Figures() *measure.Figures { return r.figures }

// Shown returns the figures of the table: those of the steady state, or, if there is none, of the run.
func (r *Report) Shown() *measure.Figures {
	if r.Steady != nil {
		return r.Steady.figures
	}
	return r.figures
}

// Steady has the figures of a part of the run. The other figures cover the whole run, including ramp-up and drain.
type Steady struct {
	Window  Window
	figures *measure.Figures
}

// NewSteady returns the figures of a window.
func NewSteady(f *measure.Figures, w Window) *Steady { return &Steady{w, f} }

// Figures returns the argument of NewSteady.
func (s *Steady) Figures() *measure.Figures { return s.figures }

// Window is the steady state's part of the run, in ms of the schedule.
type Window struct {
	Automatic bool    `json:"automatic"`
	From      float64 `json:"from_ms"`
	To        float64 `json:"to_ms"`
	// Zero is the schedule's zero in the times of requests.jsonl.
	Zero float64 `json:"zero_ms"`
	// Level is the median number of requests in flight, from the first request of the whole run to the last one; Peak is the greatest
	// number.
	Level int64 `json:"median_concurrency"`
	Peak  int64 `json:"peak_concurrency"`
}

// Run describes what was run, where and against what. It must contain no secrets: the caller removes them.
type Run struct {
	ID string `json:"id"`
	// Labels are names and values that the caller gave the run.
	Labels   map[string]string `json:"labels,omitempty"`
	Tool     string            `json:"tool"`
	Version  string            `json:"version"`
	Command  string            `json:"command,omitempty"` // the command line without keys and header values
	Target   string            `json:"target"`            // host and port of the engine
	Endpoint string            `json:"endpoint,omitempty"`
	Model    string            `json:"model,omitempty"`
	// Models counts the rows by the model that they requested, if there are several. The number of models here has a maximum; those that
	// appear later in the run count as "_OTHER".
	Models      map[string]int64 `json:"models,omitempty"`
	Streaming   bool             `json:"streaming"`
	GoVersion   string           `json:"go_version,omitempty"`
	Platform    string           `json:"platform,omitempty"` // GOOS/GOARCH
	CPUs        int              `json:"cpus,omitempty"`     // processors that the run used
	Start       time.Time        `json:"-"`                  // start_time of the summary
	End         time.Time        `json:"-"`                  // end_time
	Interrupted bool             `json:"-"`                  // was_cancelled
	// Words, or TokenIDs, describes what generated prompts consist of.
	Words    *Words    `json:"words,omitempty"`
	TokenIDs *TokenIDs `json:"token_ids,omitempty"`
	// Dataset is the text from which prompts were made, in addition to words, if any.
	Dataset *Dataset `json:"dataset,omitempty"`
}

// Setting is one of the settings of the program that made the run. Like Run, it contains no secret.
type Setting struct {
	Name  string
	Value any    // as JSON has it
	From  string // where it comes from
}

// SettingsByName returns the values of settings and their sources, each by name; nil if there are none.
func SettingsByName(settings []Setting) (values map[string]any, sources map[string]string) {
	for _, s := range settings {
		if values == nil {
			values, sources = map[string]any{}, map[string]string{}
		}
		values[s.Name], sources[s.Name] = s.Value, s.From
	}
	return values, sources
}

// Resumed lists the parts of a run that was cut short and continued. The figures cover all of them, on a clock that stood still in
// between. Figures of the machine and of the telemetry are those of the last part.
type Resumed struct {
	Parts []RunPart `json:"parts"`
	// Zero is the schedule's zero in the times of requests.jsonl.
	Zero float64 `json:"zero_ms"`
	// InFlight is the number of rows that had been sent, or were about to be, when the run was cut short, and have no other record;
	// InFlightRows are the first hundred of them.
	InFlight     int64   `json:"rows_in_flight"`
	InFlightRows []int64 `json:"first_rows_in_flight,omitempty"`
}

// RunPart is one part of a resumed run.
type RunPart struct {
	Start time.Time `json:"start_time"`
	End   time.Time `json:"end_time"` // the last known time before it was cut short
	From  float64   `json:"from_ms"`  // of the schedule
	To    float64   `json:"to_ms"`
	Gap   float64   `json:"gap_ms"` // time since the end of the part before; 0 for the first
}

// Words describes the words of prompts. Runs with equal digests and anchors send equal prompts for equal rows and seeds.
type Words struct {
	Count   int    `json:"count"`
	Letters int    `json:"letters"`
	Anchor  string `json:"anchor"` // the first word of each prompt
	Digest  string `json:"digest"` // SHA-256 of the sorted words with nothing between them
	// Overhead is the number of tokens that the engine's template adds to a prompt, measured or as given; with several models, that of the
	// measured one with the most rows.
	Overhead int `json:"overhead"`
	// Found says how they were found: "usual", the usual ones, one token each here; "unchecked", the same without a check; "tokenize", by
	// the engine's tokenizer; "usage", by its token counts of prompts. Requests is the number of requests that this needed.
	Found    string `json:"found"`
	Requests int    `json:"requests,omitempty"`
}

// Dataset describes the text of prompts, and how exactly its tokens are known.
type Dataset struct {
	File string `json:"file"`
	// Digest is the SHA-256 of the text that was used. Runs with equal digests, words and seeds send equal prompts for equal rows to
	// engines with the same tokenizer.
	Digest  string `json:"digest"`
	Texts   int64  `json:"texts"`
	Bytes   int64  `json:"bytes"`          // of the text that was used
	LeftOut int64  `json:"left_out_bytes"` // of the texts that were read, but not used
	Tokens  int64  `json:"tokens"`         // of the text in prompts
	// Segments is the number of distinct pieces of text, Unused the number of those that no prompt has: their tokens are not known, or too
	// many.
	Segments int `json:"segments"`
	Unused   int `json:"segments_unused"`
	// CountedBy says who counted the tokens: "tokenize", the engine; "tokenizer", a tokenizer file.
	CountedBy string `json:"counted_by"`
	// Checked is the number of tokens that a prompt of text should have, Counted the engine's count of it before the run. Both are 0 if the
	// engine was not asked. fidelity.tokens says how many prompts had the length of their row.
	Checked int64 `json:"checked_tokens"`
	Counted int64 `json:"counted_tokens"`
	// Invented is the share, 0 to 1, of a block's tokens that are invented words: those that tell blocks apart, and those for which no
	// piece of text fits.
	Invented float64 `json:"invented_share"`
}

// TokenIDs describes the token ids of prompts.
type TokenIDs struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Trace describes the replayed trace.
type Trace struct {
	Name string `json:"name"`
	// Rows is the number of rows in the run. Filtered is the number of other rows, by reason (window, max_requests, shard, rejected:
	// unusable).
	Rows     int64            `json:"rows"`
	Filtered map[string]int64 `json:"filtered,omitempty"`
	// NotReached is the number of rows that the trace still had when the run ended early. They were not read or filtered, and have no
	// record. AtLeast says that there may be more than NotReached, which is 0 if nothing is known.
	NotReached    int64   `json:"rows_not_reached"`
	AtLeast       bool    `json:"rows_not_reached_at_least,omitempty"`
	Quarantine    string  `json:"quarantine,omitempty"` // file of the rejected rows, if rows can be rejected
	BlockSize     int     `json:"block_size,omitempty"`
	SessionMode   string  `json:"session_mode,omitempty"` // full, delta or none
	Unit          string  `json:"unit,omitempty"`         // of the timestamps as found: ms, s, us or ns
	Grid          float64 `json:"grid_ms,omitempty"`      // tick of coarse timestamps; 0: none found
	SeqDigest     string  `json:"seq_digest,omitempty"`
	TreeDigest    string  `json:"tree_digest,omitempty"`
	ArrivalDigest string  `json:"arrival_digest,omitempty"`
	// Transformations are the names of the steps in the trace's metadata file, such as convert or time-scale, in their order.
	Transformations []string `json:"transformations,omitempty"`
}

// RatePoint is a rate at one time, in requests per second. Between two points it changes linearly.
type RatePoint struct {
	At   float64 `json:"at_ms"`
	Rate float64 `json:"request_rate"`
}

// Schedule describes how the scheduled times of rows were computed.
type Schedule struct {
	Mode        string  `json:"mode"`
	FileOrder   bool    `json:"file_order,omitempty"` // with arrivals: the order is the file's, not that of the timestamps
	Speedup     float64 `json:"speedup,omitempty"`
	Spread      string  `json:"spread,omitempty"`       // none, uniform or even
	RequestRate float64 `json:"request_rate,omitempty"` // per second
	// Series is a rate that changes over time, from the end of the ramp-up on; RequestRate is then that of its first point.
	Series             []RatePoint `json:"request_rate_series,omitempty"`
	Users              int         `json:"users,omitempty"`        // number of users who send in turn; 0: rows are sent in their order
	Arrival            string      `json:"arrival,omitempty"`      // constant, poisson or gamma
	Burstiness         float64     `json:"burstiness,omitempty"`   // of gamma
	RampUp             float64     `json:"ramp_up_ms,omitempty"`   // 0: no ramp
	RampFrom           float64     `json:"ramp_up_from,omitempty"` // requests per second
	RampShape          string      `json:"ramp_up_shape,omitempty"`
	Concurrency        int         `json:"concurrency,omitempty"`         // 0: no cap
	PrefillConcurrency int         `json:"prefill_concurrency,omitempty"` // 0: no cap
	// The times in which the two maxima rise from 1; 0: no rise.
	ConcurrencyRampUp float64 `json:"concurrency_ramp_up_ms,omitempty"`
	PrefillRampUp     float64 `json:"prefill_concurrency_ramp_up_ms,omitempty"`
	Warmup            int     `json:"warmup_requests,omitempty"`
	WarmupFor         float64 `json:"warmup_duration_ms,omitempty"`
	WarmupGrace       float64 `json:"warmup_grace_ms,omitempty"`    // 0: no limit
	WarmupConcurrency int     `json:"warmup_concurrency,omitempty"` // 0: not given
	// The rate of the warm-up, with its arrival; 0: a closed loop.
	WarmupRate    float64 `json:"warmup_request_rate,omitempty"` // per second
	WarmupArrival string  `json:"warmup_arrival,omitempty"`
	Shard         string  `json:"shard,omitempty"`       // i/n
	Loop          int     `json:"loop_passes,omitempty"` // 0: one
	LoopFor       float64 `json:"loop_for_ms,omitempty"`
	LoopFresh     bool    `json:"loop_fresh,omitempty"`
	Balance       string  `json:"balance,omitempty"` // for several engines: round-robin, least-loaded, session or prefix
	// The connections of a share of the requests, DisconnectShare, were to be closed DisconnectAfter ms after the last byte was sent.
	DisconnectShare float64 `json:"disconnect_share,omitempty"`
	DisconnectAfter float64 `json:"disconnect_after_ms,omitempty"`
	Seed            uint64  `json:"seed"`
}

// Shard describes the part of a run that one process had, with the digests that show whether other parts belong to the same run.
type Shard struct {
	Index int `json:"index"`
	Of    int `json:"of"`
	// Rows and Tokens of the schedule are this shard's, AllRows and AllTokens those of all shards. Tokens are those that the rows request.
	Rows      int64 `json:"rows"`
	Tokens    int64 `json:"tokens"`
	AllRows   int64 `json:"rows_of_all_shards"`
	AllTokens int64 `json:"tokens_of_all_shards"`
	// LargestRows and LargestTokens are those of the largest group of rows that are not split.
	LargestRows   int64 `json:"largest_group_rows"`
	LargestTokens int64 `json:"largest_group_tokens"`
	// Plan is a digest of all rows of the schedule, with their times and shards; empty if the schedule was cut short. Lookahead is a digest
	// of the rows that were read before the first one was sent. Shards of one run have equal ones.
	Plan      string `json:"plan_digest,omitempty"`
	Lookahead string `json:"lookahead_digest"`
	// Zero is the start of the schedule, in ms, on the clock of the times in requests.jsonl.
	Zero  float64 `json:"zero_ms"`
	Clock *Clock  `json:"clock,omitempty"` // nil: not compared with a reference
}

// Merged lists the shards of a merged run.
type Merged struct {
	Shards []MergedShard `json:"each"`
	// ClocksApart is the maximum difference of the clocks of two shards, in ms; nil: not all were compared with a reference.
	ClocksApart *float64 `json:"clocks_apart_ms,omitempty"`
}

// MergedShard is one of these shards.
type MergedShard struct {
	Index   int         `json:"index"`
	Folder  string      `json:"folder"`
	Rows    int64       `json:"rows"`
	Tokens  int64       `json:"tokens"`
	Verdict judge.Class `json:"verdict"`
	Clock   *Clock      `json:"clock,omitempty"`
}

// Clock has the lead of a reference clock over the machine's, in ms.
type Clock struct {
	Reference string  `json:"reference"`
	Start     float64 `json:"offset_at_start_ms"`
	End       float64 `json:"offset_at_end_ms"`
	Uncertain float64 `json:"uncertain_ms"` // both may be off by this much
}

// The modes of a schedule.
const (
	ByTimestamps = "timestamps"
	AtRate       = "request_rate"
	AllAtOnce    = "all_at_once"
	ClosedLoop   = "closed_loop"
)

// Machine describes the run's process and its machine. Durations are in milliseconds.
type Machine struct {
	Elapsed      float64  `json:"elapsed_ms"`
	Hiccups      int64    `json:"hiccups"`
	HiccupTime   float64  `json:"hiccup_time_ms"`
	HiccupMax    float64  `json:"hiccup_max_ms"`
	CPUShare     *float64 `json:"cpu_share,omitempty"` // 0 to 1 of all processors; nil: unknown
	GCPauses     int64    `json:"gc_pauses"`
	GCPauseTime  float64  `json:"gc_pause_time_ms"`
	GCPauseMax   float64  `json:"gc_pause_max_ms"`
	Throttled    *float64 `json:"throttled_ms,omitempty"`  // nil: unknown
	ClockStep    *float64 `json:"clock_step_ms,omitempty"` // nil: unknown
	MaxRSS       int64    `json:"max_rss_bytes,omitempty"`
	ReaderStalls int64    `json:"lookahead_stalls"`
}

// Telemetry compares what the run gave to its exporters with what receivers accepted.
type Telemetry struct {
	Enabled       bool  `json:"enabled"`
	SpansEnded    int64 `json:"spans_ended"`
	SpansAccepted int64 `json:"spans_accepted"`
	// SpansLost counts the spans that were not accepted, by reason.
	SpansLost     map[string]int64 `json:"spans_lost,omitempty"`
	SpansSampled  int64            `json:"spans_not_sampled,omitempty"` // dropped by the sampler that the user configured
	EventsDropped int64            `json:"span_events_dropped"`
	// MetricExports counts the exports of metrics, MetricExportsFailed those that failed.
	MetricExports       int64 `json:"metric_exports"`
	MetricExportsFailed int64 `json:"metric_exports_failed"`
}

// Saved describes the saved request bodies.
type Saved struct {
	File  string `json:"file"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"` // of the bodies
	Lost  int64  `json:"not_saved"`
	// Disordered counts the rows that come after a later row of the trace.
	Disordered int64 `json:"out_of_order"`
}

// Warmup describes the requests before the schedule. No figure includes them.
type Warmup struct {
	Sent    int64   `json:"requests"`
	Failed  int64   `json:"failed"`
	GivenUp int64   `json:"given_up"` // after the grace, or when the run was interrupted
	Lasted  float64 `json:"lasted_ms"`
	Ended   bool    `json:"ended_by_failures,omitempty"` // failures ended the warm-up before the planned time
}

// Lost returns the number of spans that were not accepted.
func (t Telemetry) Lost() int64 { return t.SpansEnded - t.SpansAccepted }
