// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// aiperf is NVIDIA's AIPerf.
type aiperf struct{ program string }

func (aiperf) name() string { return "AIPerf" }

func (a aiperf) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	n := strconv.Itoa(w.streams)
	return run(ctx, 4*time.Minute, how{dir: dir, name: "aiperf", core: b.clientCore, env: b.python(dir), tree: true}, a.program,
		"profile", "--model", tokenizer, "--tokenizer", tokenizer, "--url", url, "--endpoint-type", "chat", "--streaming",
		"--concurrency", n, "--request-count", n, "--num-dataset-entries", "1", "--isl", "64", "--osl", strconv.Itoa(w.tokens),
		"--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--export-level", "records", "--random-seed", "1",
		"--artifact-dir", filepath.Join(dir, "aiperf"), "--ui-type", "none", "--no-server-metrics", "--no-gpu-telemetry")
}

// read reads profile_export.jsonl. A request names itself by its X-Request-ID.
func (aiperf) read(dir string, t *truth) (*report, error) {
	file, err := os.Open(filepath.Join(dir, "aiperf", "profile_export.jsonl"))
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it is only read
	return readAIPerf(file, t)
}

func readAIPerf(from io.Reader, t *truth) (*report, error) {
	type value struct{ Value float64 }
	r := &report{coalesced: nan, verdict: "–"}
	by := t.byID()
	gaps, zero := 0, 0
	for d := json.NewDecoder(bufio.NewReader(from)); d.More(); {
		var l struct {
			Metadata struct {
				ID string `json:"x_request_id"`
			}
			Metrics struct {
				TTFT value                     `json:"time_to_first_token"`
				ITL  value                     `json:"inter_token_latency"`
				Gaps struct{ Value []float64 } `json:"inter_chunk_latency"`
			}
			Error any
		}
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("profile_export.jsonl: %w", err)
		}
		if l.Error != nil {
			continue
		}
		r.add(one{l.Metrics.TTFT.Value, l.Metrics.ITL.Value, l.Metrics.Gaps.Value}, by[l.Metadata.ID])
		for _, g := range l.Metrics.Gaps.Value {
			gaps++
			if math.Abs(g) < 1e-6 { // messages of one read share its stamp
				zero++
			}
		}
	}
	if len(r.ttft) == 0 {
		return nil, errors.New("profile_export.jsonl: no request succeeded")
	}
	if gaps > 0 {
		r.coalesced = float64(zero) / float64(gaps)
	}
	return r, nil
}
