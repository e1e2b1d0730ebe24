// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// This file has what AIPerf's documentation shows about loads, the preparation and end of a run, and conversations that branch. If its
// command lines invent prompts, a trace is added; numbers and times are a fraction of the documented ones.

const (
	withTrace = " --input-file DIR/t.jsonl"
	traceIs   = "--input-file is added"

	// the conversations of a planner, two of which continue its first
	forks = `{"session_id":"root","turns":[{"model":"sim","messages":[{"role":"system","content":"Be exact."},{"role":"user","content":"Sum up the survey."}],"max_tokens":6,"forks":["branch-a","branch-b"]}]}
{"session_id":"branch-a","turns":[{"model":"sim","messages":[{"role":"user","content":"More of the first part."},{"role":"user","content":"And what speaks against it?"}],"max_tokens":5},{"model":"sim","messages":[{"role":"user","content":"Shorter."},{"role":"user","content":"Keep the doubts."}],"max_tokens":4}]}
{"session_id":"branch-b","turns":[{"model":"sim","messages":[{"role":"user","content":"What is weak?"}],"max_tokens":7},{"model":"sim","messages":[{"role":"user","content":"Put that in."}],"max_tokens":3}]}
`
	helpers = `{"session_id": "plan", "pre_session_spawns": ["watch"], "turns": [
  {"messages": [{"role": "user", "content": "Plan the trip."}], "max_tokens": 4, "spawns": ["critic", {"children": ["prices"], "join_at": 3}]},
  {"messages": [{"role": "user", "content": "Mend it."}], "max_tokens": 3, "delay": 20, "forks": [{"child": "aside", "background": true}]},
  {"messages": [{"role": "user", "content": "Go on."}], "max_tokens": 3},
  {"messages": [{"role": "user", "content": "With the prices."}], "max_tokens": 2, "tools": [{"type": "function", "function": {"name": "pay"}}], "extra": {"temperature": 0.7}}]}
{"session_id": "critic", "turns": [{"messages": [{"role": "system", "content": "Doubt."}, {"role": "user", "content": "Is it wise?"}], "max_tokens": 5}]}
{"session_id": "prices", "context_mode": "message_array_with_responses", "turns": [{"messages": [{"role": "user", "content": "What does it cost?"}], "max_tokens": 6}]}
{"session_id": "aside", "turns": [{"messages": [{"role": "user", "content": "A word apart."}], "max_tokens": 7}]}
{"session_id": "watch", "turns": [{"messages": [{"role": "user", "content": "Watch."}], "max_tokens": 8}]}
`
	branches = `{"session_id": "fan-out-a", "turns": [{"messages": [{"role": "user", "content": "East."}], "max_tokens": 4, "extra": {"min_tokens": 4}}]}
{"session_id": "fan-out-b", "turns": [{"messages": [{"role": "user", "content": "West."}], "max_tokens": 5, "extra": {"min_tokens": 5}}]}
`
	forkLine = "profile --model sim --endpoint-type chat --streaming --url HOST:PORT --input-file DIR/d.jsonl --custom-dataset-type dag_jsonl --concurrency "
)

// loadLine returns a command line of AIPerf's, with a trace added.
func loadLine(page, about, line, sees, note string) printedLine {
	if note != "" {
		note = "; " + note
	}
	rest, isRefused := strings.CutPrefix(line, "!")
	if isRefused {
		return printedLine{aiperf, page, about, "!profile --model sim --url HOST:PORT" + withTrace + " " + rest, map[string]string{"t.jsonl": threeRows}, sees, traceIs + note}
	}
	return printedLine{aiperf, page, about, "profile --model sim --url HOST:PORT" + withTrace + " --no-fixed-schedule " + line, map[string]string{"t.jsonl": threeRows}, sees, traceIs + ", and --no-fixed-schedule" + note}
}

const ofLengths = "lengths and turns come from the trace"

var printedLoads = []printedLine{
	{
		aiperf, "DAG Benchmarks", "conversations that continue another one", forkLine + "1",
		map[string]string{"d.jsonl": forks},
		"requests 5; turns 2 4 5 6 8; model sim; all of max_completion_tokens=3 4 5 6 7; body stream=true", "a fork has the session of its parent: --balance session sends both to one engine",
	},
	{
		aiperf, "DAG Benchmarks", "three conversations that branch", "profile --model sim --endpoint-type chat --url HOST:PORT --input-file DIR/d.jsonl --custom-dataset-type dag_jsonl --concurrency 3",
		map[string]string{"d.jsonl": func() string {
			var b strings.Builder
			for _, root := range []string{"A", "B", "C"} {
				b.WriteString(strings.NewReplacer("R", root).Replace(`{"session_id":"root-R","turns":[{"messages":[{"role":"user","content":"Plan."}],"forks":["R-1","R-2"]}]}
{"session_id":"R-1","turns":[{"messages":[{"role":"user","content":"One way."}]}]}
{"session_id":"R-2","turns":[{"messages":[{"role":"user","content":"Another."}]}]}
`))
			}
			return b.String()
		}()},
		"requests 9; turns 1 1 1 3 3 3 3 3 3", "--concurrency counts requests, not conversations with all that they start",
	},
	{
		aiperf, "DAG Benchmarks", "conversations that others wait for", forkLine + "4",
		map[string]string{"d.jsonl": helpers},
		"requests 8; turns 1 1 1 2 3 5 5 7; all of max_completion_tokens=2 3 3 4 5 6 7 8; some temperature=0.7", "",
	},
	{
		aiperf, "DAG Benchmarks", "a conversation that only starts others", forkLine + "2",
		map[string]string{"d.jsonl": `{"session_id": "start", "orchestrator": true, "spawns": ["fan-out-a", "fan-out-b"]}` + "\n" + branches},
		"requests 2; turns 1 1; all of min_tokens=4 5", "",
	},
	{
		aiperf, "DAG Benchmarks", "a conversation that starts others in rounds", forkLine + "2",
		map[string]string{"d.jsonl": `{"session_id": "start", "orchestrator": true, "rounds": 3, "think_time_ms": 20, "think_time_sigma": 0.6, "think_time_min_ms": 10, "spawns": ["fan-out-a", "fan-out-b"]}` + "\n" + branches},
		"requests 6; all of min_tokens=4 4 4 5 5 5", "each round waits think_time_ms; think_time_sigma has no effect",
	},
	{
		aiperf, "DAG Benchmarks", "rounds that start different conversations", forkLine + "2",
		map[string]string{"d.jsonl": `{"session_id": "start", "orchestrator": true, "rounds": [{"spawns": ["fan-out-a", "fan-out-b"], "think_time_ms": 10}, {"spawns": ["fan-out-b"], "think_time_ms": 20}]}` + "\n" + branches},
		"requests 3; all of min_tokens=4 5 5", "",
	},
	{
		aiperf, "Agentic Workloads", "conversations that branch, by their graph format", "profile --model sim --endpoint-type chat --url ENGINE --input-file DIR/d.jsonl --graph-format dag_jsonl --streaming",
		map[string]string{"d.jsonl": forks},
		"requests 5; turns 2 4 5 6 8", "",
	},
	{
		aiperf, "YAML templates: trace_replay", "a trace, by a file of settings", "profile --config DIR/trace_replay.yaml",
		map[string]string{"t.jsonl": threeRows, "trace_replay.yaml": `
schemaVersion: "2.0"
randomSeed: 42
benchmark:
  model: sim
  endpoint:
    url: ENGINE/v1/chat/completions
    type: chat
    streaming: true
    timeout: 300.0 # for the longest
  dataset:
    type: file
    path: DIR/t.jsonl
    format: mooncake_trace
    sampling: sequential
    synthesis:
      speedupRatio: 2.0
      prefixLenMultiplier: 1.0
      promptLenMultiplier: 1.0
      maxIsl: 1500
      maxOsl: 6
  phases:
    type: fixed_schedule
    autoOffset: true
    concurrency: 200
    duration: 600
    gracePeriod: 120s
  artifacts:
    dir: DIR/out
    summary: [json]
    records: [jsonl]
    sliceDuration: 30
  serverMetrics:
    enabled: true
    urls:
      - http://localhost:8000/metrics
    formats: [json, csv, parquet]
`},
		"requests 2; over 137ms; all of max_completion_tokens=5 6; file out/summary.json; summary config.seed=42; summary config.grace=2m0s; summary config.concurrency=200; summary config.request-timeout=5m0s; summary config.slice=30s", "",
	},
	{
		aiperf, "YAML templates: fixed_schedule", "flags with a file of settings", "profile --config DIR/fixed_schedule.yaml --concurrency 7 --random-seed 3",
		map[string]string{"t.jsonl": threeRows, "fixed_schedule.yaml": `
schemaVersion: "2.0"
randomSeed: 42
benchmark:
  model: ${NO_MODEL_OF_THIS_TEST:sim}
  endpoint: {url: "HOST:PORT", type: chat, streaming: true}
  dataset: {type: file, path: DIR/t.jsonl, format: mooncake_trace}
  phases:
    - {name: warmup, type: concurrency, requests: 2, concurrency: 2, excludeFromResults: true}
    - {name: profiling, type: fixed_schedule, autoOffset: true, concurrency: 100}
  artifacts: {dir: DIR/fixed, summary: [json], records: [jsonl], sliceDuration: 10s}
`},
		"requests 5; model sim; file fixed/summary.json; summary config.seed=3; summary config.concurrency=7; summary config.warmup-requests=2; summary config.slice=10s", "",
	},
	{
		aiperf, "YAML Configuration Files", "a file without a trace", "!profile --config DIR/minimal.yaml",
		map[string]string{"minimal.yaml": `
schemaVersion: "2.0"
benchmark:
  model: sim
  endpoint: {url: "ENGINE"}
  dataset: {type: synthetic, entries: 100, prompts: {isl: 512, osl: 128}}
  phases: {type: concurrency, concurrency: 8, requests: 100}
`},
		"it names no file: a replay sends a trace: moonloop generate", ofLengths,
	},
	loadLine("Load Generator Options Reference", "a rate", "--request-rate 50 --arrival-pattern poisson --request-count 6", "requests 6; summary config.request-rate=50", ""),
	loadLine("Load Generator Options Reference", "a constant rate with a ceiling", "--request-rate 40 --arrival-pattern constant --concurrency 5 --benchmark-duration 0.3", "requests more than 4; summary config.concurrency=5", ""),
	loadLine("Load Generator Options Reference", "a number of requests at once", "--concurrency 10 --request-count 20", "requests 20", ""),
	loadLine("Load Generator Options Reference", "a limit on requests without a first token", "--concurrency 20 --prefill-concurrency 5 --streaming --benchmark-duration 0.3", "requests more than 4; summary config.prefill-concurrency=5", ""),
	loadLine("User-Centric Timing", "users who take turns", "--endpoint-type chat --streaming --user-centric-rate 20 --num-users 15 --concurrency 15", "requests 3; over 100ms; summary config.concurrency=15", ""),
	loadLine("User-Centric Timing", "users with conversations of their own", "!--user-centric-rate 1.0 --num-users 15 --session-turns-mean 20 --shared-system-prompt-length 1000 --user-context-prompt-length 20000 --synthetic-input-tokens-mean 26 --osl 100 --num-dataset-entries 1000 --benchmark-duration 100",
		"moonloop generate makes a trace with sessions", ofLengths),
	loadLine("Warmup Phase", "a number of requests before a rate", "--endpoint-type chat --streaming --request-rate 50 --warmup-request-count 3 --request-count 6", "requests 9; summary config.warmup-request-rate=50", ""),
	loadLine("Warmup Phase", "a number of requests, some at once", "--endpoint-type chat --streaming --concurrency 10 --warmup-concurrency 2 --warmup-request-count 3 --request-count 6", "requests 9", ""),
	loadLine("Warmup Phase", "a warm-up at another rate", "--endpoint-type chat --streaming --request-rate 50 --warmup-request-rate 20 --warmup-duration 0.2 --benchmark-duration 0.3", "requests more than 4; summary config.warmup-request-rate=20", ""),
	loadLine("Warmup Phase", "a warm-up with another arrival pattern", "--endpoint-type chat --streaming --request-rate 40 --arrival-pattern gamma --arrival-smoothness 2.0 --warmup-arrival-pattern constant --warmup-duration 0.2 --benchmark-duration 0.3",
		"requests more than 4; summary config.warmup-arrival=constant; summary config.warmup-request-rate=40; summary config.burstiness=2", ""),
	loadLine("Warmup Phase", "a rising concurrency, also of the warm-up", "--endpoint-type chat --streaming --concurrency 10 --concurrency-ramp-duration 0.3 --warmup-concurrency 5 --warmup-concurrency-ramp-duration 0.1 --warmup-request-count 5 --benchmark-duration 0.3",
		"requests more than 4; summary config.warmup-concurrency-ramp-up=100ms; summary config.concurrency-ramp-up=300ms", ""),
	loadLine("Warmup Phase", "a lower limit on requests without a first token", "--endpoint-type chat --streaming --concurrency 10 --prefill-concurrency 5 --warmup-concurrency 4 --warmup-prefill-concurrency 2 --warmup-request-count 5 --benchmark-duration 0.2",
		"requests more than 4; summary config.warmup-prefill-concurrency=2", ""),
	loadLine("Warmup Phase", "as in production", "--endpoint-type chat --streaming --request-rate 50 --concurrency 20 --concurrency-ramp-duration 0.3 --warmup-request-rate 20 --warmup-concurrency 5 --warmup-concurrency-ramp-duration 0.1 --warmup-duration 0.2 --benchmark-duration 0.3",
		"requests more than 4; summary config.warmup-request-rate=20; summary config.warmup-concurrency=5", ""),
	loadLine("Warmup Phase", "whole conversations", "!--endpoint-type chat --streaming --session-turns-mean 5 --num-warmup-sessions 10 --request-count 500", "moonloop generate makes a trace with sessions", ofLengths),
	loadLine("Gradual Ramping", "a rising concurrency", "--concurrency 10 --concurrency-ramp-duration 0.3 --request-count 12", "requests 12; summary config.concurrency-ramp-up=300ms", ""),
	loadLine("Gradual Ramping", "a rising rate", "--request-rate 50 --request-rate-ramp-duration 0.2 --benchmark-duration 0.3", "requests more than 4; summary config.ramp-up=200ms", "the page's --duration is --benchmark-duration"),
	loadLine("Gradual Ramping", "a rising rate and a rising concurrency", "--request-rate 50 --request-rate-ramp-duration 0.2 --concurrency 10 --concurrency-ramp-duration 0.2 --benchmark-duration 0.3", "requests more than 4; summary config.ramp-up=200ms; summary config.concurrency-ramp-up=200ms", "likewise"),
	loadLine("Gradual Ramping", "a rising limit on requests without a first token", "!--concurrency 100 --prefill-concurrency 20 --prefill-concurrency-ramp-duration 20 --synthetic-input-tokens-mean 8000", "moonloop generate makes a trace with lengths of your choice", ofLengths),
	loadLine("Arrival Patterns", "bursts", "--endpoint-type chat --streaming --request-rate 60 --arrival-pattern gamma --arrival-smoothness 0.3 --benchmark-duration 0.3", "requests more than 4; summary config.burstiness=0.3", ""),
	loadLine("Arrival Patterns", "with a folder for the results", "--endpoint-type chat --streaming --request-rate 60 --arrival-pattern constant --benchmark-duration 0.3 --output-dir DIR/results/constant", "requests more than 4; file results/constant/summary.json", ""),
	loadLine("Prefill Concurrency", "a limit on requests without a first token, with long prompts", "!--endpoint-type chat --streaming --concurrency 30 --prefill-concurrency 3 --synthetic-input-tokens-mean 16000 --output-tokens-mean 500 --request-count 100", "moonloop generate makes a trace with lengths of your choice", ofLengths),
	loadLine("Time-Based Benchmarking", "for a duration", "--endpoint-type chat --streaming --concurrency 10 --benchmark-duration 0.3", "requests more than 4", ""),
	loadLine("Time-Based Benchmarking", "for a duration, or a number of requests", "--endpoint-type chat --streaming --request-rate 50 --benchmark-duration 60 --request-count 7", "requests 7", ""),
	loadLine("Time-Based Benchmarking", "with a grace period and a warm-up", "--endpoint-type chat --streaming --concurrency 5 --benchmark-duration 0.2 --benchmark-grace-period 60 --warmup-duration 0.2", "requests more than 4; summary config.grace=1m0s", ""),
	loadLine("Benchmark Goodput", "objectives in one value", "--endpoint-type chat --streaming --request-count 6 --goodput time_to_first_token:100␣inter_token_latency:3.40", "requests 6; output Goodput; summary config.slo=time_to_first_token:100 inter_token_latency:3.40", ""),
	loadLine("Benchmark Goodput", "tokens per second per user", "--request-count 6 --goodput output_token_throughput_per_user:500", "requests 6; output Goodput; summary config.slo=itl:2", ""),
	loadLine("Request Cancellation", "cancelling a share of the requests", "--endpoint-type chat --endpoint /v1/chat/completions --streaming --request-cancellation-rate 10 --request-cancellation-delay 0.5 --concurrency 8 --request-count 6 --warmup-request-count 2",
		"requests 8; summary config.cancel-share=0.1; summary config.cancel-after=500ms", "the page's lengths of synthetic prompts are left out"),
	loadLine("Request Cancellation", "cancelling at once", "--endpoint-type chat --endpoint /v1/chat/completions --streaming --request-cancellation-rate 30 --request-cancellation-delay 0.0 --concurrency 15 --request-count 6", "requests 6; summary config.cancel-share=0.3", "likewise"),
	{
		aiperf, "Multi-URL Load Balancing", "several servers", "profile --model sim --url http://HOST:PORT --url http://localhost:PORT --url-strategy round_robin --request-rate 60 --request-count 6" + withTrace,
		map[string]string{"t.jsonl": threeRows},
		"requests 6; hosts 3 3", traceIs,
	},
	{
		aiperf, "Multi-Run Confidence Reporting", "several runs", "profile --model sim --endpoint-type chat --url ENGINE/v1/chat/completions --num-profile-runs 2 --profile-run-cooldown-seconds 0.1 --concurrency 10 --num-prompts 2 --artifact-dir DIR/runs" + withTrace,
		map[string]string{"t.jsonl": threeRows},
		"requests 4; file runs/run-2/summary.json; path /v1/chat/completions", traceIs + ", and --artifact-dir",
	},
	{
		aiperf, "Benchmark Control Hooks", "resetting the cache, and the engine's profiler", "profile --model sim --url ENGINE --endpoint-type chat --streaming --concurrency 8 --request-count 3 --reset-kv-cache --server-profiler" + withTrace,
		map[string]string{"t.jsonl": threeRows},
		"requests 3; posts /reset_prefix_cache /start_profile /stop_profile", traceIs,
	},
	{
		vllm, "Benchmark CLI", "sampling", "bench serve --backend vllm --model sim --endpoint /v1/completions --base-url ENGINE --dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001 --top-k 10 --top-p 0.9 --temperature 0.5 --num-prompts 10",
		map[string]string{"t.jsonl": threeRows},
		"requests 3; body top_k=10; body top_p=0.9; body temperature=0.5", "the page's dataset is ShareGPT",
	},
	{
		vllm, "Benchmark CLI", "all prompts", "bench serve --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001 --num-prompts -1",
		map[string]string{"t.jsonl": threeRows},
		"requests 3; over 274ms", "the page's datasets are SpecBench and SPEED-Bench",
	},
	{
		vllm, "Benchmark CLI", "as many as a gateway lets through", "bench serve --model sim --base-url ENGINE --dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-chunk-hash-size 512 --no-self-timed --request-rate=inf --max-concurrency=2",
		map[string]string{"t.jsonl": threeRows},
		"requests 3; summary config.concurrency=2", "the page names flags and values alone",
	},
	{
		vllm, "Benchmark CLI", "a dataset of texts", "!bench serve --backend vllm --model sim --base-url ENGINE --dataset-name sharegpt --dataset-path DIR/talk.json --num-prompts 10",
		map[string]string{"talk.json": talk()},
		"want timed_trace", "a replay sends a trace: --dataset FILE makes its prompts from such a text",
	},
}
