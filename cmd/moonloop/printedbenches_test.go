// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

// This file has the commands on vLLM's page about its benchmarks, except for the replay of timed traces. Most use data sets that are not
// traces, and are refused with what to use instead. The others run with a trace in place of the data set.

// benchLine returns a line of that page.
func benchLine(about, line, sees, note string) printedLine {
	return printedLine{vllm, "Benchmark CLI", about, line, map[string]string{"t.jsonl": threeRows}, sees, note}
}

// timedLine returns a line that has another data set on the page. Here, a trace takes its place.
func timedLine(about, line, sees string) printedLine {
	const trace = "--dataset-name timed_trace --dataset-path DIR/t.jsonl --timed-trace-chunk-hash-size 512 --timed-trace-sec-multiplier 0.001 "
	return benchLine(about, "bench serve --model sim --base-url ENGINE "+trace+line, sees, "the page uses another data set")
}

const aServer = "bench serve --model sim --base-url ENGINE "

var printedBenches = []printedLine{
	benchLine("prompts from a file", "!"+aServer+"--backend vllm --endpoint /v1/completions --dataset-name custom --dataset-path t.jsonl --skip-chat-template --num-prompts 80 --max-concurrency 1 --temperature=0.3 --top-p=0.75 --save-result --save-detailed --result-dir ./log/", "--map text_input=prompt", "moonloop replay FILE --map text_input=prompt sends them"),
	benchLine("audio", "!"+aServer+"--backend openai-audio --endpoint /v1/audio/transcriptions --dataset-name custom_audio --dataset-path audio.jsonl --no-oversample --custom-output-len 256", "want a path that ends in", "a replay sends texts and images"),
	benchLine("images from a file", "!"+aServer+"--backend openai-chat --endpoint /v1/chat/completions --dataset-name custom_image --dataset-path images.jsonl --custom-ensure-client-side-data", "want timed_trace", "rows with messages hold images"),
	benchLine("a data set of a hub", "!"+aServer+"--backend openai-chat --endpoint /v1/chat/completions --dataset-name hf --dataset-path lmarena-ai/VisionArena-Chat --hf-split train --num-prompts 1000", "nothing is downloaded", "download it, and make a trace from it"),
	benchLine("a data set of a hub, with no other flags", "!"+aServer+"--dataset-name hf --dataset-path AI-MO/aimo-validation-aime --num-prompts 10 --seed 42", "nothing is downloaded", "likewise"),
	benchLine("tool calls of a hub", "!"+aServer+"--backend openai-chat --endpoint /v1/chat/completions --dataset-name hf --dataset-path gorilla-llm/Berkeley-Function-Calling-Leaderboard --bfcl-categories simple,multiple --num-prompts 200", "nothing is downloaded", "likewise"),
	benchLine("a category of SpecBench", "!"+aServer+"--dataset-name spec_bench --dataset-path question.jsonl --num-prompts -1 --spec-bench-category summarization", "moonloop convert reads other files", "a replay sends a trace"),
	benchLine("a subset of SPEED-Bench", "!"+aServer+"--dataset-name speed_bench --speed-bench-dataset-subset throughput_2k --dataset-path data/speed_bench/ --num-prompts -1", "moonloop convert reads other files", "a replay sends a trace"),
	benchLine("random prompts through the Responses API", "!"+aServer+"--backend openai-responses --endpoint /v1/responses --dataset-name random --random-input-len 1024 --random-output-len 1024 --num-prompts 200", "moonloop generate makes one with lengths of your choice", "moonloop generate makes a trace"),
	benchLine("probes in addition to the load", "!"+aServer+"--backend openai-chat --endpoint /v1/chat/completions --dataset-name timed_trace --dataset-path DIR/t.jsonl --request-rate 4 --probe-request-rate 20", "start a second replay next to this one", "use a second replay, whose report has separate figures"),
	benchLine("prompts that share beginnings", "!bench serve --backend openai --model sim --base-url ENGINE --dataset-name prefix_repetition --num-prompts 100 --prefix-repetition-prefix-len 512 --prefix-repetition-suffix-len 128 --prefix-repetition-num-prefixes 5 --prefix-repetition-output-len 128", "whose prompts share a beginning", "moonloop generate makes a trace"),
	benchLine("random images", "!"+aServer+"--backend openai-chat --endpoint /v1/chat/completions --dataset-name random-mm --num-prompts 100 --max-concurrency 10 --random-prefix-len 25 --random-input-len 300 --random-output-len 40 --random-range-ratio 0.2 --random-mm-base-items-per-request 2 --request-rate inf --ignore-eos --seed 42", "--images and --image-size add images", "likewise; --images and --image-size add images"),
	benchLine("embeddings of a text", "!"+aServer+"--backend openai-embeddings --endpoint /v1/embeddings --dataset-name sharegpt --dataset-path talk.json", "--dataset FILE makes the prompts", "--dataset FILE makes the prompts of a trace from such a text"),
	benchLine("embeddings of images", "!"+aServer+"--backend openai-embeddings-clip --endpoint /v1/embeddings --dataset-name sharegpt --dataset-path talk.json", "want openai-chat", "a replay sends embeddings of texts"),
	benchLine("rankings", "!"+aServer+"--backend vllm-rerank --endpoint /v1/rerank --dataset-name random-rerank --tokenizer BAAI/bge-reranker-v2-m3 --random-input-len 512 --num-prompts 10 --random-batch-size 5", "want a path that ends in", "a replay sends no rankings"),
	benchLine("throughput without a server", "!bench throughput --model sim --dataset-name sonnet --dataset-path sonnet.txt --num-prompts 10", "bench throughput is another tool's command", "a replay needs a server"),
	benchLine("what images cost without a server", "!bench mm-processor --model sim --dataset-name random-mm --num-prompts 50", "bench mm-processor is another tool's command", "likewise"),
	benchLine("several settings", "!bench sweep serve --serve-cmd s --bench-cmd b", "bench sweep is another tool's command", "moonloop search finds the highest load that an engine can handle"),

	timedLine("plots", "--backend vllm --endpoint /v1/completions --num-prompts 100 --plot-timeline --timeline-itl-thresholds 2,5 --plot-dataset-stats --save-result --result-dir DIR/plots", "requests 3; file plots/report.html"),
	timedLine("through the Responses API", "--backend openai-responses --endpoint /v1/responses --num-prompts 200", "requests 3; path /v1/responses"),
	timedLine("embeddings", "--backend openai-embeddings --endpoint /v1/embeddings", "requests 3; path /v1/embeddings"),
	timedLine("a rate that rises", "--backend vllm --num-prompts 3 --ramp-up-strategy linear --ramp-up-start-rps 10 --ramp-up-end-rps 50 --no-self-timed", "requests 3; summary config.ramp-up-shape=linear; summary config.ramp-up-from=10; summary config.request-rate=50"),
	timedLine("random arrivals, in bursts", "--no-self-timed --request-rate 50 --burstiness 0.5 --num-prompts 3", "requests 3; summary config.burstiness=0.5; summary config.request-rate=50"),
	timedLine("one at a time, with sampling", "--skip-chat-template --num-prompts 80 --max-concurrency 1 --temperature=0.3 --top-p=0.75 --save-result --save-detailed --result-dir DIR/log/ --no-self-timed", "requests 3; body temperature=0.3; body top_p=0.75; file log/summary.json"),
	timedLine("the time spent waiting for a place", "--percentile-metrics ttft,tpot,itl,e2el,client_queue_time --max-concurrency 2 --no-self-timed", "requests 3; summary config.concurrency=2"),
}
