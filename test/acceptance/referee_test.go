// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// judged is a load generator to be judged: the command that runs it at a rate, with {url}, {dir}, {peers} and {vllm} as placeholders.
type judged struct {
	name    string
	needs   string // a program; without it the generator is left out
	judge   string // what it is asked for
	rate    float64
	command string
	export  string
	header  string // in which it numbers its requests, after the last hyphen; "": it does not
}

const refereeBody = `{"model":"tiny","stream":true,"ignore_eos":true,"max_tokens":20,"prompt":[1,2,3,4]}`

const refereeK6 = `
import http from 'k6/http';
import exec from 'k6/execution';
export const options = { scenarios: { bench: { executor: 'constant-arrival-rate', rate: 100, timeUnit: '1s', duration: '10s', preAllocatedVUs: 200 } } };
export default function () {
  http.post(__ENV.URL + '/v1/completions', '` + refereeBody + `', { headers: { 'Content-Type': 'application/json', 'X-Request-Id': 'k6-' + exec.scenario.iterationInTest } });
}
`

var pythonPeer = "HF_HOME={peers}/huggingface HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 HOME={dir} "

const refereeInferencePerf = `
api: {type: completion, streaming: true}
data:
  type: random
  input_distribution: {min: 64, max: 64, mean: 64, std_dev: 0, total_count: 1000}
  output_distribution: {min: 20, max: 20, mean: 20, std_dev: 0, total_count: 1000}
load: {type: constant, num_workers: 1, stages: [{rate: 100, duration: 10}]}
server: {type: vllm, model_name: moonloop/words, base_url: "{URL}", ignore_eos: true}
tokenizer: {pretrained_model_name_or_path: moonloop/words}
report: {request_lifecycle: {per_request: true, per_request_fields: {request: false, response: false, computed_metrics: true}}}
storage: {local_storage: {path: report}}
`

// All send some 100 requests per second for ten seconds, to an engine that writes 20 tokens for each, one every 10 ms.
var generators = []judged{
	{
		name: "moonloop", judge: "{dir}/trace.jsonl", rate: 100, header: "X-Request-Id", export: "{dir}/out/requests.jsonl",
		command: "moonloop replay {dir}/trace.jsonl --url {url} --model tiny --endpoint completions --run-id run --progress none --force --out {dir}/out",
	},
	{
		name: "vegeta", needs: "{peers}/bin/vegeta", judge: "rate=100,count=1000", rate: 100, header: "X-Vegeta-Seq", export: "{dir}/vegeta.csv",
		command: "printf 'POST {url}/v1/completions\\nContent-Type: application/json\\n@{dir}/body.json\\n' >{dir}/targets && {peers}/bin/vegeta attack -name bench -rate 100/1s -duration 10s -targets {dir}/targets -output {dir}/vegeta.bin && {peers}/bin/vegeta encode -to csv -output {dir}/vegeta.csv {dir}/vegeta.bin",
	},
	{
		name: "k6", needs: "{peers}/bin/k6", judge: "rate=100,count=1000", rate: 100, header: "X-Request-Id", export: "{dir}/k6.csv",
		command: "K6_NO_USAGE_REPORT=true K6_CSV_TIME_FORMAT=unix_nano {peers}/bin/k6 run --quiet --summary-mode disabled --address '' -e URL={url} --out csv={dir}/k6.csv {dir}/k6.js",
	},
	{
		name: "oha", needs: "{peers}/bin/oha", judge: "rate=100,count=1000", rate: 100, export: "{dir}/oha.csv",
		command: "{peers}/bin/oha -n 1000 -q 100 -c 64 -m POST -T application/json -D {dir}/body.json --no-tui --output-format csv -o {dir}/oha.csv {url}/v1/completions",
	},
	{
		name: "AIPerf", needs: "{peers}/bin/aiperf", judge: "rate=100,count=1000", rate: 100, export: "{dir}/aiperf/profile_export.jsonl",
		command: pythonPeer + "{peers}/bin/aiperf profile --model moonloop/words --tokenizer moonloop/words --url {url} --endpoint-type completions --streaming --request-rate 100 --arrival-pattern constant --request-count 1000 --num-dataset-entries 1 --isl 64 --osl 20 --extra-inputs ignore_eos:true --use-server-token-count --export-level records --random-seed 1 --artifact-dir {dir}/aiperf --ui-type none --no-server-metrics --no-gpu-telemetry",
	},
	{
		name: "GuideLLM", needs: "{peers}/bin/guidellm", judge: "rate=100,count=1000", rate: 100, export: "{dir}/guidellm.json",
		command: pythonPeer + "{peers}/bin/guidellm run --backend kind=openai_http,target={url},model=tiny --tokenizer kind=huggingface_auto,model={peers}/lorem --profile kind=constant,rate=100 --constraint kind=max_requests,count=1000 --data kind=synthetic_text,prompt_tokens=64,output_tokens=20 --output kind=json,path={dir}/guidellm.json --disable-console",
	},
	{
		name: "inference-perf", needs: "{peers}/bin/inference-perf", judge: "rate=100,count=1000", rate: 100, export: "{dir}/report/per_request_lifecycle_metrics.json",
		command: "cd {dir} && sed 's#{URL}#{url}#' inference-perf.yml >config.yml && " + pythonPeer + "{peers}/bin/inference-perf -c config.yml",
	},
	{
		name: "vllm bench", needs: "{vllm}/server/bin/vllm", judge: "{dir}/trace.jsonl", rate: 100, header: "X-Request-Id", export: "{dir}/vllm.json",
		command: pythonPeer + "{vllm}/server/bin/vllm bench serve --backend vllm --base-url {url} --model tiny --tokenizer {vllm}/model --endpoint /v1/completions --dataset-name timed_trace --dataset-path {dir}/vllm.jsonl --self-timed --timed-trace-chunk-hash-size 512 --ignore-eos --num-prompts 1000 --save-result --save-detailed --result-dir {dir} --result-filename vllm.json",
	},
}

// TestAcceptanceReferee lets the referee judge real generators. Their lateness is computed a second time here, from the engine's record
// and the numbers in the headers, without the referee's code: each percentile agrees within 10 % or 0.05 ms.
func TestAcceptanceReferee(t *testing.T) {
	bin, peers := setting(t, "MOONLOOP_BIN"), setting(t, "MOONLOOP_PEERS")
	var table strings.Builder
	table.WriteString("| generator | rate, of 100/s | missing, extra | lateness p50, p99, max | by its own account p50, p99 | TTFT error p50, p99 | ITL error p50, p99 | gap error p1, p99 |\n|---|---|---|---|---|---|---|---|\n")
	for _, g := range generators {
		t.Run(g.name, func(t *testing.T) {
			dir := filepath.Join(artefacts(t), "referee", strings.ReplaceAll(g.name, " ", "-"))
			mkdir(t, dir)
			fill := strings.NewReplacer("{dir}", dir, "{peers}", peers, "{vllm}", os.Getenv("MOONLOOP_VLLM"))
			if g.needs != "" {
				if _, err := os.Stat(fill.Replace(g.needs)); err != nil {
					t.Skipf("%s is not installed", g.name)
				}
			}
			refereeFiles(t, dir)
			record, out := filepath.Join(dir, "truth.jsonl"), filepath.Join(dir, "judgement.json")
			r := startGroup(t, dir, "simulate", []string{"HF_HUB_OFFLINE=1"}, bin, "simulate", "--listen", "127.0.0.1:0", "--prefill", "20ms", "--prefill-per-token", "0",
				"--decode", "10ms", "--decode-per-sequence", "0", "--record", record, "--judge", fill.Replace(g.judge), "--export", fill.Replace(g.export),
				"--html", filepath.Join(dir, "referee.html"), "--json", "--run", fill.Replace(g.command))
			if code := r.wait(t, 4*time.Minute); code != 0 {
				t.Fatalf("ended with status %d\n%s", code, r.tail())
			}
			content, err := os.ReadFile(r.out)
			if err != nil {
				t.Fatal(err)
			}
			_, text, _ := strings.Cut(string(content), "\n") // the first line has the address
			if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			var j referee.Judgement
			if err := json.Unmarshal([]byte(text), &j); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&table, refereeRow(g.name, &j))
			if j.Client == nil || j.Client.Untold > 20 || len(j.Client.Errors) == 0 {
				t.Errorf("the generator's own figures: %+v", j.Client)
			}
			if g.name == "moonloop" {
				plantedClient(t, dir, fill.Replace(g.judge), fill.Replace(g.export), record, &j)
			}
			if g.header == "" {
				return
			}
			late := independent(t, record, g.header, g.rate)
			for _, p := range []struct {
				name     string
				q, found float64
			}{{"p50", 0.5, j.Lateness.P50}, {"p90", 0.9, j.Lateness.P90}, {"p99", 0.99, j.Lateness.P99}, {"max", 1, j.Lateness.Max}} {
				want := late[max(0, int(math.Ceil(p.q*float64(len(late))))-1)]
				if d := math.Abs(p.found - want); d > 0.05 && d > 0.1*want {
					t.Errorf("lateness %s is %v ms, and %v by the record", p.name, p.found, want)
				}
			}
		})
	}
	t.Logf("%d processors, %s/%s\n%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, table.String())
}

// plantedClient lets the referee judge the same run of moonloop again, as a client whose times to first token are 3 ms too high: the
// reported error is 3 ms larger than before.
func plantedClient(t *testing.T, dir, judge, export, record string, honest *referee.Judgement) {
	t.Helper()
	var lines strings.Builder
	eachLine(t, export, func(line struct{ Result map[string]any }) {
		if v, ok := line.Result["ttft_ms"].(float64); ok {
			line.Result["ttft_ms"] = v + 3
		}
		text, err := json.Marshal(map[string]any{"result": line.Result})
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	})
	planted := filepath.Join(dir, "planted.jsonl")
	if err := os.WriteFile(planted, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	r := startGroup(t, dir, "planted", nil, setting(t, "MOONLOOP_BIN"), "referee", record, "--judge", judge, "--export", planted, "--json")
	if code := r.wait(t, time.Minute); code != 0 {
		t.Fatalf("ended with status %d\n%s", code, r.tail())
	}
	var told referee.Judgement
	readResult(t, r.out, &told)
	was, is := honest.Client.Errors[0], told.Client.Errors[0]
	t.Logf("moonloop's TTFT is %+.3f ms off at p50, with 3 ms planted %+.3f", was.P50, is.P50)
	if d := is.P50 - was.P50; was.Name != "ttft" || is.Name != "ttft" || math.Abs(d-3) > 0.1 {
		t.Errorf("the reported error is %v ms larger, want 3 ± 0.1", d)
	}
}

// refereeFiles writes the files that the generators read.
func refereeFiles(t *testing.T, dir string) {
	t.Helper()
	var trace, vllm strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 512, "output_length": 20, "hash_ids": [%d]}`+"\n", 10*i, i)
		fmt.Fprintf(&vllm, `{"timestamp": %v, "input_length": 512, "output_length": 20, "hash_ids": [%d]}`+"\n", float64(i)/100, i)
	}
	for name, text := range map[string]string{"trace.jsonl": trace.String(), "vllm.jsonl": vllm.String(), "body.json": refereeBody, "k6.js": refereeK6, "inference-perf.yml": refereeInferencePerf} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// independent computes the lateness a second time, sorted, for evenly spaced requests.
func independent(t *testing.T, record, header string, rate float64) (late []float64) {
	t.Helper()
	earliest := math.Inf(1)
	eachLine(t, record, func(line struct {
		Header   map[string][]string
		Received int64 `json:"received_ns"`
		BodyRead int64 `json:"body_read_ns"`
	},
	) {
		if len(line.Header[header]) == 0 {
			return
		}
		value := line.Header[header][0]
		n, err := strconv.Atoi(value[strings.LastIndexByte(value, '-')+1:])
		if err != nil {
			return
		}
		at := line.Received
		if at <= 0 {
			at = line.BodyRead
		}
		l := float64(at)/1e6 - 1e3*float64(n)/rate
		late, earliest = append(late, l), min(earliest, l)
	})
	for i := range late {
		late[i] -= earliest
	}
	slices.Sort(late)
	if len(late) == 0 {
		t.Fatal("no request has a number")
	}
	return late
}

// refereeRow is a line of the results page.
func refereeRow(name string, j *referee.Judgement) string {
	own, errs := "–", map[string]*referee.Error{}
	if c := j.Client; c != nil {
		if c.Lateness != nil {
			own = fmt.Sprintf("%.2f, %.2f", c.Lateness.P50, c.Lateness.P99)
		}
		for i := range c.Errors {
			errs[c.Errors[i].Name] = &c.Errors[i]
		}
	}
	cell := func(name string, low, high func(e *referee.Error) float64) string {
		if e := errs[name]; e != nil {
			return fmt.Sprintf("%+.2f, %+.2f", low(e), high(e))
		}
		return "–"
	}
	p1, p50, p99 := func(e *referee.Error) float64 { return e.P1 }, func(e *referee.Error) float64 { return e.P50 }, func(e *referee.Error) float64 { return e.P99 }
	rate := "–"
	if j.Rate != nil {
		rate = fmt.Sprintf("%.2f", *j.Rate)
	}
	return fmt.Sprintf("| %s | %s | %d, %d | %.2f, %.2f, %.2f | %s | %s | %s | %s |\n", name, rate, j.Missing, j.Extra, j.Lateness.P50, j.Lateness.P99, j.Lateness.Max,
		own, cell("ttft", p50, p99), cell("itl", p50, p99), cell("gap", p1, p99))
}
