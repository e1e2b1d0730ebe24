// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
)

// This file is the table of other replay tools' flags and their meaning here. The help, the completion of shells, the page
// docs/from-other-tools.md and its test are generated from it. translate.go applies it.

// The tools whose command lines are accepted.
const (
	aiperf      = "aiperf"
	vllm        = "vllm"
	guidellm    = "guidellm"
	traceReplay = "tracereplay"
)

// anyTool stands for alternative spellings of our own flags, which any command line may have.
const anyTool = "moonloop"

var toolNames = map[string]string{aiperf: "AIPerf", vllm: "vLLM bench serve", guidellm: "GuideLLM", traceReplay: "UCM TraceReplay"}

// What a flag becomes:
const (
	yes     = "yes"
	partly  = "partly" // with the difference in note
	ignored = "no effect"
	refused = "refused"
)

// alias is a flag of other tools.
type alias struct {
	tools string // that have it with this meaning; anyTool: any command line
	name  string
	takes string // value: none if empty, one if "V", all up to the next flag if "V…"
	ours  string // what it becomes; for a flag that only has another name, just --name
	state string
	note  string // the difference, why it has no effect, or what to do instead
	try   string // arguments that the test adds to a replay; it replaces ENGINE, HOST, PORT, TRACE and DIR
	sees  string // what the engine and the folder then show; see TestAliases
	do    func(t *translator, value string) error
}

// of reports whether a tool's command lines have the flag with this meaning.
func (a alias) of(tool string) bool {
	return a.tools == anyTool || slices.Contains(strings.Fields(a.tools), tool)
}

// renames reports whether the flag only has another name.
func (a alias) renames() bool { return a.do == nil && strings.HasPrefix(a.ours, "--") }

const (
	vllms = vllm + " " + traceReplay
)

// Reasons that several flags share.
const (
	noTokenizer  = "no tokenizer is needed" //nolint:gosec // no token of that kind
	alwaysThere  = "summary.json, summary.csv and requests.jsonl have it in any case; --out DIR writes them"
	followed     = "the timestamps of the trace are followed, even with --request-rate"
	asTransform  = "what moonloop transform does, to a copy of the trace"
	noWorkers    = "one process is enough; use --shard and --start-at for several machines"
	collectorDo  = "let a Collector collect it: examples/collector.yaml"
	seeExports   = "files cannot be selected: --out DIR has all of them"
	noSaturation = "end the run early with --abort-error-rate; the verdict names an overloaded client"
	delayed      = "for turns that are sent after the turn before: with --no-fixed-schedule, --request-rate or --no-open-loop-replay; else the timestamps are followed"
	agentX       = "turns that follow the reply before by their think time, of 10 s at most, again and again with fresh prompts for --benchmark-duration, or 30 minutes"
	windowNote   = "counts from timestamp 0; with --fixed-schedule-auto-offset, and in converted files, from the first row"
	againNote    = "if timestamps are not followed, the trace is sent repeatedly until this is reached"
	sessionsNote = "the first N conversations, once; for single turns and bodies, N of them, repeated from the beginning if there are fewer"
	onlyMore     = "--runs N makes several runs, each with a folder in --out, and shows their spread"
)

var rows = []alias{
	// Ours
	{anyTool, "prompts", "V…", "--dataset, --prompt", yes, "dataset FILE is --dataset FILE; words and tokens are --prompt", "--prompts dataset DIR/talk.json", "requests 4; rows of the trace; text lighthouse", (*translator).promptsOf},
	{anyTool, "format", "V", "--table", yes, "table is --table tracereplay; --out DIR has JSON and CSV, --xlsx and --parquet write more", "--format table", "output P25 TTFT (ms)", (*translator).format},

	// AIPerf
	{aiperf, "model-names", "V", "--model", yes, "", "--model-names sim", "model sim", nil},
	{aiperf, "url", "V", "--url http://…", yes, "http:// is put before a host and port; several are balanced round robin", "--url HOST:PORT", "requests 4", (*translator).url},
	{aiperf, "input-file", "V", "TRACE", yes, "the format of the file is detected, unless --custom-dataset-type names it", "--input-file TRACE", "requests 4; rows of the trace", (*translator).aiperfFile},
	{aiperf, "custom-dataset-type", "V", "--from", partly, "mooncake_trace; bailian_trace, baseten_trace, burst_gpt_trace, dag_jsonl, inputs_json, multi_turn, random_pool, raw_payload, sagemaker_data_capture, single_turn, tracelab and weka_trace are converted first; a random_pool is one file, sent in its order; not speed_bench_*, which AIPerf downloads", "--custom-dataset-type mooncake_trace", "requests 4; rows of the trace", (*translator).datasetType},
	{aiperf, "fixed-schedule", "", "", partly, followed, "--fixed-schedule --request-rate inf", "requests 4; spread over the schedule", keep("timed")},
	{aiperf, "fixed-schedule-auto-offset", "", "", ignored, "the first row is sent at 0 in any case", "--fixed-schedule-auto-offset", "requests 4; spread over the schedule", nil},
	{aiperf, "fixed-schedule-start-offset", "V", "--start", partly, windowNote, "--fixed-schedule-start-offset 80", "requests 2", nil},
	{aiperf, "fixed-schedule-end-offset", "V", "--end", partly, windowNote, "--fixed-schedule-end-offset 80", "requests 3", nil},
	{aiperf, "streaming", "", "", ignored, "replies are streamed unless --no-stream is given", "--streaming", "body stream=true", nil},
	{aiperf, "no-streaming", "", "--no-stream", yes, "", "--no-streaming", "body stream=", (*translator).noStream},
	{aiperf, "endpoint-type", "V", "--endpoint", partly, "chat, completions, responses, messages, embeddings and huggingface_generate", "--endpoint-type embeddings", "path /v1/embeddings; body stream=; rows of the trace", (*translator).endpointType},
	{aiperf + " " + vllm, "endpoint", "V", "--endpoint", partly, "a path that ends in /chat/completions, /completions, /responses, /messages, /embeddings, /generate or /generate_stream", "--endpoint /v1/completions", "path /v1/completions", (*translator).endpointPath},
	{aiperf, "custom-endpoint", "V", "--endpoint", partly, "as --endpoint", "--custom-endpoint /v1/chat/completions", "path /v1/chat/completions", (*translator).endpointPath},
	{aiperf, "concurrency", "V", "--concurrency", partly, "counts requests, where AIPerf counts conversations; one number only", "--no-fixed-schedule --concurrency 1", "one at a time", nil},
	{aiperf, "no-fixed-schedule", "", "--no-fixed-schedule", yes, "", "--no-fixed-schedule --concurrency 1", "one at a time", nil},
	{aiperf, "header", "V…", "--header", yes, "each value, and each member of a JSON object, becomes a --header", "--header X-Team:a X-Area:b", "header X-Team=a; header X-Area=b", (*translator).headers},
	{aiperf, "config", "V", "--config", partly, "also reads AIPerf's YAML, as far as it describes the replay of a trace: no sweeps, no several loads, no expressions, no synthetic data", "--config DIR/run.yaml", "requests 4; summary config.seed=5", nil},
	{guidellm, "config", "V", "--config", partly, "settings of ours: moonloop replay --print-config shows their names", "--config DIR/run.yaml", "requests 4; summary config.seed=5", nil},
	{aiperf, "request-count", "V", "--max-requests, --loop", yes, againNote, "--request-count 6 --no-fixed-schedule", "requests 6", nil},
	{aiperf, "num-requests", "V", "--max-requests, --loop", yes, "as --request-count", "--num-requests 3", "requests 3", nil},
	{aiperf, "warmup-request-count", "V", "--warmup-requests", yes, "", "--warmup-request-count 2", "requests 6", nil},
	{aiperf, "num-warmup-requests", "V", "--warmup-requests", yes, "", "--num-warmup-requests 1", "requests 5", nil},
	{aiperf, "warmup-duration", "V", "--warmup-duration", yes, "", "--warmup-duration 0.3", "requests more than 4", seconds("warmup-duration")},
	{aiperf, "warmup-grace-period", "V", "--warmup-grace", yes, "", "--warmup-request-count 2 --warmup-grace-period 60", "requests 6", (*translator).warmupGrace},
	{aiperf, "warmup-concurrency", "V", "--warmup-concurrency", yes, "up to 1,024", "--warmup-request-count 2 --warmup-concurrency 2", "requests 6", nil},
	{aiperf, "benchmark-duration", "V", "--max-duration, --loop", yes, againNote, "--benchmark-duration 0.06", "requests fewer than 4", seconds("max-duration")},
	{aiperf, "benchmark-grace-period", "V", "--grace", yes, "inf is 100 years", "--benchmark-duration 60 --benchmark-grace-period inf", "requests 4; summary config.grace=876000h0m0s", (*translator).graceOf},
	{aiperf, "request-timeout-seconds", "V", "--request-timeout", yes, "", "--request-timeout-seconds 60", "requests 4; summary config.request-timeout=1m0s", seconds("request-timeout")},
	{aiperf, "extra-inputs", "V…", "--extra-inputs", yes, "key:value pairs become one JSON object", "--extra-inputs temperature:0.5 --extra-inputs user:me", "body temperature=0.5; body user=me", (*translator).extraPairs},
	{aiperf, "api-key", "V", "--header Authorization", yes, "every user of the machine can read it in the list of processes: --api-key-file is safer", "--api-key sk-key", "header Authorization=Bearer sk-key", (*translator).key},
	{aiperf, "random-seed", "V", "--seed", yes, "", "--random-seed 7", "requests 4; summary config.seed=7", nil},
	{aiperf, "synthesis-speedup-ratio", "V", "--speedup", yes, "", "--synthesis-speedup-ratio 2", "requests 4; within 60ms", nil},
	{aiperf, "replay-speedup", "V", "--speedup", yes, "", "--replay-speedup 2", "requests 4; within 60ms", nil},
	{aiperf, "synthesis-max-osl", "V", "--max-output-length", yes, "", "--synthesis-max-osl 1", "body max_completion_tokens=1", nil},
	{aiperf, "isl-block-size", "V", "--block-size", yes, "", "--isl-block-size 1024", "requests 4; summary config.block-size=1024", nil},
	{aiperf, "osl", "V", "--output-length", partly, "for rows that have no output length", "--osl 3", "requests 4; summary config.output-length=3", nil},
	{aiperf, "output-artifact-dir", "V", "--out", yes, "", "--output-artifact-dir DIR/a", "file a/summary.json", nil},
	{aiperf, "artifact-dir", "V", "--out", yes, "", "--artifact-dir DIR/b", "file b/summary.json", nil},
	{aiperf + " " + vllms, "goodput", "V…", "--slo", partly, "of AIPerf's metrics, the times of a request: time_to_first_token, time_to_first_output_token, time_to_second_token, inter_token_latency, decode_duration and request_latency; and output_token_throughput_per_user, which becomes a bound on itl; of vLLM's metrics, all: ttft, tpot and e2el", "--goodput ttft:500 tpot:50", "output Goodput", (*translator).goodput},
	{aiperf, "failed-request-threshold", "V", "--abort-error-rate", yes, "", "--failed-request-threshold 0.5", "requests 4; summary config.abort-error-rate=0.5", nil},
	{aiperf, "otel-url", "V", "--otlp-endpoint", yes, "", "", "", nil},
	{aiperf, "ui", "V", "--progress", yes, "dashboard, simple and none become live, bar and none", "--ui simple", "requests 4; summary config.progress=bar", (*translator).ui},
	{aiperf, "ui-type", "V", "--progress", yes, "as --ui", "--ui-type none", "requests 4; summary config.progress=none", (*translator).ui},
	{aiperf + " " + vllms, "tokenizer", "V", "", ignored, "no tokenizer is needed; the path of a tokenizer.json becomes our --tokenizer", "--tokenizer gpt2", "requests 4", nil},
	{aiperf, "tokenizer-revision", "V", "", ignored, noTokenizer, "--tokenizer-revision main", "requests 4", nil},
	{aiperf, "tokenizer-trust-remote-code", "", "", ignored, noTokenizer, "--tokenizer-trust-remote-code", "requests 4", nil},
	{aiperf, "use-legacy-max-tokens", "", "", ignored, "--profile decides which field contains the length", "--use-legacy-max-tokens", "requests 4", nil},
	{aiperf, "slice-duration", "V", "--slice", yes, "series.csv in --out has a line for each", "--slice-duration 0.05 --artifact-dir DIR/s", "file s/series.csv", seconds("slice")},
	{aiperf, "num-profile-runs", "V", "--runs", yes, "with a folder for each in --out", "--num-profile-runs 2 --artifact-dir DIR/n", "requests 8; file n/run-2/summary.json", nil},
	{aiperf, "arrival-pattern", "V", "--arrival", yes, "concurrency_burst becomes --no-fixed-schedule", "--request-rate 8 --arrival-pattern constant", "requests 4; spread over the schedule", (*translator).arrivals},
	{aiperf, "request-rate-mode", "V", "--arrival", yes, "older name of --arrival-pattern", "--no-fixed-schedule --request-rate-mode concurrency_burst --concurrency 1", "one at a time", (*translator).arrivals},
	{aiperf, "arrival-smoothness", "V", "--burstiness", yes, "", "--request-rate 8 --arrival-pattern gamma --arrival-smoothness 10000", "requests 4; spread over the schedule", nil},
	{aiperf, "request-rate-ramp-duration", "V", "--ramp-up", yes, "from 0", "--request-rate 1000 --arrival-pattern constant --request-rate-ramp-duration 20", "requests 4; spread over the schedule", seconds("ramp-up")},
	{aiperf, "user-centric-rate", "V", "--request-rate", partly, "with --num-users; a late turn does not delay the turns after it, and all users begin with the first turn of a session", "--user-centric-rate 8 --num-users 2", "requests 4; over 375ms", keep("user rate")},
	{aiperf, "num-users", "V", "--users", yes, "with --user-centric-rate", "--num-users 3 --user-centric-rate 8", "requests 4; over 375ms", keep("users")},
	{aiperf, "prefill-concurrency", "V", "--prefill-concurrency", yes, "", "--no-fixed-schedule --concurrency 4 --prefill-concurrency 1", "one at a time", nil},
	{aiperf, "concurrency-ramp-duration", "V", "--concurrency-ramp-up", yes, "from 1, one by one", "--no-fixed-schedule --concurrency 4 --concurrency-ramp-duration 600", "one at a time", seconds("concurrency-ramp-up")},
	{aiperf, "prefill-concurrency-ramp-duration", "V", "--prefill-concurrency-ramp-up", yes, "from 1, one by one", "--no-fixed-schedule --concurrency 4 --prefill-concurrency 4 --prefill-concurrency-ramp-duration 600", "one at a time", seconds("prefill-concurrency-ramp-up")},
	{aiperf, "request-cancellation-rate", "V", "--cancel-share", yes, "a percentage becomes a share", "--request-cancellation-rate 100 --request-cancellation-delay 60", "requests 4; summary config.cancel-share=1", (*translator).percent},
	{aiperf, "request-cancellation-delay", "V", "--cancel-after", yes, "seconds since the request was sent", "--request-cancellation-rate 50 --request-cancellation-delay 60", "requests 4; summary config.cancel-after=1m0s", seconds("cancel-after")},
	{aiperf + " " + vllms, "request-rate", "V", "--request-rate", partly, "no effect with --fixed-schedule, --self-timed or --trace-mode trace; the first request is sent at 0, and gaps are not stretched to fit a total", "--request-rate 8 --arrival constant", "requests 4; rows of the trace; spread over the schedule", nil},

	{aiperf, "vllm-burstiness", "V", "--burstiness", yes, "", "--request-rate 8 --arrival-pattern gamma --vllm-burstiness 10000", "requests 4; spread over the schedule", nil},
	{aiperf, "open-loop-replay", "", "", ignored, "in any case, a turn is sent at its time, or when the turn before it is complete", "--open-loop-replay", "requests 4", nil},
	{aiperf, "no-open-loop-replay", "", "--transform", yes, "later turns are sent their think time after the turn before, as with --use-think-time-only", "--no-open-loop-replay", "requests 4", keep("turns")},
	{aiperf, "open-loop-strict", "", "--open-loop", yes, "", "--open-loop-strict", "requests 4; spread over the schedule", (*translator).openLoop},
	{aiperf, "wait-for-model-timeout", "V", "--wait-ready", yes, "", "--wait-for-model-timeout 5", "requests 4; summary config.wait-ready=5s", seconds("wait-ready")},
	{aiperf, "url-strategy", "V", "", yes, "round_robin is the only value; --balance has others", "--url-strategy round_robin", "requests 4", only("round_robin", "round-robin")},
	{aiperf, "model-selection-strategy", "V", "", partly, "no effect with one model; rows of the trace may name their own", "--model-selection-strategy round_robin", "requests 4", only("round_robin", "round-robin", "random", "weighted")},
	{aiperf, "transport", "V", "", partly, "http alone", "--transport http", "requests 4", only("http")},
	{aiperf, "transport-type", "V", "", partly, "as --transport", "--transport-type http", "requests 4", only("http")},
	{aiperf, "connection-reuse-strategy", "V", "--connections", yes, "pooled becomes kept, never becomes fresh, and sticky-user-sessions becomes session, whose connection stays open until it has been idle for 90 s", "--connection-reuse-strategy sticky-user-sessions --no-fixed-schedule --concurrency 1", "requests 4; a connection for each session; summary config.connections=session", (*translator).connections},
	{aiperf, "request-content-type", "V", "", partly, "application/json alone", "--request-content-type application/json", "header Content-Type=application/json", only("application/json")},
	{aiperf, "dataset-sampling-strategy", "V", "--transform", partly, "sequential is the order of the trace; shuffle and random are those of moonloop transform --draw; if the trace is sent repeatedly, it has the same order each time", "--dataset-sampling-strategy shuffle --random-seed 5 --no-fixed-schedule --concurrency 1", "requests 4; rows of the trace; in another order", (*translator).drawing},
	{aiperf, "profile-export-prefix", "V", "--out", partly, "a folder of this name, in that of --output-artifact-dir", "--artifact-dir DIR/t --profile-export-prefix nightly", "file t/nightly/summary.json", keep("prefix")},
	{aiperf, "profile-export-file", "V", "--out", partly, "as --profile-export-prefix", "--artifact-dir DIR/u --profile-export-file nightly.json", "file u/nightly/summary.json", keep("prefix")},
	{aiperf, "synthesis-max-isl", "V", "--transform", yes, "leaves longer rows out", "--synthesis-max-isl 1200", "requests 3", keep("max-isl")},
	{aiperf, "synthesis-prefix-len-multiplier", "V", "--transform", yes, asTransform, "--synthesis-prefix-len-multiplier 2", "longer prompts", keep("prefix-len")},
	{aiperf, "synthesis-prefix-root-multiplier", "V", "--transform", yes, asTransform, "--synthesis-prefix-root-multiplier 2", "requests 4", keep("prefix-roots")},
	{aiperf, "synthesis-prompt-len-multiplier", "V", "--transform", yes, asTransform, "--synthesis-prompt-len-multiplier 2", "longer prompts", keep("prompt-len")},
	{aiperf, "synthesis-output-len-multiplier", "V", "--transform", yes, asTransform, "--synthesis-output-len-multiplier 3", "body max_completion_tokens=6", keep("output-len")},
	{aiperf, "max-idle-gap-cap-seconds", "V", "--transform", yes, "in seconds of the replay, so --replay-speedup matters", "--max-idle-gap-cap-seconds 0.001", "requests 4; within 3ms", keep("idle")},
	{aiperf, "trace-idle-gap-cap-seconds", "V", "--transform", partly, "applies to the gaps between all rows, not within a session; with --no-fixed-schedule or --scenario, like --inter-turn-delay-cap-seconds", "--trace-idle-gap-cap-seconds 0.001", "requests 4; within 3ms", keep("idle of one")},
	{aiperf, "synthesis-idle-gap-cap", "V", "--transform", partly, "as --trace-idle-gap-cap-seconds", "--synthesis-idle-gap-cap 0.001", "requests 4; within 3ms", keep("idle of one")},
	{aiperf, "num-dataset-entries", "V", "--transform", yes, "the first N conversations: the rows of a session with those of its subagents, or a row without a session", "--num-dataset-entries 2", "requests 2", keep("conversations")},
	{aiperf, "conversation-num", "V", "--transform", partly, sessionsNote, "--conversation-num 3", "requests 3", keep("sessions")},
	{aiperf, "num-conversations", "V", "--transform", partly, "as --conversation-num", "--num-conversations 1", "requests 1", keep("sessions")},
	{aiperf, "num-sessions", "V", "--transform", partly, "as --conversation-num", "--num-sessions 2", "requests 2", keep("sessions")},
	{aiperf, "max-context-length", "V", "--transform", partly, "leaves out only the longer rows, not their whole conversations", "--max-context-length 1200", "requests 3", keep("max-context")},
	{aiperf, "inter-turn-delay-cap-seconds", "V", "--transform", partly, delayed, "--no-fixed-schedule --inter-turn-delay-cap-seconds 0.05", "requests 4", keep("delay cap")},
	{aiperf, "use-think-time-only", "", "--transform", partly, delayed + "; the think time is the time between the end of a reply (its duration must be recorded) and the next turn", "--no-fixed-schedule --use-think-time-only", "requests 4", keep("think")},
	{aiperf, "use-end-to-start-delays", "", "--transform", partly, "as --use-think-time-only", "--no-fixed-schedule --use-end-to-start-delays", "requests 4", keep("think")},
	{aiperf, "ignore-trace-delays", "", "--transform, --no-fixed-schedule", yes, "each turn is sent as soon as the turn before is complete; the timestamps only define the order", "--ignore-trace-delays --concurrency 1", "one at a time", keep("no delays")},
	{aiperf, "model", "V", "--model, --transform", partly, "given several times, it renames the models of each conversation, in order of appearance; rows without a model or a session get the names in turn", "--model sim --model other", "requests 4; some model=sim; some model=other", (*translator).nothing},
	{aiperf, "cache-bust", "V", "--seed, --loop-fresh, --runs-fresh", partly, "makes prompts that no other run has sent, with a random seed unless --random-seed is given; with --loop or --runs, each pass or run has different prompts; none means no change", "--cache-bust first_turn_prefix --loop 2", "requests 8", keep("bust")},
	{aiperf, "public-dataset", "V", "TRACE", partly, "nothing is downloaded: give its file or folder with --input-file; without it, the error says what to download", "--public-dataset semianalysis_cc_traces_weka --input-file TRACE", "requests 4; rows of the trace", keep("public")},
	{aiperf, "hf-weka-dataset", "V", "TRACE", partly, "as --public-dataset", "--public-dataset weka_hf --hf-weka-dataset a/b --input-file TRACE", "requests 4; rows of the trace", keep("hub")},
	{aiperf, "graph-format", "V", "--from", partly, "dynamo_trace, weka_trace and dag_jsonl; native describes how requests are made from replies, and is refused", "", "", (*translator).graphFormat},
	{aiperf, "scenario", "V", "--no-fixed-schedule, --transform, --loop, --max-duration", partly, "inferencex-agentx-mvp: a closed loop of " + agentX + "; a result is not a submission: sessions begin with their first turn, without warm-up, and --concurrency counts requests, not sessions", "--scenario inferencex-agentx-mvp --benchmark-duration 1.5 --concurrency 2", "requests more than 4", (*translator).scenario},
	{aiperf, "trace-session-sample-ratio", "V", "--transform", partly, "keeps rows together that share a prefix, not only sessions", "--trace-session-sample-ratio 1", "requests 4", keep("sample")},
	{aiperf, "prompt-input-tokens-block-size", "V", "--block-size", yes, "", "--prompt-input-tokens-block-size 1024", "requests 4; summary config.block-size=1024", nil},
	{aiperf, "synthetic-input-tokens-block-size", "V", "--block-size", yes, "", "--synthetic-input-tokens-block-size 1024", "requests 4; summary config.block-size=1024", nil},
	{aiperf, "prompt-output-tokens-mean", "V", "--output-length", partly, "as --osl", "--prompt-output-tokens-mean 3", "requests 4; summary config.output-length=3", nil},
	{aiperf, "output-tokens-mean", "V", "--output-length", partly, "as --osl", "--output-tokens-mean 3", "requests 4; summary config.output-length=3", nil},
	{aiperf, "image-batch-size", "V", "--images", yes, "", "--image-batch-size 2", "requests 4; images 2 of 512x512 png", nil},
	{aiperf, "batch-size-image", "V", "--images", yes, "", "--batch-size-image 1", "requests 4; images 1 of 512x512 png", nil},
	{aiperf, "image-width-mean", "V", "--image-size", yes, "AIPerf sends no image by default; with this flag, one is sent unless --image-batch-size gives another number", "--image-width-mean 64 --image-height-mean 32", "requests 4; images 1 of 64x32 png", keep("image width")},
	{aiperf, "image-height-mean", "V", "--image-size", yes, "as --image-width-mean", "--image-width-mean 64 --image-height-mean 32 --image-batch-size 3 --image-format jpeg", "requests 4; images 3 of 64x32 jpeg", keep("image height")},
	{aiperf, "image-format", "V", "--image-format", partly, "random is png", "--image-batch-size 1 --image-format random", "requests 4; images 1 of 512x512 png", (*translator).randomFormat},
	{aiperf, "num-prompts", "V", "--transform", yes, "as --num-dataset-entries; --max-requests, unless the command line is clearly AIPerf's", "--num-prompts 2", "requests 2", keep("conversations")},
	{aiperf, "session-header", "V", "--session-header", yes, "", "--session-header X-Routing-Key", "requests 2; header X-Routing-Key=a; header X-Session-Id=", nil},
	{aiperf, "request-rate-series", "V", "--request-rate-series", yes, "the same file", "--request-rate-series DIR/rates.json --arrival-pattern constant", "requests 4; over 480ms", nil},
	{aiperf, "warmup-request-rate", "V", "--warmup-request-rate", yes, "", "--warmup-request-count 2 --warmup-request-rate 10", "requests 6; summary config.warmup-request-rate=10", nil},
	{aiperf, "warmup-arrival-pattern", "V", "--warmup-arrival", yes, "gamma uses the --arrival-smoothness of the run", "--warmup-request-count 2 --warmup-request-rate 10 --warmup-arrival-pattern constant", "requests 6; summary config.warmup-arrival=constant", nil},
	{aiperf, "warmup-request-rate-ramp-duration", "V", "--warmup-ramp-up", yes, "from 0", "--warmup-request-count 2 --warmup-request-rate 1000 --warmup-request-rate-ramp-duration 0.1", "requests 6; summary config.warmup-ramp-up=100ms", seconds("warmup-ramp-up")},
	{aiperf, "warmup-concurrency-ramp-duration", "V", "--warmup-concurrency-ramp-up", yes, "from 1, one by one", "--warmup-request-count 2 --warmup-concurrency 2 --warmup-concurrency-ramp-duration 0.1", "requests 6; summary config.warmup-concurrency-ramp-up=100ms", seconds("warmup-concurrency-ramp-up")},
	{aiperf, "warmup-prefill-concurrency", "V", "--warmup-prefill-concurrency", yes, "up to 1,024", "--warmup-request-count 2 --warmup-prefill-concurrency 1", "requests 6; summary config.warmup-prefill-concurrency=1", nil},
	{aiperf, "warmup-prefill-concurrency-ramp-duration", "V", "--warmup-prefill-ramp-up", yes, "from 1, one by one", "--warmup-request-count 2 --warmup-prefill-concurrency 2 --warmup-prefill-concurrency-ramp-duration 0.1", "requests 6; summary config.warmup-prefill-ramp-up=100ms", seconds("warmup-prefill-ramp-up")},
	{aiperf, "num-warmup-sessions", "V", "--warmup-requests", partly, "this many requests: warm-up requests have the lengths of the trace's first rows, and belong to no conversation", "--num-warmup-sessions 2", "requests 6", nil},
	{aiperf, "profile-run-cooldown-seconds", "V", "--runs-pause", yes, "", "--num-profile-runs 2 --profile-run-cooldown-seconds 0.1 --artifact-dir DIR/o", "requests 8; file o/run-2/summary.json", seconds("runs-pause")},
	{aiperf, "profile-run-disable-warmup-after-first", onOff, "--runs-warmup", yes, "first, which is AIPerf's default", "--num-profile-runs 2 --warmup-request-count 1 --profile-run-disable-warmup-after-first --artifact-dir DIR/q", "requests 9", keep("warm once")},
	{aiperf, "no-profile-run-disable-warmup-after-first", "", "--runs-warmup", yes, "each", "--num-profile-runs 2 --warmup-request-count 1 --no-profile-run-disable-warmup-after-first --artifact-dir DIR/r", "requests 10", (*translator).warmAgain},
	{aiperf, "reset-kv-cache", "", "--engine-post", yes, "before=/reset_prefix_cache", "--reset-kv-cache", "requests 4; posts /reset_prefix_cache", keep("reset")},
	{aiperf, "reset-kv-cache-path", "V", "--engine-post", yes, "", "--reset-kv-cache-path /reset_prefix_cache", "requests 4; posts /reset_prefix_cache", keep("reset path")},
	{aiperf, "reset-kv-cache-timeout-seconds", "V", "--engine-post", partly, "the engine always has two minutes to answer", "--reset-kv-cache-timeout-seconds 5", "requests 4; posts /reset_prefix_cache", keep("reset time")},
	{aiperf, "server-profiler", "", "--engine-post", yes, "start=/start_profile and end=/stop_profile", "--server-profiler", "requests 4; posts /start_profile /stop_profile", keep("profiler")},
	{aiperf, "server-profiler-start-path", "V", "--engine-post", yes, "", "--server-profiler-start-path /v1/begin", "requests 4; posts /v1/begin /stop_profile", keep("profiler start")},
	{aiperf, "server-profiler-stop-path", "V", "--engine-post", yes, "", "--server-profiler-stop-path /v1/over", "requests 4; posts /start_profile /v1/over", keep("profiler stop")},
	{aiperf, "server-profiler-timeout-seconds", "V", "--engine-post", partly, "as --reset-kv-cache-timeout-seconds", "--server-profiler-timeout-seconds 5", "requests 4; posts /start_profile /stop_profile", keep("profiler time")},
	{aiperf, "export-level", "V", "--save-prompts", partly, "raw also saves the bodies, as prompts.jsonl; the files of the other levels are always written", "--export-level raw --artifact-dir DIR/v", "file v/prompts.jsonl", (*translator).exportLevel},
	{aiperf, "profile-export-level", "V", "--save-prompts", partly, "as --export-level", "--profile-export-level raw --artifact-dir DIR/w", "file w/prompts.jsonl", (*translator).exportLevel},

	// vLLM, and TraceReplay, which adds three flags to vLLM's
	{vllms, "backend", "V", "--endpoint", partly, "openai-chat is chat, openai-responses responses, openai-embeddings embeddings, tgi generate; vllm, openai, sglang, lmdeploy, llama.cpp, scalellm and tensorrt-llm are completions, and --profile where there is one; not audio, reranking and pooling", "--backend openai-chat", "path /v1/chat/completions", (*translator).backend},
	{vllm, "endpoint-type", "V", "--endpoint", partly, "older name of --backend", "--endpoint-type openai-chat", "path /v1/chat/completions", (*translator).backend},
	{vllms, "model", "V", "--model", yes, "", "--model sim", "model sim", nil},
	{vllms, "seed", "V", "--seed", yes, "", "--seed 7", "requests 4; summary config.seed=7", nil},
	{vllms, "no-stream", "", "--no-stream", yes, "", "--no-stream", "body stream=", nil},
	{vllms, "base-url", "V", "--url", yes, "", "--base-url ENGINE", "requests 4", nil},
	{vllms, "host", "V", "--url http://HOST:PORT", yes, "port 8000 unless --port is given", "--host HOST --port PORT", "requests 4", keep("host")},
	{vllms, "port", "V", "--url http://HOST:PORT", yes, "host 127.0.0.1 unless --host is given", "--host HOST --port PORT", "requests 4", keep("port")},
	{vllms, "served-model-name", "V", "--model", yes, "in that case --model only names the tokenizer", "--model path/of/weights --served-model-name sim", "model sim", keep("served")},
	{vllm, "dataset-name", "V", "", partly, "only timed_trace; in seconds and blocks of 16 tokens, unless --timed-trace-* change that; as completions, unless --backend or --endpoint changes that; the first 1,000 rows, unless --num-prompts is given", "--dataset-name timed_trace --timed-trace-sec-multiplier 0.001 --timed-trace-chunk-hash-size 512", "requests 4; spread over the schedule", keep("dataset")},
	{traceReplay, "dataset-name", "V", "--dataset", partly, "with --trace-mode benchmark: sharegpt (the default), custom and sonnet are read, random is the invented words of a replay; not hf and burstgpt", "--trace-path TRACE --trace-mode benchmark --dataset-name random", "requests 4; rows of the trace; spread over the schedule", keep("text")},
	{traceReplay, "dataset-path", "V", "--dataset", yes, "with --trace-mode benchmark", "--backend vllm --trace-path TRACE --trace-mode benchmark --dataset-name sharegpt --dataset-path DIR/talk.json", "requests 4; rows of the trace; text lighthouse; output prompt as asked 4", keep("text file")},
	{vllm, "dataset-path", "V", "TRACE", yes, "", "--dataset-path TRACE", "requests 4; rows of the trace", (*translator).theTrace},
	{vllms, "self-timed", "", "", partly, followed, "--self-timed --request-rate inf", "requests 4; spread over the schedule", keep("timed")},
	{vllms, "no-self-timed", "", "--no-fixed-schedule, --request-rate", yes, "all at once, or --max-concurrency at a time, unless --request-rate is given", "--no-self-timed", "requests 4; at once", keep("untimed")},
	{vllms, "timed-trace-sec-multiplier", "V", "--time-unit, --speedup", yes, "", "--timed-trace-sec-multiplier 0.001", "requests 4; spread over the schedule", (*translator).secondsPerUnit},
	{vllms, "timed-trace-chunk-hash-size", "V", "--block-size", yes, "", "--timed-trace-chunk-hash-size 1024", "requests 4; summary config.block-size=1024", keep("chunk")},
	{vllms, "timed-trace-label-timestamp", "V", "--map", yes, "", "--timed-trace-label-timestamp timestamp", "requests 4", column("timestamp")},
	{vllms, "timed-trace-label-input-length", "V", "--map", yes, "", "--timed-trace-label-input-length input_length", "requests 4", column("input_length")},
	{vllms, "timed-trace-label-output-length", "V", "--map", yes, "", "--timed-trace-label-output-length output_length", "requests 4", column("output_length")},
	{vllms, "timed-trace-label-hash-ids", "V", "--map", yes, "", "--timed-trace-label-hash-ids hash_ids", "requests 4", column("hash_ids")},
	{vllms, "num-prompts", "V", "--max-requests", partly, "0 is all; TraceReplay ignores it", "--num-prompts 2", "requests 2", nil},
	{vllms, "max-concurrency", "V", "--concurrency", yes, "", "--no-fixed-schedule --max-concurrency 1", "one at a time", nil},
	{vllms, "num-warmups", "V", "--warmup-requests", yes, "", "--num-warmups 2", "requests 6", nil},
	{vllms, "burstiness", "V", "--burstiness", yes, "", "--request-rate 8 --burstiness 10000", "requests 4; spread over the schedule", nil},
	{vllms, "ignore-eos", "", "", ignored, "output lengths are always enforced, if the engine supports it (--profile)", "--ignore-eos", "body ignore_eos=true", nil},
	{vllms, "percentile-metrics", "V", "", ignored, "the table shows all metrics", "--percentile-metrics ttft,tpot,itl,e2el", "requests 4", nil},
	{vllms, "metric-percentiles", "V", "--percentiles", partly, "1, 5, 10, 25, 50, 75, 90, 95, 99 and 99.9", "--metric-percentiles 25,50,99", "output p25", nil},
	{vllms, "temperature", "V", "--extra-inputs", yes, "", "--temperature 0", "body temperature=0", extraOf("temperature")},
	{vllms, "top-p", "V", "--extra-inputs", yes, "", "--top-p 0.9", "body top_p=0.9", extraOf("top_p")},
	{vllms, "top-k", "V", "--extra-inputs", yes, "", "--top-k 5", "body top_k=5", extraOf("top_k")},
	{vllms, "min-p", "V", "--extra-inputs", yes, "", "--min-p 0.1", "body min_p=0.1", extraOf("min_p")},
	{vllms, "frequency-penalty", "V", "--extra-inputs", yes, "", "--frequency-penalty 0.1", "body frequency_penalty=0.1", extraOf("frequency_penalty")},
	{vllms, "presence-penalty", "V", "--extra-inputs", yes, "", "--presence-penalty 0.1", "body presence_penalty=0.1", extraOf("presence_penalty")},
	{vllms, "repetition-penalty", "V", "--extra-inputs", yes, "", "--repetition-penalty 1.5", "body repetition_penalty=1.5", extraOf("repetition_penalty")},
	{vllms, "logprobs", "V", "--extra-inputs", yes, "", "--endpoint completions --logprobs 1", "body logprobs=1", extraOf("logprobs")},
	{vllms, "extra-body", "V", "--extra-inputs", yes, "", `--extra-body {"user":"me"}`, "body user=me", (*translator).extraObject},
	{vllms, "header", "V…", "--header", yes, "KEY=VALUE becomes KEY: VALUE", "--header X-Team=a X-Area=b", "header X-Team=a; header X-Area=b", (*translator).headers},
	{vllms, "save-result", "", "--out", partly, "the folder of --result-dir, or this one, gets summary.json, requests.jsonl and report.html; vLLM writes one JSON file, TraceReplay metrics.xlsx: --xlsx FILE writes a workbook", "--save-result --result-dir DIR/c", "file c/summary.json", keep("save")},
	{vllms, "result-dir", "V", "--out", yes, "with --save-result", "--save-result --result-dir DIR/d", "file d/summary.json", keep("dir")},
	{vllms, "result-filename", "V", "--out", partly, "a folder of this name, without .json", "--save-result --result-dir DIR/e --result-filename run.json", "file e/run/summary.json", keep("file")},
	{vllms, "save-detailed", "", "", ignored, alwaysThere, "--save-detailed", "requests 4", nil},
	{vllms, "disable-tqdm", "", "--progress none", yes, "", "--disable-tqdm", "requests 4; summary config.progress=none", (*translator).quiet},
	{vllms, "trust-remote-code", "", "", ignored, noTokenizer, "--trust-remote-code", "requests 4", nil},
	{vllms, "tokenizer-mode", "V", "", ignored, noTokenizer, "--tokenizer-mode auto", "requests 4", nil},
	{vllms, "disable-shuffle", "", "", ignored, "the order of the trace is kept", "--disable-shuffle", "requests 4; rows of the trace", nil},
	{vllms, "ready-check-timeout-sec", "V", "--wait-ready", yes, "", "--ready-check-timeout-sec 5", "requests 4; summary config.wait-ready=5s", seconds("wait-ready")},
	{vllms, "insecure", "", "--insecure-skip-verify", yes, "", "", "", (*translator).insecure},
	{vllms, "append-result", "", "", refused, onlyMore, "", "", nil},
	{vllms, "label", "V", "--label", yes, "a text without a key has the key label", "--label nightly --save-result --result-dir DIR/l", "summary run.labels.label=nightly", nil},
	{vllms, "metadata", "V…", "--label", yes, "KEY=VALUE each", "--metadata commit=abc team=search --save-result --result-dir DIR/m", "summary run.labels.commit=abc; summary run.labels.team=search", (*translator).label},
	{vllms, "chat-template-kwargs", "V", "--extra-inputs", yes, "", `--backend openai-chat --chat-template-kwargs {"enable_thinking":false}`, "body chat_template_kwargs=map[enable_thinking:false]", (*translator).templateArguments},
	{vllms, "request-id-prefix", "V", "--run-id", partly, "X-Request-Id is the run's id, and the number of the row", "--request-id-prefix bench-7-", "header X-Request-Id=bench-7-*", (*translator).requestPrefix},
	{vllms, "ramp-up-strategy", "V", "--ramp-up-shape", partly, "rises with time, while --num-prompts are sent; vLLM's rate rises from request to request", "--num-prompts 4 --ramp-up-strategy linear --ramp-up-start-rps 5 --ramp-up-end-rps 10 --arrival constant", "requests 4; spread over the schedule", keep("ramp")},
	{vllms, "ramp-up-start-rps", "V", "--ramp-up-from", yes, "with --ramp-up-strategy", "--num-prompts 4 --ramp-up-strategy exponential --ramp-up-start-rps 5 --ramp-up-end-rps 10 --arrival constant", "requests 4; spread over the schedule", keep("ramp from")},
	{vllms, "ramp-up-end-rps", "V", "--request-rate", yes, "with --ramp-up-strategy", "--num-prompts 4 --ramp-up-strategy linear --ramp-up-start-rps 5 --ramp-up-end-rps 10 --arrival constant", "requests 4; spread over the schedule", keep("ramp to")},
	{vllms, "lora-modules", "V…", "--transform", partly, "the models of the requests: rows without a session get them in turn, and the models of each session are renamed to these, in order of appearance", "--lora-modules sim other", "requests 4; some model=sim; some model=other", (*translator).adapter},
	{vllms, "lora-assignment", "V", "", partly, "in turn, as round-robin; random becomes this, too", "--lora-modules sim other --lora-assignment round-robin", "requests 4; some model=sim; some model=other", only("random", "round-robin")},
	{vllms, "use-beam-search", "", "", refused, "replies of several beams have no first token to measure", "", "", nil},
	{vllms, "profile", "", "--engine-post", yes, "start=/start_profile and end=/stop_profile; with the name of an engine after it, it is --profile; with replay, it is GuideLLM's flag", "--profile", "requests 4; posts /start_profile /stop_profile", keep("profiler")},

	// TraceReplay
	{traceReplay, "trace-path", "V", "TRACE", yes, "completions are sent, unless --backend changes that", "--trace-path TRACE", "requests 4; rows of the trace; path /v1/completions", (*translator).tracePath},
	{traceReplay, "trace-mode", "V", "--dataset", partly, "trace, or benchmark, whose prompts come from a dataset: they have the lengths of the rows and share prefixes as hash_ids say; TraceReplay does neither", "--backend vllm --trace-path TRACE --trace-mode benchmark --dataset-name custom --dataset-path DIR/talk.json", "requests 4; rows of the trace; text lighthouse; output prompt as asked 4", keep("mode")},
	{traceReplay, "save-prompts", "", "--save-prompts", partly, "without a value, prompts.jsonl in the folder of --save-result, or in this one: the bodies that were sent", "--save-prompts --save-result --result-dir DIR/p", "file p/prompts.jsonl", keep("prompts")},

	// GuideLLM
	{guidellm, "target", "V", "--url", yes, "", "--target ENGINE", "requests 4", (*translator).url},
	{guidellm, "backend", "V", "--url, --model, --endpoint", partly, "kind=openai_http with target, model, api_key and request_format", "--backend kind=openai_http,target=ENGINE,model=sim", "requests 4; model sim", (*translator).guideBackend},
	{guidellm, "data", "V", "TRACE", partly, "a path, or kind=mooncake or trace_synthetic with the path of a file; weka and otel are converted first", "--data kind=mooncake,path=TRACE,time_scale=0.001", "requests 4; rows of the trace; spread over the schedule", (*translator).guideData},
	{guidellm, "profile", "V", "--request-rate, --arrival, --concurrency", partly, "replay, constant, async, poisson, concurrent, synchronous and throughput, or kind= with one of them and its members; not sweep", "--profile kind=constant,rate=8", "requests 4; rows of the trace; spread over the schedule", (*translator).guideProfile},
	{guidellm, "rate", "V", "--request-rate, --concurrency, --speedup", partly, "its meaning depends on --profile: the rate, the number of streams, or the time_scale of replay; one value only", "--profile concurrent --rate 1", "one at a time", keep("rate")},
	{guidellm, "model", "V", "--model", yes, "", "--model sim", "model sim", nil},
	{guidellm, "max-requests", "V", "--max-requests", partly, "this many rows are sent; GuideLLM also lets requests end that are then in flight", "--max-requests 2", "requests 2", nil},
	{guidellm, "max-error-rate", "V", "--abort-error-rate", partly, "counted over all requests so far; --max-error-rate, which decides the exit status, unless the command line is clearly GuideLLM's", "--max-error-rate 0.5", "requests 4; summary config.abort-error-rate=0.5", (*translator).nothing},
	{guidellm, "max-seconds", "V", "--max-duration", yes, "", "--max-seconds 0.06", "requests fewer than 4", seconds("max-duration")},
	{guidellm, "request-type", "V", "--endpoint", partly, "chat_completions, text_completions and responses", "--request-type text_completions", "path /v1/completions", (*translator).requestType},
	{guidellm, "request-format", "V", "--endpoint", partly, "as --request-type, and the paths", "--request-format /v1/completions", "path /v1/completions", (*translator).requestType},
	{guidellm, "data-samples", "V", "--max-requests", yes, "", "--data-samples 2", "requests 2", nil},
	{guidellm, "output-dir", "V", "--out", yes, "", "--output-dir DIR/f", "file f/summary.json", nil},
	{guidellm, "output-path", "V", "--out", partly, "a folder", "--output-path DIR/g", "file g/summary.json", nil},
	{guidellm, "outputs", "V", "", ignored, seeExports, "--outputs json,html", "requests 4", nil},
	{guidellm, "random-seed", "V", "--seed", yes, "", "--random-seed 9", "requests 4; summary config.seed=9", nil},
	{guidellm, "processor", "V", "", ignored, noTokenizer, "--processor gpt2", "requests 4", nil},
	{guidellm, "disable-progress", "", "--progress none", yes, "", "--disable-progress", "requests 4; summary config.progress=none", (*translator).quiet},
	{guidellm, "disable-console", "", "--progress none", partly, "the report is printed anyway", "--disable-console", "requests 4; summary config.progress=none", (*translator).quiet},
	{guidellm, "rate-type", "V", "", partly, "older name of --profile", "--rate-type throughput", "requests 4", (*translator).guideProfile},
	{guidellm, "warmup", "V", "--steady-from", partly, "below 1, a share of the time, else seconds; a number of requests is not supported", "--warmup 0.25", "output Steady", steadyMark("steady-from")},
	{guidellm, "cooldown", "V", "--steady-to", partly, "as --warmup", "--cooldown 0.25", "output Steady", steadyMark("steady-to")},
	{guidellm, "label", "V", "--label", yes, "", "--label env=staging --output-dir DIR/n", "summary run.labels.env=staging", nil},
	{guidellm, "constraint", "V", "--max-requests, --max-duration, --abort-error-rate, --abort-errors", partly, "kind=max_requests, max_duration, max_error_rate, max_global_error_rate or max_errors; not min_requests and over_saturation", "--constraint kind=max_requests,count=2", "requests 2", (*translator).guideConstraint},
	{guidellm, "data-loader", "V", "--max-requests", partly, "kind=pytorch with samples", "--data-loader kind=pytorch,samples=3", "requests 3", (*translator).guideLoader},
	{guidellm, "seed", "V", "--seed", yes, "kind=static,value=N", "--seed kind=static,value=7", "requests 4; summary config.seed=7", (*translator).guideSeed},
	{guidellm, "output", "V", "--out", partly, "the folder of path, or path without .json, gets all files, for json, yaml, csv, html and plot alike; console is not a file", "--output kind=json,path=DIR/res/benchmark.json --output kind=html,path=DIR/res/benchmark.html", "file res/summary.json; file res/report.html", (*translator).guideOutput},
	{guidellm, "metrics", "V", "--slo", partly, "kind=generative with slo.ttft_ms, slo.tpot_ms; how much is kept has no effect", "--metrics kind=generative,sample_size=10,slo.ttft_ms=500", "output Goodput", (*translator).guideMetrics},
	{guidellm, "tokenizer", "V", "", partly, "kind= has no effect, because no tokenizer is needed; the path of a tokenizer.json becomes our --tokenizer", "--tokenizer kind=huggingface_auto,model=gpt2", "requests 4", (*translator).nothing},
	{guidellm, "disable-console-interactive", "", "--progress none", yes, "", "--disable-console-interactive", "requests 4; summary config.progress=none", (*translator).quiet},
	{guidellm, "disable-console-outputs", "", "--progress none", partly, "the report is printed anyway", "--disable-console-outputs", "requests 4; summary config.progress=none", (*translator).quiet},
	{guidellm, "backend-kwargs", "V", "--url, --model, --endpoint", partly, "a JSON object of what --backend takes", `--backend-kwargs {"model":"sim"}`, "model sim", (*translator).guideBackend},
	{guidellm, "detect-saturation", "", "", refused, noSaturation, "", "", nil},
	{guidellm, "over-saturation", "V", "", refused, noSaturation, "", "", nil},
	{guidellm, "max-errors", "V", "--abort-errors", yes, "", "--max-errors 2", "requests 4; summary config.abort-errors=2", nil},
	{guidellm, "max-global-error-rate", "V", "--abort-error-rate", yes, "", "--max-global-error-rate 0.5", "requests 4; summary config.abort-error-rate=0.5", nil},
	{guidellm, "rampup", "V", "--ramp-up, --concurrency-ramp-up", partly, "for the rate with --profile constant and poisson, for the streams with concurrent and throughput", "--profile constant --rate 1000 --rampup 20", "requests 4; spread over the schedule", keep("rampup")},
}

// aliases are all flags of other tools.
var aliases = append(slices.Clip(rows), familyFlags()...)

// peers are the flags that only have another name, with ours.
var peers = func() map[string]string {
	names := make(map[string]string)
	for _, a := range aliases {
		if a.renames() && a.ours != "--"+a.name {
			first, _, _ := strings.Cut(a.ours, ",")
			names[a.name] = strings.TrimPrefix(first, "--")
		}
	}
	return names
}()
