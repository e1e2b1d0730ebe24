// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// peerNames are the peers, as peers.sh names their programs in bin.
var peerNames = []string{"vegeta", "k6", "aiperf", "guidellm", "vllm"}

// peer returns the program of a peer, or "" where it is not installed.
func (b *bench) peer(name string) string {
	program := filepath.Join(b.peers, "bin", name)
	if _, err := os.Stat(program); err != nil {
		return ""
	}
	return program
}

// needsPeers are the scenarios that run peers.
var needsPeers = map[string]bool{"dispatch": true, "peers": true, "honesty": true}

// findPeers notes who takes part. peers.sh leaves the reason why a peer is not there.
func (b *bench) findPeers(ctx context.Context, chosen []scenario) {
	m := &b.results.Machine
	m.Programs = append(m.Programs, "moonloop "+versionOf(ctx, b.moonloop))
	wanted := false
	for _, s := range chosen {
		wanted = wanted || needsPeers[s.name]
	}
	if !wanted {
		return
	}
	for _, name := range peerNames {
		program := b.peer(name)
		if program == "" {
			why := strings.TrimSpace(content(filepath.Join(b.peers, name+".skipped")))
			if why == "" {
				why = "not installed; run: make peers"
			}
			m.Skipped = append(m.Skipped, name+": "+why)
			continue
		}
		m.Programs = append(m.Programs, name+" "+versionOf(ctx, program))
	}
}

// runVegeta attacks at a constant rate. Its tick's number is in X-Vegeta-Seq.
func (b *bench) runVegeta(ctx context.Context, program, dir, url string, rate float64) (*process, error) {
	body, targets := filepath.Join(dir, "body.json"), filepath.Join(dir, "targets")
	if err := os.WriteFile(body, []byte(promptBody(1)), 0o644); err != nil {
		return nil, err
	}
	target := fmt.Sprintf("POST %s/v1/completions\nContent-Type: application/json\n@%s\n", url, body)
	if err := os.WriteFile(targets, []byte(target), 0o644); err != nil {
		return nil, err
	}
	return run(ctx, time.Minute, how{dir: dir, name: "vegeta", core: b.clientCore}, program,
		"attack", "-name", "bench", "-rate", strconv.Itoa(int(rate))+"/1s", "-duration", b.lasts.String(), "-targets", targets,
		"-output", filepath.Join(dir, "vegeta.bin"))
}

// vegetaSays returns the instant of each request, by its tick's number, as vegeta's results have it: when a worker took
// the tick.
func (b *bench) vegetaSays(ctx context.Context, program, dir string) ([]float64, error) {
	file := filepath.Join(dir, "vegeta.csv")
	if _, err := run(ctx, time.Minute, how{dir: dir, name: "vegeta-encode", core: b.clientCore}, program,
		"encode", "-to", "csv", "-output", file, filepath.Join(dir, "vegeta.bin")); err != nil {
		return nil, err
	}
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer text.Close() //nolint:errcheck // it is only read
	return readVegeta(text)
}

// readVegeta reads vegeta's CSV: the first column is the Unix time in ns, the ninth the tick's number.
func readVegeta(from io.Reader) ([]float64, error) {
	rows := csv.NewReader(from)
	rows.FieldsPerRecord = -1
	var at []float64
	var zero int64
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return at, nil
		}
		if err != nil {
			return nil, fmt.Errorf("vegeta.csv: %w", err)
		}
		if len(row) < 9 {
			return nil, fmt.Errorf("vegeta.csv: a row of %d columns, want 9 or more", len(row))
		}
		ns, errNs := strconv.ParseInt(row[0], 10, 64)
		seq, errSeq := strconv.Atoi(row[8])
		if errNs != nil || errSeq != nil || seq < 0 || seq > 1<<24 {
			return nil, fmt.Errorf("vegeta.csv: time %q, number %q", row[0], row[8])
		}
		if zero == 0 {
			zero = ns
		}
		for len(at) <= seq {
			at = append(at, nan)
		}
		at[seq] = float64(ns-zero) / 1e6
	}
}

// k6Script sends at a constant arrival rate; an iteration's number is in X-Request-Id.
const k6Script = `
import http from 'k6/http';
import exec from 'k6/execution';
export const options = {
  discardResponseBodies: true,
  scenarios: { bench: { executor: 'constant-arrival-rate', rate: %d, timeUnit: '1s', duration: '%dms', preAllocatedVUs: %d } },
};
const body = %q;
export default function () {
  http.post('%s/v1/completions', body, { headers: { 'Content-Type': 'application/json', 'X-Request-Id': 'k6-' + exec.scenario.iterationInTest } });
}
`

func (b *bench) runK6(ctx context.Context, program, dir, url string, rate float64) (*process, error) {
	script := filepath.Join(dir, "script.js")
	// Virtual users for a tenth of a second's requests: more than are ever under way at one token each.
	text := fmt.Sprintf(k6Script, int(rate), b.lasts.Milliseconds(), max(50, int(rate)/10), promptBody(1), url)
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		return nil, err
	}
	return run(ctx, time.Minute, how{dir: dir, name: "k6", core: b.clientCore, env: []string{"K6_NO_USAGE_REPORT=true"}}, program,
		"run", "--quiet", "--no-summary", "--address", "", script)
}

// python is what the Python peers need in their environment: no hub, and the tokenizer that peers.sh made.
func (b *bench) python(dir string) []string {
	return []string{"HF_HOME=" + filepath.Join(b.peers, "huggingface"), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "HOME=" + dir, "NO_COLOR=1"}
}

// tokenizer is the name of the tokenizer that peers.sh made, and of the model.
const tokenizer = "moonloop/words"
