// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import "strings"

// This file has what AIPerf's documentation shows about conversations, a rate with a ceiling, slices of time, and sweeps, and the command
// lines of the READMEs of AIPerf and GuideLLM. As printed, most of these command lines ask for synthetic prompts, and are refused with
// advice on how to make a trace. They run if the flags about the lengths of such prompts are left out.

// someTalks are conversations in AIPerf's format.
const someTalks = `{"session_id": "one", "turns": [{"text": "Where do rivers rise?", "output_length": 4}, {"text": "Name one of them.", "output_length": 4, "delay": 20}, {"text": "And another.", "output_length": 4}]}
{"session_id": "two", "turns": [{"text": "Who maps them?", "output_length": 4}, {"text": "For how long?", "output_length": 4}]}
{"session_id": "three", "turns": [{"text": "What is a delta?", "output_length": 4}, {"text": "Why?", "output_length": 4}]}
`

// talkLine returns a command line of AIPerf's page about conversations, with someTalks as its input file.
func talkLine(page, about, line, sees, note string) printedLine {
	return printedLine{
		aiperf, page, about, "profile --model sim --endpoint-type chat --endpoint /v1/chat/completions --streaming --url HOST:PORT --input-file DIR/talks.jsonl --custom-dataset-type multi_turn " + line,
		map[string]string{"talks.jsonl": someTalks},
		sees, note,
	}
}

const (
	makesSessions = "moonloop generate makes a trace with sessions"
	makesLengths  = "moonloop generate makes a trace with lengths of your choice"
	talksAre      = "--input-file and --custom-dataset-type are added, lengths and turns come from the file"
	gridOf        = `
benchmark:
  model: sim
  endpoint: {urls: ["ENGINE/v1/chat/completions"], type: chat, streaming: true}
  datasets: [{name: main, type: file, path: DIR/t.jsonl, format: mooncake_trace}]
  phases: [{name: profiling, type: poisson, dataset: main, duration: 120, rate: 10, concurrency: 8, grace_period: 30}]
`
)

var printedTalks = []printedLine{
	loadLine("Multi-Turn Conversations", "conversations of a given number of turns", "!--endpoint-type chat --endpoint /v1/chat/completions --streaming --conversation-num 10 --conversation-turn-mean 3 --conversation-turn-stddev 0 --synthetic-input-tokens-mean 200 --output-tokens-mean 150 --concurrency 2 --random-seed 42", makesSessions, ofLengths),
	loadLine("Multi-Turn Conversations", "conversations of about a given number of turns", "!--endpoint-type chat --endpoint /v1/chat/completions --streaming --conversation-num 20 --conversation-turn-mean 5 --conversation-turn-stddev 2 --synthetic-input-tokens-mean 150 --output-tokens-mean 100 --concurrency 4 --random-seed 42", makesSessions, ofLengths),
	loadLine("Multi-Turn Conversations", "conversations with pauses", "!--endpoint-type chat --streaming --conversation-num 15 --conversation-turn-mean 4 --conversation-turn-stddev 1 --conversation-turn-delay-mean 2000 --conversation-turn-delay-stddev 500 --synthetic-input-tokens-mean 180 --output-tokens-mean 120 --concurrency 3 --random-seed 42", makesSessions, ofLengths),
	loadLine("Multi-Turn Conversations", "support conversations, with lengths that differ", "!--endpoint-type chat --streaming --conversation-num 50 --conversation-turn-mean 7 --conversation-turn-stddev 2 --conversation-turn-delay-mean 3000 --conversation-turn-delay-stddev 1000 --synthetic-input-tokens-mean 150 --synthetic-input-tokens-stddev 50 --output-tokens-mean 200 --output-tokens-stddev 80 --concurrency 10 --random-seed 42", makesSessions, ofLengths),
	talkLine("Multi-Turn Conversations", "two conversations of a file, at the same time", "--conversation-num 2 --concurrency 2 --random-seed 42", "requests 5; turns 1 1 3 3 5; model sim; body stream=true", talksAre),
	talkLine("Multi-Turn Conversations", "all conversations of a file, in a burst", "--conversation-num 3 --concurrency 50 --random-seed 42", "requests 7; turns 1 1 1 3 3 3 5", talksAre),
	talkLine("Multi-Turn Conversations", "conversations at a rate", "--conversation-num 3 --request-rate 50 --request-rate-mode poisson --random-seed 42", "requests 7; turns 1 1 1 3 3 3 5; summary config.request-rate=50; summary config.arrival=poisson", talksAre),
	talkLine("Multi-Turn Conversations", "a connection for each conversation", "--concurrency 1 --conversation-num 3 --connection-reuse-strategy sticky-user-sessions", "requests 7; a connection for each session", "--connection-reuse-strategy is added, which the page on options has"),
	talkLine("Multi-Turn Conversations", "conversations in another order", "--concurrency 1 --conversation-num 3 --dataset-sampling-strategy shuffle --random-seed 42", "requests 7; turns 1 1 1 3 3 3 5", "--dataset-sampling-strategy is added, which the page names"),
	talkLine("Multi-Turn Conversations", "conversations drawn at random", "--concurrency 2 --conversation-num 3 --dataset-sampling-strategy random --random-seed 42", "some max_completion_tokens=4", "likewise; some conversations come several times, and others never"),
	loadLine("Command Line Options", "a connection for each request", "--concurrency 2 --request-count 3 --connection-reuse-strategy never", "requests 3; header Connection=close", ""),

	{aiperf, "README", "without a trace", "!profile --model sim --streaming --endpoint-type chat --tokenizer ibm-granite/granite-4.0-micro --url ENGINE --concurrency 5 --request-count 10", nil, "makes one with lengths of your choice", "moonloop generate makes a trace"},
	loadLine("README", "with a trace", "--streaming --endpoint-type chat --tokenizer ibm-granite/granite-4.0-micro --concurrency 5 --request-count 10", "requests 10; summary config.concurrency=5", ""),
	{guidellm, "README", "rising rates, with synthetic prompts", "!benchmark --target ENGINE --profile sweep --max-seconds 30 --data prompt_tokens=256,output_tokens=128", nil, "prompt_tokens: a replay sends a trace", "moonloop generate makes a trace, moonloop search finds the highest load that an engine can handle"},
	{guidellm, "README", "a rate, with synthetic prompts", "!benchmark --target ENGINE --profile constant --rate 10 --max-seconds 20 --data prompt_tokens=128,output_tokens=256", nil, "prompt_tokens: a replay sends a trace", "moonloop generate makes a trace"},
	{guidellm, "README", "a rate", "benchmark --target ENGINE --profile constant --rate 50 --max-seconds 20 --data DIR/t.jsonl", map[string]string{"t.jsonl": threeRows}, "requests 3; summary config.request-rate=50", "lengths come from the trace"},
	{guidellm, "README", "a data set of a hub", "!benchmark run --target ENGINE --data abisee/cnn_dailymail --data-args {\"name\":\"3.0.0\"} --data-column-mapper {\"text_column\":\"article\"}", nil, "--data-column-mapper: a flag of GuideLLM", "--map names the fields of a trace"},
	{guidellm, "README", "chats of a file", "benchmark --target ENGINE --request-type chat_completions --data DIR/t.jsonl", map[string]string{"t.jsonl": threeRows}, "requests 3; path /v1/chat/completions", ""},
	{guidellm, "README", "embeddings of synthetic prompts", "!benchmark run-embeddings --target ENGINE --model text-embedding-3-small --data prompt_tokens=256 --max-requests 100", nil, "prompt_tokens: a replay sends a trace", "moonloop generate makes a trace"},
	{guidellm, "README", "embeddings", "benchmark run-embeddings --target ENGINE --model sim --data DIR/t.jsonl --max-requests 100", map[string]string{"t.jsonl": threeRows}, "requests 3; path /v1/embeddings", "lengths come from the trace"},
	loadLine("Request Rate with Max Concurrency", "random gaps, as printed", "!--endpoint-type chat --endpoint /v1/chat/completions --streaming --concurrency 100 --request-rate 200 --request-rate-mode poisson --random-seed 42 --request-count 500 --synthetic-input-tokens-mean 500 --output-tokens-mean 200", makesLengths, ofLengths),
	loadLine("Request Rate with Max Concurrency", "equal gaps, as printed", "!--endpoint-type chat --endpoint /v1/chat/completions --streaming --concurrency 50 --request-rate 50 --request-rate-mode constant --request-count 300 --synthetic-input-tokens-mean 800 --output-tokens-mean 400", makesLengths, ofLengths),
	loadLine("Request Rate with Max Concurrency", "random gaps", "--endpoint-type chat --endpoint /v1/chat/completions --streaming --concurrency 100 --request-rate 200 --request-rate-mode poisson --random-seed 42 --request-count 20",
		"requests 20; summary config.concurrency=100; summary config.request-rate=200; summary config.arrival=poisson; summary config.seed=42", "the lengths of synthetic prompts are left out"),
	loadLine("Request Rate with Max Concurrency", "equal gaps", "--endpoint-type chat --endpoint /v1/chat/completions --streaming --concurrency 50 --request-rate 50 --request-rate-mode constant --request-count 6",
		"requests 6; over 100ms; summary config.concurrency=50; summary config.arrival=constant", "likewise; a request that the limit holds back is sent as soon as there is room, where AIPerf starts a new conversation"),
	loadLine("Request Rate with Max Concurrency", "no gaps", "--arrival-pattern concurrency_burst --concurrency 2 --request-count 4", "requests 4; summary config.concurrency=2", "the page names the pattern alone"),
	loadLine("Time Slicing", "figures of each slice", "--benchmark-duration 0.3 --slice-duration 0.1 --artifact-dir DIR/slices", "requests more than 4; file slices/series.csv; summary config.slice=100ms", "--artifact-dir is added; slices begin with the run, AIPerf's with the clock"),

	loadLine("Parameter Sweeping", "several ceilings", "!--endpoint-type chat --concurrency 10,20,30,40 --num-prompts 1000", "a run has one setting", "start a replay for each, and compare them with moonloop report; moonloop search finds the best"),
	loadLine("Parameter Sweeping", "several ceilings, each several times", "!--concurrency 10,20,30,40 --num-profile-runs 5 --parameter-sweep-mode independent", "a run has one setting", "likewise"),
	{
		aiperf, "Parameter Sweeps and Multi-Run Statistics", "a grid, by a file of settings", "!profile --config DIR/sweep.yaml",
		map[string]string{"t.jsonl": threeRows, "sweep.yaml": gridOf + `
sweep:
  type: grid
  variables: {phases.profiling.concurrency: [8, 32, 64, 128], phases.profiling.rate: [10, 50, 100]}
`},
		"sweep: a run has one setting", "likewise",
	},
	{
		aiperf, "Parameter Sweeps and Multi-Run Statistics", "scenarios, by a file of settings", "!profile --config DIR/sweep.yaml",
		map[string]string{"t.jsonl": threeRows, "sweep.yaml": gridOf + `
sweep:
  type: scenarios
  runs: [{name: chat, phases: [{name: profiling, rate: 100}]}, {name: summaries, phases: [{name: profiling, concurrency: 16}]}]
`},
		"sweep: a run has one setting", "likewise",
	},
	{
		aiperf, "Parameter Sweeps and Multi-Run Statistics", "several runs, by a file of settings", "profile --config DIR/runs.yaml",
		map[string]string{"t.jsonl": threeRows, "runs.yaml": strings.Replace(gridOf, "duration: 120, rate: 10, concurrency: 8, grace_period: 30", "requests: 3, rate: 100, concurrency: 8", 1) + `
multi_run: {num_runs: 2, cooldown_seconds: 0.1, confidence_level: 0.95, set_consistent_seed: true, disable_warmup_after_first: true}
random_seed: 42
artifacts: {dir: DIR/runs, summary: [json]}
`},
		"requests 6; file runs/run-2/summary.json", "moonloop compare says how certain the difference between two series of runs is",
	},
}
