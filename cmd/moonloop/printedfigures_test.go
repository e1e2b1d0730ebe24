// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This file has the output of other tools for a replay, figures and files, and where moonloop has it, for the page
// docs/from-other-tools.md. A figure has a formula, with which the test computes it from the requests of a run.

// printedFigure is an output of another tool.
type printedFigure struct {
	tool, theirs string
	ours         string // see figures
	note         string
	formula      func(rs []sent) float64 // of moonloop's figure; nil: it is enough that the figure exists
}

// sent is a line of requests.jsonl, as far as formulas need it; times are in milliseconds.
type sent struct {
	Result struct {
		Row                          int64
		Intended, Start, First, Last float64
		Gaps                         []float64 `json:"gaps_ms"`
		Usage                        struct {
			Prompt int64 `json:"prompt_tokens"`
			Output int64 `json:"completion_tokens"`
			Cached int64 `json:"cached_tokens"`
		}
	}
}

func (s sent) ttft() float64    { return s.Result.First - s.Result.Start }
func (s sent) latency() float64 { return s.Result.Last - s.Result.Start }
func (s sent) out() float64     { return float64(s.Result.Usage.Output) }
func (s sent) in() float64      { return float64(s.Result.Usage.Prompt) }
func (s sent) itl() float64     { return (s.latency() - s.ttft()) / (s.out() - 1) }

func sum(of func(sent) float64) func([]sent) float64 {
	return func(rs []sent) (total float64) {
		for _, r := range rs {
			total += of(r)
		}
		return total
	}
}

func mean(of func(sent) float64) func([]sent) float64 {
	return func(rs []sent) float64 { return sum(of)(rs) / float64(len(rs)) }
}

func count(rs []sent) float64 { return float64(len(rs)) }

// lasted returns the number of seconds from the first start to the last token.
func lasted(rs []sent) float64 {
	first, last := math.Inf(1), 0.0
	for _, r := range rs {
		first, last = min(first, r.Result.Start), max(last, r.Result.Last)
	}
	return (last - first) / 1000
}

func eachSecond(of func([]sent) float64) func([]sent) float64 {
	return func(rs []sent) float64 { return of(rs) / lasted(rs) }
}

func gaps(rs []sent) float64 {
	total, n := 0.0, 0
	for _, r := range rs {
		for _, gap := range r.Result.Gaps {
			total, n = total+gap, n+1
		}
	}
	return total / float64(n)
}

func smallest(of func(sent) float64) func([]sent) float64 {
	return func(rs []sent) float64 {
		least := math.Inf(1)
		for _, r := range rs {
			least = min(least, of(r))
		}
		return least
	}
}

func largest(of func(sent) float64) func([]sent) float64 {
	return func(rs []sent) float64 { return -smallest(func(r sent) float64 { return -of(r) })(rs) }
}

func cachedShare(rs []sent) float64 {
	return 100 * sum(func(r sent) float64 { return float64(r.Result.Usage.Cached) })(rs) / sum(sent.in)(rs)
}

func allTokens(r sent) float64 { return r.in() + r.out() }

// ranked returns a percentile by nearest rank, without interpolation.
func ranked(share float64, of func(sent) float64) func([]sent) float64 {
	return func(rs []sent) float64 {
		values := make([]float64, len(rs))
		for i, r := range rs {
			values[i] = of(r)
		}
		slices.Sort(values)
		return values[int(math.Ceil(share*float64(len(values))))-1]
	}
}

// figures are of four tools. In ours, a path leads into summary.json, FILE: names a file in --out, COLUMN: a member of each line of
// requests.jsonl, and TABLE: a line of --table tracereplay.
var figures = []printedFigure{
	{aiperf, "profile_export_aiperf.json", "FILE:summary.json", "with the same names and statistics (avg, min, max, p1 … p99, std, count, sum), and p999", nil},
	{aiperf, "profile_export_aiperf.csv", "FILE:summary.csv", "", nil},
	{aiperf, "profile_export.jsonl", "FILE:requests.jsonl", "a line for each request, with its row", nil},
	{aiperf, "inputs.json, profile_export_raw.jsonl", "FILE:prompts.jsonl", "with --save-prompts", nil},
	{aiperf, "*_timeslices.csv and .json", "FILE:series.csv", "--slice is --slice-duration", nil},
	{aiperf, "aiperf plot", "FILE:report.html", "", nil},
	{aiperf, "profile_export_console.txt", "", "the table is on standard output; redirect it", nil},
	{aiperf, "gpu_telemetry_export, server_metrics_export", "", "a Collector collects them: examples/collector.yaml", nil},
	{aiperf, "time_to_first_token", "time_to_first_token.avg", "", mean(sent.ttft)},
	{aiperf, "p1 … p99 of each figure", "request_latency.p50", "nearest ranks; AIPerf interpolates between neighbours", ranked(0.5, sent.latency)},
	{aiperf, "time_to_second_token", "time_to_second_token.avg", "", nil},
	{aiperf, "time_to_first_output_token", "time_to_first_output_token.avg", "", nil},
	{aiperf, "request_latency", "request_latency.avg", "", mean(sent.latency)},
	{aiperf, "inter_token_latency", "inter_token_latency.avg", "", mean(sent.itl)},
	{aiperf, "inter_chunk_latency", "inter_chunk_latency.avg", "", gaps},
	{aiperf, "decode_duration", "decode_duration.avg", "", mean(func(r sent) float64 { return r.latency() - r.ttft() })},
	{aiperf, "output_token_throughput_per_user", "output_token_throughput_per_user.avg", "", mean(func(r sent) float64 { return 1000 / r.itl() })},
	{aiperf, "prefill_throughput_per_user", "prefill_throughput_per_user.avg", "", mean(func(r sent) float64 { return 1000 * r.in() / r.ttft() })},
	{aiperf, "e2e_output_token_throughput", "e2e_output_token_throughput.avg", "", mean(func(r sent) float64 { return 1000 * r.out() / r.latency() })},
	{aiperf, "e2e_normalized_interactivity_p90, _p75", "e2e_normalized_interactivity_p90.avg", "", nil},
	{aiperf, "input_sequence_length", "input_sequence_length.avg", "the engine's count, or without usage the row's length; AIPerf's own, unless --use-server-token-count", mean(sent.in)},
	{aiperf, "output_sequence_length, output_token_count", "output_sequence_length.avg", "the engine's count", mean(sent.out)},
	{aiperf, "total_isl", "total_isl.avg", "", sum(sent.in)},
	{aiperf, "total_osl", "total_osl.avg", "", sum(sent.out)},
	{aiperf, "request_count", "request_count.avg", "", count},
	{aiperf, "error_request_count", "error_request_count.avg", "", func([]sent) float64 { return 0 }},
	{aiperf, "request_error_rate", "request_error_rate.avg", "", func([]sent) float64 { return 0 }},
	{aiperf, "benchmark_duration", "benchmark_duration.avg", "", lasted},
	{aiperf, "request_throughput", "request_throughput.avg", "", eachSecond(count)},
	{aiperf, "output_token_throughput", "output_token_throughput.avg", "", eachSecond(sum(sent.out))},
	{aiperf, "total_token_throughput", "total_token_throughput.avg", "", eachSecond(sum(allTokens))},
	{aiperf, "goodput", "goodput.avg", "with --slo; a reply of one token meets an objective for the time between tokens, where AIPerf counts it as bad", eachSecond(count)},
	{aiperf, "good_request_count", "good_request_count.avg", "", count},
	{aiperf, "good_request_fraction", "good_request_fraction.avg", "", func([]sent) float64 { return 1 }},
	{aiperf, "overall_usage_prompt_cache_read_pct", "overall_usage_prompt_cache_read_pct.avg", "", cachedShare},
	{aiperf, "usage_prompt_cache_read_tokens", "usage_prompt_cache_read_tokens.avg", "", mean(func(r sent) float64 { return float64(r.Result.Usage.Cached) })},
	{aiperf, "usage_prompt_tokens_diff_pct, osl_mismatch_count", "fidelity.tokens", "requests whose counts are equal, different and unknown", nil},
	{aiperf, "replay_sched_lag_p50, p90, p99", "schedule_lateness.p99", "absolute: AIPerf subtracts its smallest lag", nil},
	{aiperf, "http_req_blocked … http_req_total", "http_req_total.avg", "TLS has a figure of its own", nil},
	{aiperf, "error_summary", "error_summary", "", nil},
	{aiperf, "metadata.request_start_ns, request_end_ns", "COLUMN:start", "milliseconds since start_time in summary.json", nil},
	{aiperf, "metadata.conversation_id, turn_index", "COLUMN:turn", "session_id and result.turn", nil},
	{aiperf, "metadata.session_num", "COLUMN:row", "the number of the row, not of the session", nil},
	{aiperf, "metadata.x_request_id, x_correlation_id", "run.id", "X-Request-Id is the run's id and the row, X-Session-Id the session, X-Correlation-Id what the row calls its request", nil},
	{aiperf, "metadata.request_ack_ns", "COLUMN:phases_ms", "connect, sending, waiting and receiving", nil},
	{aiperf, "metadata.was_cancelled, cancellation_time_ns", "COLUMN:outcome", "cancelled; the time is the end of the request", nil},
	{aiperf, "metadata.benchmark_phase, worker_id, record_processor_id", "", "requests.jsonl has no requests of a warm-up, and one process sends", nil},
	{aiperf, "error: code, type, message", "COLUMN:status", "with error and error_type, for failed requests", nil},
	{aiperf, "metadata.scenario, submission_valid, submission_invalid_reasons", "", "a replay is not a submission", nil},
	{aiperf, "aggregate/profile_export_aiperf_aggregate.json", "", "--runs shows the spread, and moonloop compare compares pairs of runs", nil},
	{aiperf, "logs/aiperf.log", "", "on standard error", nil},
	{aiperf, "analyze-trace: ISL, OSL, cache hit rate, prefix reuse", "", "moonloop inspect", nil},

	{vllm, "the result's JSON file", "FILE:summary.json", "--save-result", nil},
	{vllm, "--plot-timeline's HTML", "FILE:report.html", "", nil},
	{vllm, "completed", "rows.served", "", count},
	{vllm, "failed", "rows.failed", "", func([]sent) float64 { return 0 }},
	{vllm, "duration", "benchmark_duration.avg", "until the last token; vLLM's ends with its last task", lasted},
	{vllm, "total_input_tokens", "total_isl.avg", "", sum(sent.in)},
	{vllm, "total_output_tokens", "total_osl.avg", "", sum(sent.out)},
	{vllm, "request_throughput", "request_throughput.avg", "", eachSecond(count)},
	{vllm, "request_goodput", "goodput.avg", "", eachSecond(count)},
	{vllm, "output_throughput", "output_token_throughput.avg", "", eachSecond(sum(sent.out))},
	{vllm, "total_token_throughput", "total_token_throughput.avg", "", eachSecond(sum(allTokens))},
	{vllm, "max_output_tokens_per_s", "peak_output_token_throughput.avg", "", nil},
	{vllm, "max_concurrent_requests", "peak_concurrency.avg", "", nil},
	{vllm, "mean_ttft_ms", "time_to_first_event.avg", "in that figure, an event that has only a role counts, as in vLLM; time_to_first_token is the time to the first text", nil},
	{vllm, "mean_tpot_ms", "time_per_output_token.avg", "", mean(sent.itl)},
	{vllm, "mean_itl_ms", "inter_chunk_latency.avg", "gaps of all chunks", gaps},
	{vllm, "mean_e2el_ms", "request_latency.avg", "", mean(sent.latency)},
	{vllm, "median_…, std_…, pNN_…", "request_latency.p50", "of each figure; percentiles are nearest ranks, vLLM's are interpolated", ranked(0.5, sent.latency)},
	{vllm, "input_lens, output_lens, ttfts, itls, start_times, latencies", "COLUMN:gaps_ms", "usage, ttft_ms, gaps_ms, start and latency_ms of each line", nil},
	{vllm, "queue_times, client_queue_time", "concurrency_wait.avg", "", nil},
	{vllm, "e2el_including_client_queue", "request_latency_intended.avg", "from the scheduled time", mean(func(r sent) float64 { return r.Result.Last - r.Result.Intended })},
	{vllm, "generated_texts", "", "the text of replies is not stored; only digests and token ids are, which carried replies need", nil},
	{vllm, "rtfx", "", "of audio, which a replay does not send", nil},
	{vllm, "label, and the pairs of --metadata", "run.labels", "", nil},

	{guidellm, "benchmarks.json, .yaml", "FILE:summary.json", "requests are in requests.jsonl", nil},
	{guidellm, "benchmarks.csv", "FILE:summary.csv", "", nil},
	{guidellm, "benchmarks.html", "FILE:report.html", "", nil},
	{guidellm, "requests made: successful, incomplete, errored", "rows.served", "rows.served, rows.cancelled, rows.failed", count},
	{guidellm, "prompt_token_count", "input_sequence_length.avg", "", mean(sent.in)},
	{guidellm, "output_token_count", "output_sequence_length.avg", "", mean(sent.out)},
	{guidellm, "requests_per_second", "request_throughput.avg", "", eachSecond(count)},
	{guidellm, "request_concurrency", "peak_concurrency.avg", "the maximum; series.csv has the number in flight over time", nil},
	{guidellm, "output_tokens_per_second", "output_token_throughput.avg", "", eachSecond(sum(sent.out))},
	{guidellm, "tokens_per_second", "total_token_throughput.avg", "", eachSecond(sum(allTokens))},
	{guidellm, "request_latency", "request_latency.avg", "milliseconds, not seconds", mean(sent.latency)},
	{guidellm, "time_to_first_token_ms", "time_to_first_token.avg", "", mean(sent.ttft)},
	{guidellm, "inter_token_latency_ms", "inter_token_latency.avg", "", mean(sent.itl)},
	{guidellm, "time_per_output_token_ms", "time_per_output_token_with_first.avg", "the first token counts, too", mean(func(r sent) float64 { return r.latency() / r.out() })},
	{guidellm, "mean, median, std_dev, min, max, count, total_sum", "request_latency.min", "avg, p50, std, min, max, count, sum", smallest(sent.latency)},
	{guidellm, "mode, variance", "", "std squared is the variance; requests.jsonl has all values", nil},
	{guidellm, "percentiles p001 … p999", "request_latency.p999", "p1, p5, p10, p25, p50, p75, p90, p95, p99, p999; not p001", nil},
	{guidellm, "targeted start delay", "schedule_lateness.max", "with its distribution", nil},

	{traceReplay, "the table", "TABLE:============ Serving Benchmark Result ============", "--table tracereplay", nil},
	{traceReplay, "metrics.xlsx", "FILE:o.xlsx", "--xlsx FILE; Metrics is summary, details is requests", nil},
	{traceReplay, "Successful requests", "TABLE:Successful requests:", "", nil},
	{traceReplay, "Benchmark duration (s)", "TABLE:Benchmark duration (s):", "", nil},
	{traceReplay, "Total input tokens, Total generated tokens", "TABLE:Total input tokens:", "", nil},
	{traceReplay, "Request throughput (req/s)", "TABLE:Request throughput (req/s):", "", nil},
	{traceReplay, "Output token throughput (tok/s)", "TABLE:Output token throughput (tok/s):", "", nil},
	{traceReplay, "Total Token throughput (tok/s)", "TABLE:Total Token throughput (tok/s):", "", nil},
	{traceReplay, "Mean, Median, Std, P25, P50, P75, P99 TTFT (ms)", "TABLE:P25 TTFT (ms):", "percentiles are nearest ranks, TraceReplay's are interpolated", nil},
	{traceReplay, "… TPOT (ms)", "TABLE:P75 TPOT (ms):", "", nil},
	{traceReplay, "… ITL (ms)", "TABLE:P99 ITL (ms):", "", nil},
	{traceReplay, "… E2EL (ms)", "TABLE:Mean E2EL (ms):", "", nil},
	{traceReplay, "mean_e2el_ms", "request_latency.max", "avg, p25 and the others as well", largest(sent.latency)},
	{traceReplay, "details: input_lens, output_lens, ttfts_ms, tpot_ms, success", "COLUMN:ttft_ms", "sheet requests", nil},
	{traceReplay, "details: send_to_running, loadkv_duration, savekv_duration", "", "of UCM's own engine; no other engine reports it", nil},
	{traceReplay, "<trace>_dataset.jsonl", "FILE:prompts.jsonl", "--save-prompts", nil},
}

// TestPrintedFigures runs one replay, and compares each figure with its formula over the requests.
func TestPrintedFigures(t *testing.T) {
	t.Parallel()
	trace := strings.NewReplacer(`"output_length":2`, `"output_length":5`).Replace(aliasTrace)
	var r replayed
	var summary map[string]any
	for try := 0; try < 5 && summary["output_token_throughput_per_user"] == nil; try++ { // a busy machine may read each reply in one piece
		r = begin(t, trace, strings.Fields("replay TRACE --url ENGINE --model sim --overhead 1 --out DIR/o --xlsx DIR/o/o.xlsx --save-prompts DIR/o/prompts.jsonl --slo e2e=10m --label k=v --table tracereplay"))()
		r.good(t)
		text, err := os.ReadFile(filepath.Join(r.dir, "o", "summary.json"))
		if err != nil {
			t.Fatal(err)
		}
		summary = nil
		if err := json.Unmarshal(text, &summary); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.Open(filepath.Join(r.dir, "o", "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var requests []sent
	lines := bufio.NewScanner(file)
	columns := ""
	for lines.Scan() {
		var one sent
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			t.Fatal(err)
		}
		requests, columns = append(requests, one), lines.Text()
	}
	if len(requests) != 4 {
		t.Fatalf("%d requests", len(requests))
	}
	for _, f := range figures {
		kind, name, marked := strings.Cut(f.ours, ":")
		switch {
		case f.ours == "":
			if f.note == "" {
				t.Errorf("%s, %s: neither ours nor a reason", f.tool, f.theirs)
			}
		case !marked:
			var value any = summary
			for key := range strings.SplitSeq(f.ours, ".") {
				object, _ := value.(map[string]any)
				value = object[key]
			}
			number, isNumber := value.(float64)
			if value == nil {
				t.Errorf("%s, %s: summary.json has no %s", f.tool, f.theirs, f.ours)
			} else if f.formula != nil {
				if want := f.formula(requests); !isNumber || math.Abs(number-want) > 1e-3*math.Max(1, math.Abs(want)) {
					t.Errorf("%s, %s: %s is %v, its formula gives %g", f.tool, f.theirs, f.ours, value, want)
				}
			}
		case kind == "FILE":
			if info, err := os.Stat(filepath.Join(r.dir, "o", name)); err != nil || info.Size() == 0 {
				t.Errorf("%s, %s: no file %s", f.tool, f.theirs, name)
			}
		case kind == "COLUMN":
			if !strings.Contains(columns, `"`+name+`":`) {
				t.Errorf("%s, %s: requests.jsonl has no %s: %s", f.tool, f.theirs, name, columns)
			}
		case kind == "TABLE":
			if !slices.ContainsFunc(strings.Split(r.out, "\n"), func(line string) bool { return strings.HasPrefix(line, name) }) {
				t.Errorf("%s, %s: the table has no line %q:\n%s", f.tool, f.theirs, name, r.out)
			}
		}
	}
}

// writeFigures writes a tool's outputs for the page.
func writeFigures(b *strings.Builder, tool string) {
	b.WriteString("\n### Its output\n\n| theirs | ours | note |\n|---|---|---|\n")
	for _, f := range figures {
		if f.tool != tool {
			continue
		}
		ours := f.ours
		if kind, name, marked := strings.Cut(ours, ":"); marked {
			ours = map[string]string{"FILE": "", "COLUMN": "requests.jsonl: result.", "TABLE": "table: "}[kind] + strings.TrimSuffix(name, ":")
		}
		if ours != "" {
			ours = "`" + ours + "`"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", f.theirs, ours, f.note)
	}
}
