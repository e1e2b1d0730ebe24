// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/moonloop/moonloop/semconv"
)

// boards are all dashboards.
var boards = []board{replayBoard(), compareBoard(), cacheBoard(), captureBoard()}

var run = label(semconv.RunID)

// runVariable lets the user choose runs.
func runVariable(multi bool) variable {
	return variable{
		name: "run", label: "Run", description: "mooncake.run.id of the replay", metric: gauge(semconv.RunInfo), by: run, multi: multi,
	}
}

// runAnnotations mark where runs begin, and where they end with their verdict.
func runAnnotations() []annotation {
	return []annotation{
		{"Start", of(gauge(semconv.RunInfo)) + " unless " + of(gauge(semconv.RunInfo)) + " offset 1m", "start", "blue"},
		{"Verdict", of(gauge(semconv.RunVerdict)) + " == 1 unless " + of(gauge(semconv.RunVerdict)) + " offset 1m", "verdict", "purple"},
	}
}

// replayBoard shows one run, during and after it.
func replayBoard() board {
	requests := counter(semconv.Requests)
	outcome := label(semconv.Outcome)
	sent, due := counter(semconv.RequestsSent), counter(semconv.RowsDue)
	input := `gen_ai_token_type="input"`
	usage := histogram(semconv.ClientTokenUsage)
	wire, intended := histogram(semconv.ClientTimeToFirstChunk), histogram(semconv.LatencyTTFT)
	gaps := histogram(semconv.ClientTimePerOutputChunk)
	reported, predicted := counter(semconv.CacheReported), counter(semconv.CachePredicted)
	return board{
		uid: "moonloop-replay", title: "moonloop / Replay", from: "now-30m",
		description: "One replay: where it is, what was scheduled and sent, latencies, cache, errors, and whether its figures can be believed.",
		variables:   []variable{runVariable(false)}, annotations: runAnnotations(),
		rows: []row{
			{"The run", []panel{
				{title: "Verdict", kind: number, unit: "short", wide: 4, description: "Whether the figures can be believed; with several shards, how many have each verdict. Known at the end of the run; the reasons are in the table below.", queries: []query{
					{expr: "count by (" + label(semconv.VerdictClass) + ") (" + of(gauge(semconv.RunVerdict)) + " == 1)", legend: "{{" + label(semconv.VerdictClass) + "}}"},
				}},
				{title: "Progress", kind: number, unit: "percentunit", description: "Part of the trace's time that is over; with several shards, that of the shard furthest behind.", queries: []query{{expr: "min(" + of(gauge(semconv.RunProgress)) + ")"}}},
				{title: "Time left", kind: number, unit: "s", description: "Until the last row is due.", queries: []query{{expr: "max(" + of(gauge(semconv.RunRemaining)) + ")"}}},
				{title: "Rows left", kind: number, unit: "short", description: "Rows of the trace that are not done, in all shards.", queries: []query{{expr: sum(of(gauge(semconv.RowsLeft)))}}},
				{title: "Failed", kind: number, unit: "percentunit", description: "As a share of the requests that were served or failed.", steps: []step{{0.0001, "orange"}, {0.01, "red"}}, queries: []query{
					{expr: "(" + sum(of(requests, outcome+`="failed"`)) + " or vector(0)) / " + sum(of(requests, judged))},
				}},
				{title: "Good", kind: number, unit: "percentunit", description: "Requests within the service level (--slo), as a share of those of which it is known: served, failed, or stopped when they had missed it.", queries: []query{
					{expr: sum(of(counter(semconv.RequestsGood))) + " / " + sum(of(counter(semconv.RequestsJudged)))},
				}},
			}},
			{"Load", []panel{
				{title: "Requests per second", unit: "reqps", description: "Rows whose scheduled time came, requests sent, and requests that ended. The first two are one line; a gap between them is lateness, or the wait for the concurrency cap.", queries: []query{
					{expr: sum(rate(of(due))), legend: "scheduled"}, {expr: sum(rate(of(sent))), legend: "sent"}, {expr: sum(rate(of(requests))), legend: "done"},
				}},
				{title: "Requests in flight", unit: "short", description: "Requests under way, those that wait for the concurrency cap included.", queries: []query{{expr: sum(of(upDown(semconv.RequestsInFlight))), legend: "in flight"}}},
				{title: "Output chunks per second", unit: "cps", description: "Counted as they arrive. Most engines send one chunk for each token.", queries: []query{{expr: sum(rate(of(counter(semconv.ChunksReceived)))), legend: "chunks"}}},
			}},
			{"Latency", []panel{
				{title: "Time to first token", unit: "s", description: "From the last byte of the request on the wire: the engine's own time.", queries: []query{
					{expr: quantile(0.5, of(wire)), legend: "p50", exemplars: true}, {expr: quantile(0.9, of(wire)), legend: "p90"}, {expr: quantile(0.99, of(wire)), legend: "p99"},
				}},
				{title: "Time to first token, from the scheduled time", unit: "s", description: "How long a user would have waited: delays of the client and the concurrency cap are included.", queries: []query{
					{expr: quantile(0.5, of(intended)), legend: "p50"}, {expr: quantile(0.99, of(intended)), legend: "p99"},
				}},
				{title: "Gap between output chunks", unit: "s", description: "Inter-token latency, by chunks.", queries: []query{
					{expr: quantile(0.5, of(gaps)), legend: "p50"}, {expr: quantile(0.99, of(gaps)), legend: "p99"},
				}},
				{title: "Request latency", unit: "s", description: "From the wire to the last token, of served requests.", queries: []query{
					{expr: quantile(0.5, latency), legend: "p50", exemplars: true}, {expr: quantile(0.99, latency), legend: "p99"},
				}},
				{title: "Lateness of dispatch", unit: "s", description: "Dispatch minus scheduled time. The verdict wants a p50 of at most 1 ms and a p99 of at most 10 ms, hiccups of the machine aside.", logarithmic: true, queries: []query{
					{expr: quantile(0.5, of(histogram(semconv.ScheduleLatenessSeconds))), legend: "p50"}, {expr: quantile(0.99, of(histogram(semconv.ScheduleLatenessSeconds))), legend: "p99"},
				}},
				{title: "Wait for the concurrency cap", unit: "s", description: "Any wait changes the arrivals of the trace.", queries: []query{
					{expr: quantile(0.99, of(histogram(semconv.QueueDuration))), legend: "p99"},
				}},
			}},
			{"Prefix cache", []panel{
				{title: "Prompt tokens cached", unit: "percentunit", max: 1, description: "As the engine reports it, next to what an infinite cache would have had.", queries: []query{
					{expr: sum(rate(of(reported))) + " / " + sum("histogram_sum("+rate(of(usage, input))+")"), legend: "reported"},
					{expr: sum(rate(of(predicted))) + " / " + sum("histogram_sum("+rate(of(usage, input))+")"), legend: "infinite cache"},
				}},
				{title: "Realised", kind: number, unit: "percentunit", wide: 4, description: "Cached tokens as a share of what an infinite cache would have had.", queries: []query{{expr: sum(of(reported)) + " / " + sum(of(predicted))}}},
				{title: "Cached before the run", kind: number, unit: "short", wide: 4, description: "Tokens that the engine had cached beyond an infinite cache of this run. If there are any, the cache was warm. Use another --seed.", steps: []step{{1, "orange"}}, queries: []query{{expr: sum(of(counter(semconv.CacheUnpredicted)))}}},
			}},
			{"Errors and fidelity", []panel{
				{title: "Requests not served, per second", unit: "reqps", description: "By outcome and class of error.", queries: []query{
					{expr: sum(rate(of(requests, outcome+`!="served"`)), outcome, label(semconv.ErrorType), label(semconv.OutcomeReason)), legend: "{{" + outcome + "}} {{" + label(semconv.ErrorType) + "}}{{" + label(semconv.OutcomeReason) + "}}"},
				}},
				{title: "Hiccups", unit: "percentunit", description: "Part of the time for which the machine, or this process, stood still. Above 10 % the verdict is degraded.", queries: []query{{expr: "max(" + rate(of(counter(semconv.ProcessHiccupTime))) + ")", legend: "hiccups"}}},
				{title: "CPU of the client", unit: "short", description: "Processors in use, of all shards together.", queries: []query{{expr: sum(rate(of(counter(semconv.ProcessCPUTime)))), legend: "processors"}}},
				{title: "Spans lost", kind: number, unit: "short", description: "Ended, and neither accepted nor still in the queue.", steps: []step{{1, "red"}}, queries: []query{
					{expr: "sum(" + of(counter(semconv.TelemetrySpans), label(semconv.TelemetryResult)+`!="accepted"`) + ") or vector(0)"},
				}},
				{title: "Coalesced chunks", unit: "cps", description: "Chunks that were read together although they were sent apart: their gaps are unknown.", queries: []query{{expr: sum(rate(of(counter(semconv.CoalescedChunks)))), legend: "coalesced"}}},
				{title: "Reasons of the verdict", kind: list, unit: "short", description: "Metrics that are not valid, each in its own unit.", queries: []query{{expr: of(gauge(semconv.RunVerdictReason))}}},
			}},
			{"Shards", []panel{
				{title: "Shards", kind: number, unit: "short", wide: 4, description: "Processes with this run id: the shards of a run on several machines, whose figures are added up above. 1 without shards.", queries: []query{{expr: "count(" + of(gauge(semconv.RunInfo)) + ")"}}},
				{title: "Requests per second, by shard", unit: "reqps", wide: 10, description: "A shard that sends much less than the others has fallen behind, or ended.", queries: []query{
					{expr: sum(rate(of(sent)), shardOfRun), legend: "{{" + shardOfRun + "}}"},
				}},
				{title: "Lateness of dispatch, p99, by shard", unit: "s", wide: 10, description: "The worst shard decides the verdict of the merged run.", logarithmic: true, queries: []query{
					{expr: quantile(0.99, of(histogram(semconv.ScheduleLatenessSeconds)), shardOfRun), legend: "{{" + shardOfRun + "}}"},
				}},
			}},
		},
	}
}

// shardOfRun is the label that distinguishes the processes of one run: Prometheus derives it from service.instance.id.
const shardOfRun = "instance"

// compareBoard shows several runs side by side.
func compareBoard() board {
	each := func(expr string) []query { return []query{{expr: expr, legend: "{{" + run + "}}"}} }
	requests := counter(semconv.Requests)
	wire := histogram(semconv.ClientTimeToFirstChunk)
	gaps := histogram(semconv.ClientTimePerOutputChunk)
	return board{
		uid: "moonloop-compare", title: "moonloop / Compare runs", from: "now-6h",
		description: "Several replays, a line each. `moonloop inspect` tells whether they are the same workload.",
		variables:   []variable{runVariable(true)}, annotations: runAnnotations(),
		rows: []row{
			{"The runs", []panel{
				{title: "Runs", kind: list, unit: "short", wide: 24, description: "Trace, digest, speed-up, engine and model of each run.", queries: []query{{expr: of(gauge(semconv.RunInfo))}}},
				{title: "Verdicts", kind: list, unit: "short", wide: 12, description: "Runs that are not valid do not count.", queries: []query{{expr: of(gauge(semconv.RunVerdict)) + " == 1"}}},
				{title: "Failed requests", kind: list, unit: "percentunit", wide: 12, description: "As a share of the requests that were served or failed.", queries: []query{
					{expr: sum(of(requests, label(semconv.Outcome)+`="failed"`), run) + " / " + sum(of(requests, judged), run)},
				}},
			}},
			{"Latency", []panel{
				{title: "Time to first token, p50", unit: "s", description: "From the wire.", queries: each(quantile(0.5, of(wire), run))},
				{title: "Time to first token, p99", unit: "s", description: "From the wire.", queries: each(quantile(0.99, of(wire), run))},
				{title: "Request latency, p99", unit: "s", description: "From the wire to the last token, of served requests.", queries: each(quantile(0.99, latency, run))},
				{title: "Gap between output chunks, p50", unit: "s", description: "Inter-token latency, by chunks.", queries: each(quantile(0.5, of(gaps), run))},
				{title: "Gap between output chunks, p99", unit: "s", description: "Inter-token latency, by chunks.", queries: each(quantile(0.99, of(gaps), run))},
				{title: "Lateness of dispatch, p99", unit: "s", description: "Dispatch minus scheduled time.", logarithmic: true, queries: each(quantile(0.99, of(histogram(semconv.ScheduleLatenessSeconds)), run))},
			}},
			{"Load and cache", []panel{
				{title: "Sent per second", unit: "reqps", description: "Requests at the moment at which they are sent.", queries: each(sum(rate(of(counter(semconv.RequestsSent))), run))},
				{title: "Requests in flight", unit: "short", description: "Requests under way.", queries: each(sum(of(upDown(semconv.RequestsInFlight)), run))},
				{title: "Prompt tokens realised", unit: "percentunit", description: "Cached tokens as a share of what an infinite cache would have had.", queries: each(
					sum(rate(of(counter(semconv.CacheReported))), run) + " / " + sum(rate(of(counter(semconv.CachePredicted))), run))},
			}},
		},
	}
}

// cacheBoard shows what a prefix cache could do for live traffic.
func cacheBoard() board {
	model := label(semconv.GenAIRequestModel)
	chosen := func(name string, more ...string) string {
		return name + "{" + strings.Join(append([]string{model + `=~"$model"`}, more...), ", ") + "}"
	}
	ratio := gauge(semconv.CachePotentialHitRatio)
	capacity := label(semconv.CacheCapacity)
	return board{
		uid: "moonloop-cache", title: "moonloop / Cache potential", from: "now-6h",
		description: "What prefix caches of any size would hit on the live traffic, from the connector mooncake_cache: no engine need report anything.",
		variables: []variable{{
			name: "model", label: "Model", description: "The model that requests ask for", metric: ratio, by: model, multi: true,
		}},
		rows: []row{
			{"Is a larger cache worth it?", []panel{
				{title: "Hit ratio by cache size", unit: "percentunit", wide: 16, max: 1, description: "Share of prompt tokens that an LRU cache of this many tokens would have served in the connector's window.", queries: []query{
					{expr: chosen(ratio), legend: "{{" + model + "}} {{" + capacity + "}} tokens"},
					{expr: sum(rate(chosen(counter(semconv.CachePotentialReportedTokens))), model) + " / " + sum(rate(chosen(counter(semconv.CachePotentialReportedOf))), model), legend: "{{" + model + "}} reported by the engine"},
				}},
				{title: "Infinite cache", kind: number, unit: "percentunit", description: "The ceiling.", queries: []query{{expr: chosen(ratio, capacity+`="infinite"`), legend: "{{" + model + "}}"}}},
				{title: "Reported by the engine", kind: number, unit: "percentunit", description: "Cached prompt tokens of the last hour, of the requests whose engine reported them.", queries: []query{
					{expr: "sum by (" + model + ") (increase(" + chosen(counter(semconv.CachePotentialReportedTokens)) + "[1h])) / sum by (" + model + ") (increase(" + chosen(counter(semconv.CachePotentialReportedOf)) + "[1h]))", legend: "{{" + model + "}}"},
				}},
				{title: "Knee", kind: number, unit: "short", description: "Tokens of the smallest cache with 99 % of the infinite one's hits.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialKnee)), legend: "{{" + model + "}}"}}},
				{title: "Knee, memory", kind: number, unit: "bytes", description: "KV cache memory of the knee; for models whose geometry the connector knows.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialKneeSize)), legend: "{{" + model + "}}"}}},
			}},
			{"Traffic", []panel{
				{title: "Working set", unit: "short", description: "Tokens of the distinct blocks within the retention time; a partly filled block counts as a whole one.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialWorkingSet)), legend: "{{" + model + "}}"}}},
				{title: "Working set, memory", unit: "bytes", description: "KV cache memory with which nothing is evicted.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialWorkingSetSize)), legend: "{{" + model + "}}"}}},
				{title: "Prompt tokens per second", unit: "short", description: "Of the requests that were analysed.", queries: []query{{expr: sum(rate(chosen(counter(semconv.CachePotentialPromptTokens))), model), legend: "{{" + model + "}}"}}},
				{title: "Requests per second", unit: "reqps", description: "By whether they were analysed, or why not.", queries: []query{{expr: sum(rate(counter(semconv.CachePotentialRequests)), label(semconv.CacheRequestResult)), legend: "{{" + label(semconv.CacheRequestResult) + "}}"}}},
				{title: "Shared prefixes", kind: list, unit: "short", wide: 8, description: "The prefixes that save the most: requests that begin with them, by keyed id. Only the holder of the hash key can tell which prompt it is.", queries: []query{
					{expr: "topk(10, " + chosen(gauge(semconv.CachePotentialPrefixRequests)) + ")"},
				}},
				{title: "Length of shared prefixes", kind: list, unit: "short", wide: 8, description: "Tokens, by keyed id.", queries: []query{{expr: "topk(10, " + chosen(gauge(semconv.CachePotentialPrefixTokens)) + ")"}}},
				{title: "Blocks in the sample", unit: "short", wide: 4, description: "Some 100 bytes of memory each.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialBlocks)), legend: "{{" + model + "}}"}}},
				{title: "Sampling ratio", unit: "percentunit", wide: 4, description: "Halved when the sample is full.", queries: []query{{expr: chosen(gauge(semconv.CachePotentialSamplingRatio)), legend: "{{" + model + "}}"}}},
			}},
		},
	}
}
