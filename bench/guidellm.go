// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// guidellm is GuideLLM. It keeps one mean gap of each request, and no name of a request that the engine sees.
type guidellm struct{ program string }

func (guidellm) name() string { return "GuideLLM" }

func (g guidellm) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	return run(ctx, 4*time.Minute, how{dir: dir, name: "guidellm", core: b.clientCore, env: b.python(dir), tree: true}, g.program,
		"run", "--backend", fmt.Sprintf("kind=openai_http,target=%s,model=%s", url, tokenizer),
		"--profile", fmt.Sprintf("kind=concurrent,streams=%d", w.streams),
		"--constraint", fmt.Sprintf("kind=max_requests,count=%d", w.streams),
		"--data", fmt.Sprintf("kind=synthetic_text,prompt_tokens=64,output_tokens=%d", w.tokens),
		"--output", "kind=json,path="+filepath.Join(dir, "guidellm.json"), "--disable-console")
}

func (guidellm) read(dir string, _ *truth) (*report, error) {
	text, err := os.ReadFile(filepath.Join(dir, "guidellm.json"))
	if err != nil {
		return nil, err
	}
	return readGuideLLM(text)
}

func readGuideLLM(text []byte) (*report, error) {
	var file struct {
		Benchmarks []struct {
			Requests struct {
				Successful []struct {
					TTFT float64 `json:"time_to_first_token_ms"`
					ITL  float64 `json:"inter_token_latency_ms"`
				}
			}
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("guidellm.json: %w", err)
	}
	r := &report{coalesced: nan, verdict: "–"}
	for _, b := range file.Benchmarks {
		for _, q := range b.Requests.Successful {
			r.add(one{q.TTFT, q.ITL, nil}, nil)
		}
	}
	if len(r.ttft) == 0 {
		return nil, errors.New("guidellm.json: no request succeeded")
	}
	return r, nil
}
