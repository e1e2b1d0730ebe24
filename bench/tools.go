// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/moonloop/moonloop/study/referee"
)

// tools are the programs that send at a rate, used as documented: with connections, users or workers for three times the requests that are
// open at once while the engine answers. Their commands have placeholders: {url} of the engine, {dir} of the run, {peers} and {moonloop}
// for the programs' paths, and {model}, {body}, {rate}, {count}, {lasts} and {warm} of the load.
var tools = []tool{
	{
		label:   "moonloop",
		command: "{moonloop} replay trace.jsonl --url {url} --model m --endpoint completions --run-id run --progress none --force --out out || [ $? -eq 3 ]",
		export:  "out/requests.jsonl",
		tells: func(dir string) string {
			s, _, err := readOut(dir)
			if err != nil {
				return "–"
			}
			words := []string{s.Verdict.Class} // without the values, which differ from round to round
			for _, r := range s.Verdict.Reasons {
				if r.Class != "valid" {
					words = append(words, r.Metric)
				}
			}
			return strings.Join(words, " ")
		},
	},
	{
		label: "vegeta", program: "vegeta", export: "vegeta.csv",
		files: map[string]string{
			"body.json": "{body}",
			"targets":   "POST {url}/v1/completions\nContent-Type: application/json\n@{dir}/body.json\n",
		},
		command: "{peers}/bin/vegeta attack -name bench -rate {rate}/1s -duration {lasts}s -targets targets -output vegeta.bin && {peers}/bin/vegeta encode -to csv -output vegeta.csv vegeta.bin",
	},
	{
		label: "k6, 64 users", program: "k6", export: "k6.csv",
		files: map[string]string{"script.js": `
import http from 'k6/http';
export const options = { scenarios: { bench: { executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', duration: '{lasts}s', preAllocatedVUs: 64 } } };
export default function () { http.post('{url}/v1/completions', '{body}', { headers: { 'Content-Type': 'application/json' } }); }
`},
		env:     []string{"K6_NO_USAGE_REPORT=true", "K6_CSV_TIME_FORMAT=unix_nano"},
		command: "{peers}/bin/k6 run --quiet --summary-mode disabled --address '' --out csv=k6.csv script.js",
		tells: func(dir string) string {
			if n := strings.Count(content(filepath.Join(dir, "k6.csv")), "\ndropped_iterations,"); n > 0 {
				return "dropped iterations" // their number differs from round to round, and is in `not sent`
			}
			return "–"
		},
	},
	oha("oha", ""), oha("oha, --latency-correction", "--latency-correction"),
	{
		label: "wrk2", program: "wrk2", export: "tool.log", says: readWrk2, warm: wrk2Calibrates,
		files:   map[string]string{"post.lua": "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\nwrk.body = '{body}'\n"},
		command: "{peers}/bin/wrk2 -t 1 -c 64 -d {warm}s -R {rate} -s post.lua --latency {url}/v1/completions",
	},
	{
		label: "AIPerf", program: "aiperf", env: python, export: "aiperf/profile_export.jsonl",
		command: "{peers}/bin/aiperf profile --model {model} --tokenizer {model} --url {url} --endpoint-type completions --streaming --request-rate {rate} " +
			"--arrival-pattern constant --request-count {count} --num-dataset-entries 1 --isl 64 --osl 20 --extra-inputs ignore_eos:true --use-server-token-count " +
			"--export-level records --random-seed 1 --artifact-dir aiperf --ui-type none --no-server-metrics --no-gpu-telemetry",
	},
	{
		label: "GuideLLM", program: "guidellm", env: python, export: "guidellm.json",
		command: "{peers}/bin/guidellm run --backend kind=openai_http,target={url},model={model} --profile kind=constant,rate={rate} " +
			"--constraint kind=max_requests,count={count} --data kind=synthetic_text,prompt_tokens=64,output_tokens=20 --output kind=json,path=guidellm.json --disable-console",
	},
	{
		label: "vLLM's bench", program: "vllm", env: python, export: "vllm.json",
		command: "{peers}/bin/vllm bench serve --backend vllm --base-url {url} --model m --tokenizer {model} --endpoint /v1/completions --dataset-name timed_trace " +
			"--dataset-path trace.jsonl --timed-trace-sec-multiplier 0.001 --self-timed --timed-trace-chunk-hash-size 512 --ignore-eos --num-prompts {count} --save-result --save-detailed " +
			"--result-dir . --result-filename vllm.json",
	},
	{
		label: "inference-perf", program: "inference-perf", env: python, export: "report/per_request_lifecycle_metrics.json",
		files: map[string]string{"config.yml": `
api: {type: completion, streaming: true}
data:
  type: random
  input_distribution: {min: 64, max: 64, mean: 64, std_dev: 0, total_count: {count}}
  output_distribution: {min: 20, max: 20, mean: 20, std_dev: 0, total_count: {count}}
load: {type: constant, num_workers: 1, stages: [{rate: {rate}, duration: {lasts}}]}
server: {type: vllm, model_name: {model}, base_url: "{url}", ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: {model}}
report: {request_lifecycle: {per_request: true, per_request_fields: {request: false, response: false, computed_metrics: true}}}
storage: {local_storage: {path: report}}
`},
		command: "{peers}/bin/inference-perf -c config.yml",
	},
}

// oha returns oha as a tool, with one more flag or none. Each connection of oha waits for a reply before it sends its next request.
func oha(label, flag string) tool {
	return tool{
		label: label, program: "oha", export: "oha.csv", files: map[string]string{"body.json": "{body}"},
		command: "{peers}/bin/oha -n {count} -q {rate} -c 64 -m POST -T application/json -D body.json --no-tui " + flag +
			" --output-format csv -o oha.csv {url}/v1/completions",
	}
}

var wrk2Line = regexp.MustCompile(`(?m)^\s*([\d.]+)%\s+([\d.]+)(us|ms|s|m)\s*$`)

// readWrk2 reads the table of percentiles, which is all that wrk2 reports.
func readWrk2(text string) (p referee.Percentiles, err error) {
	found := 0
	for _, m := range wrk2Line.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return p, err
		}
		v *= map[string]float64{"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}[m[3]]
		to := map[string]*float64{"50.000": &p.P50, "90.000": &p.P90, "99.000": &p.P99, "99.900": &p.P999, "100.000": &p.Max}[m[1]]
		if to != nil {
			*to = v
			found++
		}
	}
	if found != 5 {
		return p, fmt.Errorf("it has %d of the 5 percentiles that wrk2 prints", found)
	}
	return p, nil
}

// writeEven writes a trace of rows of one block each, evenly at the rate of the outages.
func writeEven(name string, count int) error {
	var rows strings.Builder
	for i, at := range referee.Even(count, outageRate) {
		fmt.Fprintf(&rows, `{"timestamp": %v, "input_length": 512, "output_length": %d, "hash_ids": [%d]}`+"\n", at, outageTokens, i)
	}
	return os.WriteFile(name, []byte(rows.String()), 0o600)
}
