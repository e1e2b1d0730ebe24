// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/study/referee"
)

// peer is another program: how to start it, and how to read its report. Its files and arguments may contain {url} of the engine, {dir} of
// the run, {body} of a request for one token, {model}, and the load: {rate} and {lasts}, or {streams} and {tokens}.
type peer struct {
	program string // in bin, where peers.sh installs it
	label   string
	files   map[string]string // that it needs, keyed by name
	env     []string
	args    []string

	// For peers that send requests for one output token, on a schedule: the header in which request i carries its number, after a prefix; and a
	// function for the times in ms at which the peer says that it sent each request. The function is nil if the peer does not report that.
	header, prefix string
	says           func(ctx context.Context, b *bench, program, dir string) ([]float64, error)
	// For peers that run streams: the file of their report in the run's folder, and a function that reads it.
	file   string
	report func(text []byte, t *truth) (*report, error)
}

// tokenizer is the name of the tokenizer that peers.sh made, and of the model.
const tokenizer = "moonloop/words"

// python is the environment for Python peers: no model hub, and the tokenizer that peers.sh made.
var python = []string{"HF_HOME={peers}/huggingface", "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "HOME={dir}", "NO_COLOR=1"}

// peers are the programs that peers.sh installs. If one cannot be installed, peers.sh reports the reason.
var peers = []peer{
	{
		program: "vegeta", label: "vegeta", header: "X-Vegeta-Seq", says: vegetaSays,
		files: map[string]string{
			"body.json": "{body}",
			"targets":   "POST {url}/v1/completions\nContent-Type: application/json\n@{dir}/body.json\n",
		},
		args: []string{
			"attack", "-name", "bench", "-rate", "{rate}/1s", "-duration", "{lasts}ms", "-targets", "{dir}/targets", "-output", "{dir}/vegeta.bin",
		},
	},
	{
		program: "k6", label: "k6", header: "X-Request-Id", prefix: "k6-", files: map[string]string{"script.js": k6Script},
		env:  []string{"K6_NO_USAGE_REPORT=true"},
		args: []string{"run", "--quiet", "--summary-mode", "disabled", "--address", "", "{dir}/script.js"},
	},
	{
		program: "aiperf", label: "AIPerf", env: python, file: "aiperf/profile_export.jsonl", report: readAIPerf,
		args: []string{
			"profile", "--model", "{model}", "--tokenizer", "{model}", "--url", "{url}", "--endpoint-type", "chat", "--streaming",
			"--concurrency", "{streams}", "--request-count", "{streams}", "--num-dataset-entries", "1", "--isl", "64", "--osl", "{tokens}",
			"--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--export-level", "records", "--random-seed", "1",
			"--artifact-dir", "{dir}/aiperf", "--ui-type", "none", "--no-server-metrics", "--no-gpu-telemetry",
		},
	},
	{
		program: "guidellm", label: "GuideLLM", env: python, file: "guidellm.json", report: readGuideLLM,
		args: []string{
			"run", "--backend", "kind=openai_http,target={url},model={model}", "--profile", "kind=concurrent,streams={streams}",
			"--constraint", "kind=max_requests,count={streams}", "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens={tokens}",
			"--output", "kind=json,path={dir}/guidellm.json", "--disable-console",
		},
	},
	// Programs that only send at a rate: see the variable tools.
	{program: "oha"},
	{program: "wrk2"},
	{program: "inference-perf"},
	{program: "vllm"},
}

// k6Script sends at a constant arrival rate; X-Request-Id has the iteration's number. It has virtual users for the requests of a tenth of a
// second: more than are ever in flight with one token each.
const k6Script = `
import http from 'k6/http';
import exec from 'k6/execution';
export const options = {
  discardResponseBodies: true,
  scenarios: { bench: { executor: 'constant-arrival-rate', rate: {rate}, timeUnit: '1s', duration: '{lasts}ms', preAllocatedVUs: Math.max(50, {rate} / 10) } },
};
const body = '{body}';
export default function () {
  http.post('{url}/v1/completions', body, { headers: { 'Content-Type': 'application/json', 'X-Request-Id': 'k6-' + exec.scenario.iterationInTest } });
}
`

// installed returns the path of a peer's program, or "" if it is not installed.
func (b *bench) installed(p peer) string {
	program := filepath.Join(b.peers, "bin", p.program)
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	return b.copied(program)
}

// copied returns a copy of a program, or the program itself if it is a script or cannot be copied. How much of a program's file the kernel
// maps at once depends on how the file was written: compared with a file that was written in small pieces, moonloop has 5 MiB more in memory
// with a file that the linker wrote, and 27 MiB more with one that was written in a single call. So all programs are measured from files
// written in small pieces, as by an archiver or a download.
func (b *bench) copied(program string) string {
	if copied, done := b.copies[program]; done {
		return copied
	}
	if b.copies == nil {
		b.copies = make(map[string]string)
	}
	b.copies[program] = program
	to := filepath.Join(b.dir, "programs", filepath.Base(program))
	if isBinary(program) {
		if err := copyInPieces(to, program); err != nil {
			b.say("%s is measured as it is: %v", program, err)
		} else {
			b.copies[program] = to
		}
	}
	return b.copies[program]
}

// isBinary reports whether a file is an ELF program.
func isBinary(name string) bool {
	f, err := elf.Open(name)
	if err != nil {
		return false
	}
	return f.Close() == nil
}

// copyInPieces copies a program in pieces of 32 KiB.
func copyInPieces(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil { // it may be running
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, 32<<10))
	return errors.Join(err, out.Close())
}

// run runs a peer to its end. load has pairs of a name in braces and its value.
func (p peer) run(ctx context.Context, b *bench, dir, url string, load ...string) (*process, error) {
	fill := strings.NewReplacer(append(load, "{url}", url, "{dir}", dir, "{peers}", b.peers, "{model}", tokenizer, "{body}", promptBody(1))...)
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(fill.Replace(text)), 0o644); err != nil {
			return nil, err
		}
	}
	filled := func(texts []string) (out []string) {
		for _, text := range texts {
			out = append(out, fill.Replace(text))
		}
		return out
	}
	h := how{dir: dir, name: p.program, core: b.clientCore, env: filled(p.env), tree: p.report != nil}
	return run(ctx, 4*time.Minute, h, b.installed(p), filled(p.args)...)
}

func (p peer) name() string { return p.label }

func (p peer) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	return p.run(ctx, b, dir, url, "{streams}", strconv.Itoa(w.streams), "{tokens}", strconv.Itoa(w.tokens))
}

func (p peer) read(dir string, t *truth) (*report, error) {
	r, err := p.report([]byte(content(filepath.Join(dir, p.file))), t)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", p.file, err)
	case len(r.ttft) == 0:
		return nil, fmt.Errorf("%s: no request succeeded", p.file)
	}
	return r, nil
}

// vegetaSays returns the send time of each request by its number, from vegeta's results: the time at which a worker accepted the request.
func vegetaSays(ctx context.Context, b *bench, program, dir string) ([]float64, error) {
	file := filepath.Join(dir, "vegeta.csv")
	if _, err := run(ctx, time.Minute, how{dir: dir, name: "vegeta-encode", core: b.clientCore}, program,
		"encode", "-to", "csv", "-output", file, filepath.Join(dir, "vegeta.bin")); err != nil {
		return nil, err
	}
	return readVegeta(content(file))
}

// readVegeta returns the times by request number, in ms since the first; NaN if one is missing.
func readVegeta(text string) (at []float64, err error) {
	said, err := referee.ReadExport(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("vegeta.csv: %w", err)
	}
	for _, c := range said.Claims {
		for len(at) <= c.Number {
			at = append(at, nan)
		}
		at[c.Number] = c.Start - said.Claims[0].Start
	}
	return at, nil
}

// readAIPerf reads one request from each line; its X-Request-ID identifies it.
func readAIPerf(text []byte, t *truth) (*report, error) {
	r, err := readExport(text, t)
	zero := 0
	for _, g := range r.gaps {
		if math.Abs(g) < 1e-6 { // messages of one read have the same timestamp
			zero++
		}
	}
	r.coalesced = float64(zero) / float64(len(r.gaps)) // NaN without gaps
	return r, err
}

// readGuideLLM reads one mean gap of each request. The requests have no id that the engine sees.
func readGuideLLM(text []byte, t *truth) (*report, error) { return readExport(text, t) }

// readExport reads a peer's report of the successful requests.
func readExport(text []byte, t *truth) (*report, error) {
	r := &report{coalesced: nan, verdict: "–"}
	said, err := referee.ReadExport(bytes.NewReader(text))
	if err != nil {
		return r, err
	}
	by := t.byID()
	for _, c := range said.Claims {
		if !c.Failed {
			r.add(one{c.TTFT, c.ITL, c.Gaps}, by[c.ID])
		}
	}
	return r, nil
}
