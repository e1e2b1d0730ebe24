// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

// This file has the members of values of GuideLLM's flags (kind=…,name=value), for the page docs/from-other-tools.md.

// printedMember is a member of a flag's value.
type printedMember struct {
	flag, names string // several with the same meaning, or the same effect
	ours        string
	state, note string
	line        string // "!" before it: refused
	sees        string // see printedLine
	rows        string // of the trace, if they are not those of aliasTrace
}

// The arguments that follow the flag that a line is about.
const (
	toSim    = " --backend kind=openai_http,target=ENGINE"
	ofTrace4 = " --data kind=mooncake,path=TRACE,time_scale=0.001"
)

var printedMembers = []printedMember{
	{"--backend", "kind", "", partly, "openai_http alone", "!--backend kind=vllm_python,model=sim" + ofTrace4, "want openai_http", ""},
	{"--backend", "target", "--url", yes, "with or without /v1", "--backend kind=openai_http,target=ENGINE/v1" + ofTrace4, "requests 4; path /v1/chat/completions", ""},
	{"--backend", "model", "--model", yes, "", "--backend kind=openai_http,target=ENGINE,model=sim" + ofTrace4, "model sim", ""},
	{"--backend", "api_key", "--header Authorization", yes, "every user of the machine can read it in the list of processes: --api-key-file is safer", "--backend kind=openai_http,target=ENGINE,api_key=sk-key" + ofTrace4, "header Authorization=Bearer sk-key", ""},
	{"--backend", "request_format", "--endpoint", partly, "the paths, and the names of --request-type", "--backend kind=openai_http,target=ENGINE,request_format=/v1/completions" + ofTrace4, "path /v1/completions", ""},
	{"--backend", "stream", "--no-stream", yes, "", "--backend kind=openai_http,target=ENGINE,stream=false" + ofTrace4, "body stream=", ""},
	{"--backend", "timeout timeout_connect", "--request-timeout, --connect-timeout", yes, "seconds", "--backend kind=openai_http,target=ENGINE,timeout=90,timeout_connect=7" + ofTrace4, "summary config.request-timeout=1m30s; summary config.connect-timeout=7s", ""},
	{"--backend", "verify", "--insecure-skip-verify", yes, "of https", "--backend kind=openai_http,target=https://127.0.0.1:1,verify=false --print-config" + ofTrace4, "output insecure-skip-verify: true", ""},
	{"--backend", "http2", "--http2", yes, "", "--backend kind=openai_http,target=ENGINE,http2=false" + ofTrace4, "summary config.http2=false", ""},
	{"--backend", "max_tokens", "--max-output-length", yes, "", "--backend kind=openai_http,target=ENGINE,max_tokens=1" + ofTrace4, "body max_completion_tokens=1", ""},
	{"--backend", "extras.body", "--extra-inputs", yes, "overrides what a replay sends, such as ignore_eos", "--backend kind=openai_http,target=ENGINE,extras.body.ignore_eos=false,extras.body.top_k=20" + ofTrace4, "body ignore_eos=false; body top_k=20", ""},
	{"--backend", "extras.headers", "--header", yes, "", "--backend kind=openai_http,target=ENGINE,extras.headers.X-Team=a" + ofTrace4, "header X-Team=a", ""},
	{"--backend", "extras.content extras.params", "", refused, "rows with messages have such contents; no query is added to the address", "!--backend kind=openai_http,target=ENGINE,extras.content.source_lang_code=en" + ofTrace4, "extras.body", ""},
	{"--backend", "server_history multiturn_reasoning", "", partly, "only false: a request has the conversation so far, as in the trace", "--backend kind=openai_http,target=ENGINE,server_history=false,multiturn_reasoning=false" + ofTrace4, "requests 4", ""},
	{"--backend", "tool_call_missing_behavior", "", ignored, "a replay waits for no tool call", "--backend kind=openai_http,target=ENGINE,tool_call_missing_behavior=ignore_continue" + ofTrace4, "requests 4", ""},
	{"--backend", "api_routes", "", refused, "put a path prefix of the API into target", "!--backend kind=openai_http,target=ENGINE,api_routes./v1/completions=/other/completions" + ofTrace4, "belongs in target", ""},
	{"--backend", "follow_redirects validate_backend", "", ignored, "", "--backend kind=openai_http,target=ENGINE,follow_redirects=true,validate_backend=false" + ofTrace4, "requests 4", ""},

	{"--data", "kind path", "TRACE, --from", partly, "trace_synthetic, mooncake, weka and otel; JSON lines, an array, a table and Parquet", "--data kind=trace_synthetic,path=TRACE,time_scale=0.001" + toSim, "requests 4; rows of the trace; spread over the schedule", ""},
	{"--data", "source.kind source.path", "TRACE", partly, "json_file, csv_file and parquet_file; nothing is downloaded", "--data kind=mooncake,source.kind=json_file,source.path=TRACE,time_scale=0.001" + toSim, "requests 4; rows of the trace", ""},
	{"--data", "timestamp_column prompt_tokens_column output_tokens_column", "--map", yes, "for weka, only its own names", "--data kind=trace_synthetic,path=TRACE,timestamp_column=ts,prompt_tokens_column=isl,output_tokens_column=osl" + toSim, "requests 2; over 200ms; all of max_completion_tokens=3 4", `{"ts": 7, "isl": 40, "osl": 3}
{"ts": 7.2, "isl": 50, "osl": 4}
`},
	{"--data", "hash_ids_column hash_id_block_size", "--map, --block-size", yes, "", "--data kind=mooncake,path=TRACE,hash_ids_column=blocks,hash_id_block_size=64" + toSim, "requests 1; summary config.block-size=64", `{"timestamp": 7, "input_length": 100, "output_length": 3, "blocks": [1, 2]}
`},
	{"--data", "conversation_id_column", "session_id", partly, "only id, of weka", "--data kind=weka,path=TRACE,conversation_id_column=id" + toSim, "requests 2; header X-Session-Id=c1", conversations},
	{"--data", "time_scale", "--time-unit, --speedup", yes, "", "--data kind=mooncake,path=TRACE,time_scale=0.002" + toSim, "requests 4; over 240ms", ""},
	{"--data", "max_session_wait", "--transform", partly, "applies to all requests, in the time of the trace", "--data kind=trace_synthetic,path=TRACE,max_session_wait=0.05" + toSim, "requests 2; within 50ms", secondsRows},
	{"--data", "load_kwargs history", "", ignored, "history=trace is what a replay does", "--data kind=mooncake,path=TRACE,time_scale=0.001,load_kwargs.split=train,history=trace" + toSim, "requests 4", ""},
	{"--data", "synthetic_text huggingface", "", refused, "a replay sends a trace: download the data set, or make one with moonloop generate", "!--data kind=synthetic_text,prompt_tokens=256,output_tokens=128" + toSim, "make a trace with moonloop generate", ""},

	{"--profile", "time_scale", "--speedup", yes, "2.0 takes twice as long", "--profile kind=replay,time_scale=0.002 --data kind=mooncake,path=TRACE" + toSim, "requests 4; over 240ms", ""},
	{"--profile", "synchronous", "--concurrency 1", yes, "", "--profile kind=synchronous" + toSim + ofTrace4, "one at a time", ""},
	{"--profile", "throughput max_concurrency", "--request-rate inf, --concurrency", yes, "", "--profile kind=throughput,max_concurrency=1" + toSim + ofTrace4, "one at a time", ""},
	{"--profile", "concurrent streams", "--concurrency", partly, "one number", "--profile kind=concurrent,streams=1" + toSim + ofTrace4, "one at a time", ""},
	{"--profile", "concurrent max_concurrency", "--concurrency", yes, "the smaller of the two", "--profile kind=concurrent,streams=4,max_concurrency=1" + toSim + ofTrace4, "one at a time", ""},
	{"--profile", "constant async rate max_concurrency", "--request-rate, --concurrency", partly, "one rate", "--profile kind=constant,rate=8,max_concurrency=32" + toSim + ofTrace4, "spread over the schedule; over 375ms; summary config.concurrency=32", ""},
	{"--profile", "poisson", "--request-rate", partly, "one rate", "--profile kind=poisson,rate=8" + toSim + ofTrace4, "requests 4; summary config.arrival=poisson; summary config.request-rate=8", ""},
	{"--profile", "warmup warmup.percent warmup.mode cooldown.value", "--steady-from, --steady-to", partly, "shares of the time, not of the number of requests", "--profile kind=constant,rate=[8],warmup.percent=0.25,warmup.mode=prefer_duration,cooldown.value=0.01" + toSim + ofTrace4, "requests 4; output Steady", ""},
	{"--profile", "rampup_duration", "--ramp-up, --concurrency-ramp-up", yes, "", "--profile kind=constant,rate=1000,rampup_duration=20" + toSim + ofTrace4, "requests 4; spread over the schedule", ""},
	{"--profile", "sweep sweep_size strategy_type", "", refused, "moonloop search finds the highest load that an engine can handle", "!--profile kind=sweep,sweep_size=10,strategy_type=poisson" + toSim + ofTrace4, "moonloop search", ""},

	{"--constraint", "max_requests count", "--max-requests", partly, "the first N rows are sent; of weka and otel files, GuideLLM sends the first N turns, conversation by conversation", "--constraint kind=max_requests,count=2" + toSim + ofTrace4, "requests 2", ""},
	{"--constraint", "max_duration seconds", "--max-duration", yes, "", "--constraint kind=max_duration,seconds=0.06" + toSim + ofTrace4, "requests fewer than 4", ""},
	{"--constraint", "max_errors", "--abort-errors", yes, "", "--constraint kind=max_errors,count=3" + toSim + ofTrace4, "summary config.abort-errors=3", ""},
	{"--constraint", "max_error_rate max_global_error_rate rate", "--abort-error-rate", partly, "of all requests so far; window and minimum have no effect", "--constraint kind=max_global_error_rate,rate=0.05,minimum=10" + toSim + ofTrace4, "summary config.abort-error-rate=0.05", ""},
	{"--constraint", "over_saturation", "", refused, reasons["noSaturation"], "!--constraint kind=over_saturation,min_seconds=30,mode=enforce" + toSim + ofTrace4, "--abort-error-rate", ""},
	{"--data-loader", "samples num_workers shuffle", "--max-requests", partly, "only shuffle=false: the order of the trace", "--data-loader kind=pytorch,samples=3,num_workers=4,shuffle=false" + toSim + ofTrace4, "requests 3", ""},
	{"--seed", "static value", "--seed", yes, "", "--seed kind=static,value=42" + toSim + ofTrace4, "summary config.seed=42", ""},
	{"--tokenizer", "huggingface_auto model load_kwargs", "", ignored, reasons["noTokenizer"], "--tokenizer kind=huggingface_auto,model=gpt2,load_kwargs.use_fast=false" + toSim + ofTrace4, "requests 4", ""},
	{"--output", "json csv html plot path dpi", "--out", partly, "the folder of path gets all files", "--output kind=plot,path=DIR/res/plot.png,dpi=72" + toSim + ofTrace4, "file res/report.html", ""},
	{"--metrics", "slo.ttft_ms slo.tpot_ms slo.e2el_ms", "--slo", partly, "a reply of one token meets tpot_ms; GuideLLM leaves its request out of the goodput", "--metrics kind=generative,slo.ttft_ms=500,slo.tpot_ms=50,slo.e2el_ms=3000" + toSim + ofTrace4, "output Goodput; summary config.slo=e2el:3000 tpot:50 ttft:500", ""},
}

// TestPrintedMembers runs a line with each member.
func TestPrintedMembers(t *testing.T) {
	t.Parallel()
	members := some(printedMembers)
	ends := make([]func() replayed, len(members))
	for i, m := range members {
		line, _ := strings.CutPrefix(m.line, "!")
		rows := m.rows
		if rows == "" {
			rows = traceFor(m.sees)
		}
		ends[i] = begin(t, rows, recorded(strings.Fields("replay --overhead 1 "+line), m.sees))
	}
	for i, m := range members {
		t.Run(m.flag+"/"+m.names, func(t *testing.T) {
			for name := range strings.FieldsSeq(m.names) {
				if !strings.Contains(m.line, name) && m.state == yes {
					t.Errorf("%s is not in the line %s", name, m.line)
				}
			}
			r := ends[i]()
			if strings.HasPrefix(m.line, "!") {
				if r.status != exitUsage || !strings.Contains(r.said, m.sees) || len(r.seen) > 0 {
					t.Errorf("status %d, %d requests, said:\n%s", r.status, len(r.seen), r.said)
				}
				return
			}
			r.good(t)
			r.see(t, m.sees, r.out)
			if t.Failed() {
				t.Log(r.said)
			}
		})
	}
}

// writeMembers writes the members for the page.
func writeMembers(b *strings.Builder, tool string) {
	if tool != guidellm {
		return
	}
	b.WriteString("\n### Members of their values\n\nA value is `kind=…,name=value`, or a JSON object with the same members.\n\n| flag | theirs | ours | status | note |\n|---|---|---|---|---|\n")
	for _, m := range printedMembers {
		ours := strings.ReplaceAll(m.ours, ", ", "`, `")
		if ours != "" {
			ours = "`" + ours + "`"
		}
		fmt.Fprintf(b, "| `%s` | `%s` | %s | %s | %s |\n", m.flag, strings.Join(strings.Fields(m.names), "` `"), ours, m.state, m.note)
	}
}
