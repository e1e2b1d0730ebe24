// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

// ID names a figure.
type ID uint8

// The distributions, in the order in which a report shows them, then the single numbers.
const (
	TTFT ID = iota
	TTFTWire
	TTFTIntended
	TTFE
	TTFO
	TTST
	Latency
	LatencyWire
	LatencyIntended
	ITL
	InterChunk
	TPOT
	TPOTWithFirst
	Decode
	UserThroughput
	PrefillThroughput
	RequestTokenThroughput
	InputLength
	OutputLength
	CachedTokens
	PredictedTokens

	HTTPBlocked
	HTTPDNS
	HTTPConnecting
	HTTPTLS
	HTTPSending
	HTTPWaiting
	HTTPReceiving
	HTTPDuration
	HTTPOverhead
	HTTPTotal
	HTTPSent
	HTTPReceived

	Lateness
	LatenessUnexplained
	CapWait
	WireLag
	SendGap

	distributions // the number of distributions

	TokenThroughput ID = iota - 1
	TotalThroughput
	RequestThroughput
	RequestCount
	ErrorCount
	ErrorRate
	Goodput
	GoodCount
	GoodFraction
	Duration
	TotalInput
	TotalOutput
	TotalCached
	CacheReadPct
	InteractivityP90
	InteractivityP75
	PeakConcurrency
	PeakTokens

	metrics // the number of figures
)

// Definition is what a figure is called and measured in.
type Definition struct {
	// Tag is its key in summary.json: AIPerf's where the meaning is AIPerf's.
	Tag string
	// Title is its name for people, without the unit.
	Title string
	Unit  string
	// Console marks the figures of the final table, the others are in the files only.
	Console bool

	scale scale
}

// Define returns a figure's definition.
func (id ID) Define() Definition { return definitions[id] }

// Single reports whether the figure is one number and no distribution.
func (id ID) Single() bool { return id >= distributions }

// String returns the tag.
func (id ID) String() string { return definitions[id].Tag }

// Formulas and sources are with the methods of Record and, for the single numbers, in Aggregate.Figures.
var definitions = [metrics]Definition{
	TTFT:            {"time_to_first_token", "Time to First Token", "ms", true, scaleMillis},
	TTFTWire:        {"time_to_first_token_wire", "Time to First Token, from wire", "ms", true, scaleMillis},
	TTFTIntended:    {"time_to_first_token_intended", "Time to First Token, from intended", "ms", true, scaleMillis},
	TTFE:            {"time_to_first_event", "Time to First Event", "ms", false, scaleMillis},
	TTFO:            {"time_to_first_output_token", "Time to First Output Token", "ms", false, scaleMillis},
	TTST:            {"time_to_second_token", "Time to Second Token", "ms", true, scaleMillis},
	Latency:         {"request_latency", "Request Latency", "ms", true, scaleMillis},
	LatencyWire:     {"request_latency_wire", "Request Latency, from wire", "ms", true, scaleMillis},
	LatencyIntended: {"request_latency_intended", "Request Latency, from intended", "ms", true, scaleMillis},
	ITL:             {"inter_token_latency", "Inter Token Latency", "ms", true, scaleMillis},
	InterChunk:      {"inter_chunk_latency", "Inter Chunk Latency", "ms", true, scaleMillis},
	TPOT:            {"time_per_output_token", "Time per Output Token", "ms", false, scaleMillis},
	TPOTWithFirst:   {"time_per_output_token_with_first", "Time per Output Token, with first", "ms", false, scaleMillis},
	Decode:          {"decode_duration", "Decode Duration", "ms", false, scaleMillis},

	UserThroughput:         {"output_token_throughput_per_user", "Output Token Throughput Per User", "tokens/sec/user", true, scaleRate},
	PrefillThroughput:      {"prefill_throughput_per_user", "Prefill Throughput Per User", "tokens/sec/user", false, scaleRate},
	RequestTokenThroughput: {"e2e_output_token_throughput", "E2E Output Token Throughput", "tokens/sec/user", false, scaleRate},
	InputLength:            {"input_sequence_length", "Input Sequence Length", "tokens", true, scaleCount},
	OutputLength:           {"output_sequence_length", "Output Sequence Length", "tokens", true, scaleCount},
	CachedTokens:           {"usage_prompt_cache_read_tokens", "Cached Prompt Tokens", "tokens", false, scaleCount},
	PredictedTokens:        {"predicted_cache_read_tokens", "Predicted Cached Prompt Tokens", "tokens", false, scaleCount},

	HTTPBlocked:    {"http_req_blocked", "HTTP Request Blocked", "ms", false, scaleMillis},
	HTTPDNS:        {"http_req_dns_lookup", "HTTP Request DNS Lookup", "ms", false, scaleMillis},
	HTTPConnecting: {"http_req_connecting", "HTTP Request Connecting", "ms", false, scaleMillis},
	HTTPTLS:        {"http_req_tls", "HTTP Request TLS", "ms", false, scaleMillis},
	HTTPSending:    {"http_req_sending", "HTTP Request Sending", "ms", false, scaleMillis},
	HTTPWaiting:    {"http_req_waiting", "HTTP Request Waiting", "ms", false, scaleMillis},
	HTTPReceiving:  {"http_req_receiving", "HTTP Request Receiving", "ms", false, scaleMillis},
	HTTPDuration:   {"http_req_duration", "HTTP Request Duration", "ms", false, scaleMillis},
	HTTPOverhead:   {"http_req_connection_overhead", "HTTP Request Connection Overhead", "ms", false, scaleMillis},
	HTTPTotal:      {"http_req_total", "HTTP Request Total", "ms", false, scaleMillis},
	HTTPSent:       {"http_req_data_sent", "HTTP Request Data Sent", "B", false, scaleBytes},
	HTTPReceived:   {"http_req_data_received", "HTTP Request Data Received", "B", false, scaleBytes},

	Lateness:            {"schedule_lateness", "Schedule Lateness", "ms", false, scaleMillis},
	LatenessUnexplained: {"schedule_lateness_unexplained", "Schedule Lateness, hiccups left out", "ms", false, scaleMillis},
	CapWait:             {"concurrency_wait", "Wait for the Concurrency Cap", "ms", false, scaleMillis},
	WireLag:             {"wire_lag", "Wire Lag", "ms", false, scaleMillis},
	SendGap:             {"send_gap", "Send Gap", "ms", false, scaleMillis},

	TokenThroughput:   {Tag: "output_token_throughput", Title: "Output Token Throughput", Unit: "tokens/sec", Console: true},
	TotalThroughput:   {Tag: "total_token_throughput", Title: "Total Token Throughput", Unit: "tokens/sec"},
	RequestThroughput: {Tag: "request_throughput", Title: "Request Throughput", Unit: "requests/sec", Console: true},
	RequestCount:      {Tag: "request_count", Title: "Request Count", Unit: "requests", Console: true},
	ErrorCount:        {Tag: "error_request_count", Title: "Error Request Count", Unit: "requests"},
	ErrorRate:         {Tag: "request_error_rate", Title: "Request Error Rate", Unit: "%"},
	Goodput:           {Tag: "goodput", Title: "Goodput", Unit: "requests/sec", Console: true},
	GoodCount:         {Tag: "good_request_count", Title: "Good Request Count", Unit: "requests"},
	GoodFraction:      {Tag: "good_request_fraction", Title: "Good Request Fraction", Unit: "ratio"},
	Duration:          {Tag: "benchmark_duration", Title: "Benchmark Duration", Unit: "sec"},
	TotalInput:        {Tag: "total_isl", Title: "Total Input Tokens", Unit: "tokens"},
	TotalOutput:       {Tag: "total_osl", Title: "Total Output Tokens", Unit: "tokens"},
	TotalCached:       {Tag: "total_usage_prompt_cache_read_tokens", Title: "Total Cached Prompt Tokens", Unit: "tokens"},
	CacheReadPct:      {Tag: "overall_usage_prompt_cache_read_pct", Title: "Cached Share of Prompt Tokens", Unit: "%"},
	InteractivityP90:  {Tag: "e2e_normalized_interactivity_p90", Title: "E2E Normalized Interactivity P90", Unit: "tokens/sec/user"},
	InteractivityP75:  {Tag: "e2e_normalized_interactivity_p75", Title: "E2E Normalized Interactivity P75", Unit: "tokens/sec/user"},
	PeakConcurrency:   {Tag: "peak_concurrency", Title: "Peak Concurrency", Unit: "requests", Console: true},
	PeakTokens:        {Tag: "peak_output_token_throughput", Title: "Peak Output Token Throughput", Unit: "tokens/sec"},
}
