// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// peerTrace is the beginning of a trace, and its figures. They were computed from the rows without moonloop: hits are those of a cache
// that never forgets (a set of the ids seen), counted in whole blocks of 512 tokens.
type peerTrace struct {
	name, file          string
	rows, input, output int64
	hits, distinct      int64 // cached tokens, block ids
	lastInput, lastHits int64 // of the last half of the rows, which kvcache-simulator counts
}

var peerTraces = []peerTrace{
	{"demo", filepath.Join("..", "..", "examples", "demo.jsonl"), 60, 63_103, 4_649, 35_328, 83, 31_974, 18_432},
	{"conversation", "", 60, 743_189, 21_759, 30_208, 1_427, 318_190, 15_360},
}

// TestAcceptancePeers converts traces for other tools, lets the tools themselves read them, and checks their figures, and, if they send
// requests, the simulated engine's record. The tools' output is read back.
func TestAcceptancePeers(t *testing.T) {
	home, vllm, dir := setting(t, "MOONLOOP_PEERS"), setting(t, "MOONLOOP_VLLM"), artefacts(t)
	for _, trace := range peerTraces {
		t.Run(trace.name, func(t *testing.T) {
			if trace.file == "" {
				trace.file = setting(t, "MOONLOOP_TRACE")
			}
			p := &peerRun{peerTrace: trace, home: home, dir: filepath.Join(dir, trace.name)}
			mkdir(t, p.dir)
			p.cut(t)
			t.Run("kvcache-simulator", p.kvcacheSimulator)
			t.Run("vllm", func(t *testing.T) { p.vllm(t, vllm) })
			t.Run("aiperf-analyze", p.aiperfAnalyze)
			t.Run("aiperf-profile", p.aiperfProfile)
			t.Run("aiperf-bailian", func(t *testing.T) {
				p.aiperfReads(t, "bailian", p.converted(t, "bailian"), "bailian_trace", "--fixed-schedule", "--isl-block-size", "512")
			})
			t.Run("aiperf-burstgpt", func(t *testing.T) {
				p.aiperfReads(t, "burstgpt", p.converted(t, "burstgpt"), "burst_gpt_trace", "--fixed-schedule")
			})
			t.Run("aiperf-weka", p.aiperfWeka)
			t.Run("guidellm", p.guidellm)
		})
	}
}

type peerRun struct {
	peerTrace
	home, dir string
	source    string // the file with the first rows
}

// cut writes the first rows of the trace.
func (p *peerRun) cut(t *testing.T) {
	t.Helper()
	content, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	if int64(len(lines)) < p.rows {
		t.Fatalf("%s has %d lines, want at least %d", p.file, len(lines), p.rows)
	}
	p.source = filepath.Join(p.dir, "trace.jsonl")
	if err := os.WriteFile(p.source, bytes.Join(lines[:p.rows], nil), 0o644); err != nil {
		t.Fatal(err)
	}
}

// run runs a program to its end, without any network but this machine's.
func (p *peerRun) run(t *testing.T, name, program string, args ...string) []byte {
	t.Helper()
	r := startGroup(t, p.dir, name, []string{
		"HF_HOME=" + filepath.Join(p.home, "huggingface"), "HF_HUB_OFFLINE=1", "HOME=" + p.dir, "NO_PROXY=127.0.0.1",
		"VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
	}, program, args...)
	if code := r.wait(t, 20*time.Minute); code != 0 {
		t.Fatalf("%s ended with status %d\n%s", name, code, r.tail())
	}
	content, err := os.ReadFile(r.out)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// converted returns the name of a file with the trace as moonloop writes it for a tool.
func (p *peerRun) converted(t *testing.T, to string) string {
	t.Helper()
	out := filepath.Join(p.dir, to+".jsonl")
	p.run(t, "convert-"+to, setting(t, "MOONLOOP_BIN"), "convert", p.source, "--to", to, "--force", "--out", out)
	return out
}

// engineSaw is a line of the simulated engine's record.
type engineSaw struct {
	Prompt int64 `json:"prompt_tokens"`
	Output int64 `json:"output_tokens"`
	Cached int64 `json:"cached_tokens"`
}

// engine runs a client against a simulated engine, and sums what arrived.
func (p *peerRun) engine(t *testing.T, name string, client func(url string)) (requests int64, sum engineSaw) {
	t.Helper()
	record := filepath.Join(p.dir, name+"-engine.jsonl")
	engine := start(t, p.dir, name+"-engine", nil, setting(t, "MOONLOOP_BIN"), "simulate", "--listen", "127.0.0.1:0", "--fast", "--record", record)
	client(engine.find(t, regexp.MustCompile(`listening on (http://\S+)`)))
	engine.stop(t)
	eachLine(t, record, func(saw engineSaw) {
		requests++
		sum.Prompt, sum.Output, sum.Cached = sum.Prompt+saw.Prompt, sum.Output+saw.Output, sum.Cached+saw.Cached
	})
	return requests, sum
}

// eachLine decodes the lines of a file.
func eachLine[T any](t *testing.T, name string, yield func(T)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var line T
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		yield(line)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

func readResult(t *testing.T, name string, v any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func same[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// kvcacheSimulator measures the last half of the requests, with the first as warm-up; its ceiling is a cache without bounds.
func (p *peerRun) kvcacheSimulator(t *testing.T) {
	out := filepath.Join(p.dir, "kvcache-simulator.json")
	p.run(t, "kvcache-simulator", filepath.Join(p.home, "kvcache-simulator", "bin", "kvcache-simulator"), "run",
		"--trace", p.converted(t, "kvcache-simulator"), "--model", "cohere-command-a-03-2025", "--backend", "python",
		"--policies", "lru", "--format", "json", "--output", out)
	var result struct {
		Metadata struct {
			BlockSize, RequestCount, RawUniqueBlocks, ParseErrors, SkippedRecords int64
			AverageInputTokens                                                    float64
		}
		Ceiling struct{ HitTokens, TotalTokens int64 }
	}
	readResult(t, out, &result)
	m := result.Metadata
	same(t, "block size", m.BlockSize, 512)
	same(t, "requests", m.RequestCount, p.rows)
	same(t, "left out", m.ParseErrors+m.SkippedRecords, 0)
	same(t, "input tokens", int64(math.Round(m.AverageInputTokens*float64(p.rows))), p.input)
	same(t, "block ids", m.RawUniqueBlocks, p.distinct)
	same(t, "tokens of the last half", result.Ceiling.TotalTokens, p.lastInput)
	same(t, "hits of the last half", result.Ceiling.HitTokens, p.lastHits)
}

// vllm sends token ids, so that every count is exact, the engine's hits included.
func (p *peerRun) vllm(t *testing.T, vllm string) {
	t.Helper()
	file := p.converted(t, "vllm")
	requests, saw := p.engine(t, "vllm", func(url string) {
		p.run(t, "vllm", filepath.Join(vllm, "server", "bin", "vllm"), "bench", "serve", "--backend", "vllm", "--base-url", url,
			"--model", "tiny", "--tokenizer", filepath.Join(vllm, "model"), "--endpoint", "/v1/completions",
			"--dataset-name", "timed_trace", "--dataset-path", file, "--self-timed", "--timed-trace-chunk-hash-size", "512",
			"--ignore-eos", "--num-prompts", strconv.FormatInt(p.rows, 10),
			"--save-result", "--result-dir", p.dir, "--result-filename", "vllm-result.json")
	})
	same(t, "requests", requests, p.rows)
	same(t, "what arrived", saw, engineSaw{Prompt: p.input, Output: p.output, Cached: p.hits})
	var result struct {
		Completed, Failed int64
		Input             int64 `json:"total_input_tokens"`
		Output            int64 `json:"total_output_tokens"`
	}
	readResult(t, filepath.Join(p.dir, "vllm-result.json"), &result)
	same(t, "completed", result.Completed, p.rows)
	same(t, "failed", result.Failed, 0)
	same(t, "input tokens", result.Input, p.input)
	same(t, "output tokens", result.Output, p.output)
}

// aiperfAnalyze uses AIPerf's own analysis of the file. Its hit rate and reuse ratio follow different rules, so only the number of ids and
// the lengths can be equal.
func (p *peerRun) aiperfAnalyze(t *testing.T) {
	out := filepath.Join(p.dir, "analysis.json")
	p.run(t, "aiperf-analyze", filepath.Join(p.home, "bin", "aiperf"), "analyze-trace", p.converted(t, "aiperf"), "--block-size", "512", "--output-file", out)
	var result struct {
		Requests int64   `json:"total_requests"`
		Unique   int64   `json:"unique_prefixes"`
		Input    float64 `json:"avg_isl"`
		Output   float64 `json:"avg_osl"`
	}
	readResult(t, out, &result)
	same(t, "requests", result.Requests, p.rows)
	same(t, "block ids", result.Unique, p.distinct)
	same(t, "input tokens", int64(math.Round(result.Input*float64(p.rows))), p.input)
	same(t, "output tokens", int64(math.Round(result.Output*float64(p.rows))), p.output)
}

// aiperfProfile: AIPerf decodes its prompts to text, so their length at the server depends on the server's tokenizer: here a word is a
// token. Requests and output tokens are the trace's, and AIPerf's output, read by moonloop, agrees with what the engine got.
func (p *peerRun) aiperfProfile(t *testing.T) {
	file := p.converted(t, "aiperf")
	folder := filepath.Join(p.dir, "aiperf")
	requests, saw := p.aiperf(t, "aiperf", "completions", file, "mooncake_trace", "--fixed-schedule", "--isl-block-size", "512")
	same(t, "requests", requests, p.rows)
	same(t, "output tokens that the engine made", saw.Output, p.output)

	back := filepath.Join(p.dir, "back.jsonl")
	p.run(t, "convert-back", setting(t, "MOONLOOP_BIN"), "convert", filepath.Join(folder, "profile_export.jsonl"), "--out", back)
	var rows, input, output int64
	eachLine(t, back, func(row captured) {
		rows, input, output = rows+1, input+row.Input, output+row.Output
	})
	same(t, "rows read back", rows, p.rows)
	same(t, "input tokens read back", input, saw.Prompt)
	same(t, "output tokens read back", output, p.output)
}

// aiperf lets AIPerf send a file, and sums what arrived. Its results are in the folder called name.
func (p *peerRun) aiperf(t *testing.T, name, endpoint, file, kind string, more ...string) (requests int64, sum engineSaw) {
	t.Helper()
	return p.engine(t, name, func(url string) {
		p.run(t, name, filepath.Join(p.home, "bin", "aiperf"), append([]string{
			"profile", "--model", "moonloop/words", "--tokenizer", "moonloop/words",
			"--url", url, "--endpoint-type", endpoint, "--streaming", "--input-file", file, "--custom-dataset-type", kind,
			"--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--export-level", "records", "--random-seed", "1",
			"--artifact-dir", filepath.Join(p.dir, name), "--ui-type", "none", "--no-server-metrics", "--no-gpu-telemetry",
		}, more...)...)
	})
}

// aiperfReads lets AIPerf read the trace in another format, with the turns of a session one after the other: all requests arrive, and ask
// for all output tokens. In these formats, AIPerf adds a turn's prompt to the previous turns, so input tokens differ.
func (p *peerRun) aiperfReads(t *testing.T, to, file, kind string, more ...string) {
	t.Helper()
	requests, saw := p.aiperf(t, "aiperf-"+to, "chat", file, kind, more...)
	same(t, "requests", requests, p.rows)
	same(t, "output tokens that the engine made", saw.Output, p.output)
}

// aiperfWeka: AIPerf needs a file for each conversation.
func (p *peerRun) aiperfWeka(t *testing.T) {
	content, err := os.ReadFile(p.converted(t, "weka"))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(p.dir, "weka")
	mkdir(t, folder)
	talks := 0
	for line := range bytes.Lines(content) {
		talks++
		if err := os.WriteFile(filepath.Join(folder, strconv.Itoa(talks)+".json"), line, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := strconv.Itoa(talks)
	p.aiperfReads(t, "weka", folder, "weka_trace", "--concurrency", all, "--num-conversations", all)
}

// chatOverhead is how many tokens the simulated engine's template adds to a chat of one message.
const chatOverhead = 10

// guidellm sends texts whose words are tokens both for its own tokenizer here and on the engine.
func (p *peerRun) guidellm(t *testing.T) {
	file, tokenizer := p.converted(t, "guidellm"), filepath.Join(p.home, "lorem")
	out := filepath.Join(p.dir, "guidellm-result.json")
	requests, saw := p.engine(t, "guidellm", func(url string) {
		p.run(t, "guidellm", filepath.Join(p.home, "bin", "guidellm"), "run", "--backend", "kind=openai_http,target="+url+",model=tiny",
			"--tokenizer", "kind=huggingface_auto,model="+tokenizer, "--profile", "kind=replay",
			"--data", "kind=mooncake,source.kind=json_file,source.path="+file+",hash_id_block_size=512",
			"--output", "kind=json,path="+out, "--disable-console")
	})
	same(t, "requests", requests, p.rows)
	same(t, "input tokens that arrived", saw.Prompt-chatOverhead*p.rows, p.input)
	same(t, "output tokens that the engine made", saw.Output, p.output)

	// GuideLLM's report may lack the last request, and says so: what is read back is therefore compared with the report.
	var result struct {
		Benchmarks []struct {
			Requests struct {
				Successful []struct {
					Input  int64 `json:"prompt_tokens"`
					Output int64 `json:"output_tokens"`
				}
			}
		}
	}
	readResult(t, out, &result)
	var want, got struct{ rows, input, output int64 }
	for _, q := range result.Benchmarks[0].Requests.Successful {
		want.rows, want.input, want.output = want.rows+1, want.input+q.Input, want.output+q.Output
	}
	t.Logf("GuideLLM reports %d of %d requests", want.rows, p.rows)
	back := filepath.Join(p.dir, "guidellm-back.jsonl")
	p.run(t, "convert-guidellm", setting(t, "MOONLOOP_BIN"), "convert", out, "--force", "--out", back)
	eachLine(t, back, func(row captured) {
		got.rows, got.input, got.output = got.rows+1, got.input+row.Input, got.output+row.Output
	})
	same(t, "what is read back", got, want)
	if want.rows < p.rows-1 {
		t.Errorf("GuideLLM reports %d of %d requests", want.rows, p.rows)
	}
}
