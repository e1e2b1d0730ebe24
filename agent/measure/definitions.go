// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"iter"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// ID identifies a figure. IDs ascend in the order in which a report shows the figures.
type ID int

// Definition has the name, unit and formula of a figure.
type Definition struct {
	// Tag is its key in summary.json: AIPerf's if the meaning is the same.
	Tag string
	// Title is its name for people, without the unit.
	Title string
	Unit  string
	// Console marks the figures in the final table and on the page. The others are only in files.
	Console bool

	of formula // for each served row that was sent once; nil: Aggregate computes the figure itself
}

// formula computes the value that a record adds to a distribution, in the distribution's unit; false if the record has none.
type formula func(*Record) (float64, bool)

// span computes a duration of a record; false if the record lacks what it needs.
type span func(*Record) (time.Duration, bool)

// The distributions. Their formulas and sources are documented at the methods of Record.
var (
	TTFT            = latency("time_to_first_token", "Time to First Token", true, from(start, (*Record).TTFT))
	TTFTWire        = latency("time_to_first_token_wire", "Time to First Token, from wire", true, from(wire, (*Record).TTFT))
	TTFTIntended    = latency("time_to_first_token_intended", "Time to First Token, from intended", true, from(planned, (*Record).TTFT))
	TTFE            = latency("time_to_first_event", "Time to First Event", false, (*Record).TTFE)
	TTFO            = latency("time_to_first_output_token", "Time to First Output Token", false, (*Record).TTFO)
	TTST            = latency("time_to_second_token", "Time to Second Token", true, (*Record).TTST)
	Latency         = latency("request_latency", "Request Latency", true, from(start, (*Record).Latency))
	LatencyWire     = latency("request_latency_wire", "Request Latency, from wire", true, from(wire, (*Record).Latency))
	LatencyIntended = latency("request_latency_intended", "Request Latency, from intended", true, from(planned, (*Record).Latency))
	ITL             = latency("inter_token_latency", "Inter Token Latency", true, (*Record).ITL)
	InterChunk      = latency("inter_chunk_latency", "Inter Chunk Latency", true, nil)
	TPOT            = latency("time_per_output_token", "Time per Output Token", true, (*Record).TPOT)
	TPOTWithFirst   = latency("time_per_output_token_with_first", "Time per Output Token, with first", false, (*Record).TPOTWithFirst)
	Decode          = latency("decode_duration", "Decode Duration", false, (*Record).DecodeDuration)

	// AIPerf: 1 ÷ ITL, ISL ÷ TTFT, OSL ÷ request latency, in seconds.
	UserThroughput    = rate("output_token_throughput_per_user", "Output Token Throughput Per User", true, one, (*Record).ITL)
	PrefillThroughput = rate("prefill_throughput_per_user", "Prefill Throughput Per User", false,
		(*Record).InputTokens, from(start, (*Record).TTFT))
	RequestTokenThroughput = rate("e2e_output_token_throughput", "E2E Output Token Throughput", false,
		(*Record).OutputTokens, from(start, (*Record).Latency))
	InputLength     = define("input_sequence_length", "Input Sequence Length", "tokens", true, nil)
	OutputLength    = define("output_sequence_length", "Output Sequence Length", "tokens", true, nil)
	CachedTokens    = define("usage_prompt_cache_read_tokens", "Cached Prompt Tokens", "tokens", false, nil)
	PredictedTokens = define("predicted_cache_read_tokens", "Predicted Cached Prompt Tokens", "tokens", false, nil)

	// AIPerf's HTTP metrics. Its http_req_connecting is TCP and TLS together.
	HTTPBlocked    = phase("http_req_blocked", "HTTP Request Blocked", func(p send.Phases) time.Duration { return p.Blocked })
	HTTPDNS        = phase("http_req_dns_lookup", "HTTP Request DNS Lookup", func(p send.Phases) time.Duration { return p.DNS })
	HTTPConnecting = phase("http_req_connecting", "HTTP Request Connecting", connecting)
	HTTPTLS        = phase("http_req_tls", "HTTP Request TLS", func(p send.Phases) time.Duration { return p.TLS })
	HTTPSending    = latency("http_req_sending", "HTTP Request Sending", false, sending)
	HTTPWaiting    = latency("http_req_waiting", "HTTP Request Waiting", false, waiting)
	HTTPReceiving  = phase("http_req_receiving", "HTTP Request Receiving", func(p send.Phases) time.Duration { return p.Receiving })
	HTTPDuration   = phase("http_req_duration", "HTTP Request Duration", exchanging)
	HTTPOverhead   = phase("http_req_connection_overhead", "HTTP Request Connection Overhead", preparing)
	HTTPTotal      = phase("http_req_total", "HTTP Request Total", everything)
	HTTPSent       = volume("http_req_data_sent", "HTTP Request Data Sent", bytesSent)
	HTTPReceived   = volume("http_req_data_received", "HTTP Request Data Received", bytesRead)

	Lateness            = latency("schedule_lateness", "Schedule Lateness", false, nil)
	LatenessUnexplained = latency("schedule_lateness_unexplained", "Schedule Lateness, hiccups left out", false, nil)
	CapWait             = latency("concurrency_wait", "Wait for the Concurrency Cap", false, nil)
	WireLag             = latency("wire_lag", "Wire Lag", false, nil)
	SendGap             = latency("send_gap", "Send Gap", false, nil)
)

// The single numbers, after all distributions. Aggregate.Figures documents their formulas and sources.
var (
	TokenThroughput   = single("output_token_throughput", "Output Token Throughput", "tokens/sec", true)
	TotalThroughput   = single("total_token_throughput", "Total Token Throughput", "tokens/sec", true)
	RequestThroughput = single("request_throughput", "Request Throughput", "requests/sec", true)
	RequestCount      = single("request_count", "Request Count", "requests", true)
	ErrorCount        = single("error_request_count", "Error Request Count", "requests", false)
	ErrorRate         = single("request_error_rate", "Request Error Rate", "%", false)
	Goodput           = single("goodput", "Goodput", "requests/sec", true)
	GoodCount         = single("good_request_count", "Good Request Count", "requests", false)
	GoodFraction      = single("good_request_fraction", "Good Request Fraction", "ratio", false)
	Duration          = single("benchmark_duration", "Benchmark Duration", "sec", false)
	TotalInput        = single("total_isl", "Total Input Tokens", "tokens", false)
	TotalOutput       = single("total_osl", "Total Output Tokens", "tokens", false)
	TotalCached       = single("total_usage_prompt_cache_read_tokens", "Total Cached Prompt Tokens", "tokens", false)
	CacheReadPct      = single("overall_usage_prompt_cache_read_pct", "Cached Share of Prompt Tokens", "%", false)
	InteractivityP90  = single("e2e_normalized_interactivity_p90", "E2E Normalized Interactivity P90", "tokens/sec/user", false)
	InteractivityP75  = single("e2e_normalized_interactivity_p75", "E2E Normalized Interactivity P75", "tokens/sec/user", false)
	PeakConcurrency   = single("peak_concurrency", "Peak Concurrency", "requests", true)
	PeakTokens        = single("peak_output_token_throughput", "Peak Output Token Throughput", "tokens/sec", false)
)

// definitions are the definitions of all figures, by ID.
var definitions []Definition

// define adds a figure. It is called in the order of the variables above.
func define(tag, title, unit string, console bool, of formula) ID {
	definitions = append(definitions, Definition{tag, title, unit, console, of})
	return ID(len(definitions) - 1)
}

// single defines a figure that is one number, which [Aggregate] computes from all records.
func single(tag, title, unit string, console bool) ID { return define(tag, title, unit, console, nil) }

func latency(tag, title string, console bool, of span) ID {
	if of == nil {
		return define(tag, title, "ms", console, nil)
	}
	return define(tag, title, "ms", console, func(r *Record) (float64, bool) {
		d, ok := of(r)
		return clock.Millis(d), ok
	})
}

func phase(tag, title string, of func(send.Phases) time.Duration) ID {
	return latency(tag, title, false, func(r *Record) (time.Duration, bool) { return of(r.Exchange.Phases), true })
}

func volume(tag, title string, of func(*Record) int64) ID {
	return define(tag, title, "B", false, func(r *Record) (float64, bool) { return float64(of(r)), true })
}

// rate defines a number of tokens divided by a duration. A duration of 0 has no inverse; a number may be unknown.
func rate(tag, title string, console bool, count func(*Record) (n int64, estimated bool), over span) ID {
	return define(tag, title, "tokens/sec/user", console, func(r *Record) (float64, bool) {
		n, _ := count(r)
		d, ok := over(r)
		return float64(n) / d.Seconds(), ok && d > 0 && n > send.Unknown
	})
}

// from returns the span of a duration that begins at one of the record's times.
func from(instant func(*Record) time.Duration, of func(*Record, time.Duration) (time.Duration, bool)) span {
	return func(r *Record) (time.Duration, bool) { return of(r, instant(r)) }
}

func start(r *Record) time.Duration   { return r.Exchange.Start }
func wire(r *Record) time.Duration    { return r.Wire() }
func planned(r *Record) time.Duration { return r.Intended }
func one(*Record) (int64, bool)       { return 1, false }

func bytesSent(r *Record) int64 { return r.Exchange.BytesSent }
func bytesRead(r *Record) int64 { return r.Exchange.BytesRead }

// The time of the last byte sent separates sending from waiting. Both are unknown if the reply arrived before that time was taken.
func sending(r *Record) (time.Duration, bool) { return r.Exchange.Phases.Sending, !r.Exchange.WireLate }

func waiting(r *Record) (time.Duration, bool) { return r.Exchange.Phases.Waiting, !r.Exchange.WireLate }

func connecting(p send.Phases) time.Duration { return p.Connect + p.TLS }
func preparing(p send.Phases) time.Duration  { return p.Blocked + p.DNS + connecting(p) }
func exchanging(p send.Phases) time.Duration { return p.Sending + p.Waiting + p.Receiving }
func everything(p send.Phases) time.Duration { return preparing(p) + exchanging(p) }

// Definitions returns the definitions of all figures, in the order of a report.
func Definitions() iter.Seq2[ID, Definition] {
	return func(yield func(ID, Definition) bool) {
		for id, d := range definitions {
			if !yield(ID(id), d) {
				return
			}
		}
	}
}

// Define returns the definition of a figure.
func (id ID) Define() Definition { return definitions[id] }

// Single reports whether the figure is one number, not a distribution.
func (id ID) Single() bool { return id >= TokenThroughput }

// String returns the tag.
func (id ID) String() string { return definitions[id].Tag }
