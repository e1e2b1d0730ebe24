// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/mooncake"
)

// Results of other load generators: the requests that they sent become a trace, at the times at which they were sent.

var guidellm = spec{
	Format: "guidellm", about: "GuideLLM's benchmarks.json: the requests that it sent",
	fields: []string{"benchmarks"}, dates: true, fails: true,
	decode: func(d *decoder, r *record) {
		r.objects(func(b *record) {
			all := b.object("requests")
			for _, kind := range []string{"successful", "incomplete", "errored"} {
				all.objects(func(q *record) {
					row := &mooncake.Row{RequestID: q.name("request_id"), InputLength: q.count("prompt_tokens"), OutputLength: q.count("output_tokens")}
					row.Observed.CachedTokens, row.Observed.TTFT = q.count("cached_tokens"), q.millis(time.Millisecond, "time_to_first_token_ms")
					row.Observed.Duration = q.millis(time.Second, "request_latency")
					switch {
					case kind != "successful" && d.failed(reasonFailed):
						q.discard()
					case !row.InputLength.Set:
						d.skip(reasonNoCounts)
						q.discard()
					default:
						d.add(&request{at: q.date("request_start_time", "start_time"), row: row})
					}
				}, kind)
			}
		}, "benchmarks")
	},
}

// secondsIn reads seconds, and returns nanoseconds.
func secondsIn(s string) (int64, error) { return decimal(s, time.Second) }

var inferencePerf = spec{
	Format: "inference-perf", about: "inference-perf's per_request_lifecycle_metrics.json: the requests that it sent",
	fields: []string{"start_time", "end_time", "info"}, fails: true,
	decode: func(d *decoder, r *record) {
		info := r.object("info")
		reply := info.object("response_metrics")
		row := &mooncake.Row{SessionID: r.name("session_id"), InputLength: info.counted("input_tokens"), OutputLength: info.count("output_tokens")}
		if n := reply.count("output_tokens"); n.Set {
			row.OutputLength = n
		}
		start, end := r.at(time.Second, "start_time"), r.at(time.Second, "end_time")
		first := int64(0) // some versions have the times in info itself
		for _, times := range [][]int64{info.numbers(secondsIn, "output_token_times"), reply.numbers(secondsIn, "output_token_times")} {
			if len(times) > 0 {
				first = times[0]
			}
		}
		row.Observed = observedAs(observed(start, first, end), reply.object("server_usage").object("prompt_tokens_details").count("cached_tokens"), "")
		if r.has("error") && d.failed(reasonFailed) {
			return
		}
		d.add(&request{at: start, row: row})
	},
}

// aiperfProfile reads AIPerf's record of each request that it sent.
var aiperfProfile = spec{
	Format: "aiperf-profile", about: "AIPerf's profile_export.jsonl: the requests that it sent",
	fields: []string{"metadata", "metrics"}, dates: true, fails: true,
	decode: func(d *decoder, r *record) {
		m, about := r.object("metrics"), r.object("metadata")
		row := &mooncake.Row{RequestID: about.name("x_request_id"), SessionID: about.name("conversation_id", "x_correlation_id")}
		row.InputLength, row.OutputLength = aiperfTokens(m, "input_sequence_length"), aiperfTokens(m, "output_sequence_length")
		ttft, latency := m.object("time_to_first_token"), m.object("request_latency")
		row.Observed.TTFT, row.Observed.Duration = ttft.millis(ttft.unit("unit"), "value"), latency.millis(latency.unit("unit"), "value")
		switch {
		case about.name("benchmark_phase") == "warmup":
			d.skip(reasonWarmup)
		case (r.has("error") || about.yes("was_cancelled")) && d.failed(reasonFailed):
		case !row.InputLength.Set:
			d.skip(reasonNoCounts)
		default:
			d.add(&request{at: about.at(time.Nanosecond, "request_start_ns"), row: row})
		}
	},
}

func aiperfTokens(metrics *record, name string) mooncake.Opt[int64] {
	m := metrics.object(name)
	m.known("unit") // tokens
	return m.count("value")
}

// vllmBench reads columns: element i of each belongs to request i. Times count from some zero.
var vllmBench = spec{
	Format: "vllm-bench", about: "the result of vllm bench serve with --save-detailed: the requests that it sent",
	fields: []string{"model_id", "input_lens", "output_lens"}, fails: true, models: true,
	decode: func(d *decoder, r *record) {
		input, output := r.numbers(tokens, "input_lens"), r.numbers(tokens, "output_lens")
		starts, ttfts, latencies := r.numbers(secondsIn, "start_times"), r.numbers(secondsIn, "ttfts"), r.numbers(secondsIn, "latencies")
		failed := make([]bool, len(input))
		r.array(func(_ string, i int, v jsontext.Value) {
			if i < len(failed) {
				failed[i] = v.Kind() == '"' && len(unquoted(v)) > 0
			}
		}, "an array of texts", "errors")
		model := r.name("model_id")
		for i := range input {
			if len(output) != len(input) || len(starts) != len(input) {
				r.fail("input_lens", "", "has a different number of requests than output_lens or start_times", "the file may be cut off or damaged")
				return
			}
			row := &mooncake.Row{Model: model, InputLength: mooncake.Some(input[i]), OutputLength: mooncake.Some(output[i])}
			if failed[i] {
				if d.failed(reasonFailed) {
					continue
				}
			} else {
				if i < len(ttfts) && ttfts[i] > 0 {
					row.Observed.TTFT = mooncake.Some(milliseconds(ttfts[i]))
				}
				if i < len(latencies) && latencies[i] > 0 {
					row.Observed.Duration = mooncake.Some(milliseconds(latencies[i]))
				}
			}
			d.add(&request{at: starts[i], row: row})
		}
	},
}
