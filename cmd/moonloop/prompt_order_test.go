// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// predicted returns the cached tokens that a trace predicts for each row on an engine with blocks of 16, those that production reported,
// and the length of each prompt.
func predicted(t *testing.T, name string) (tokens, observed, prompts []int64) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := mooncake.NewReader(f, mooncake.ReaderOptions{Name: name, FineBlockSize: 16})
	p := stats.NewPredictor(stats.PredictorOptions{FineBlockSize: 16, EngineBlock: 16})
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return tokens, observed, prompts
		}
		if err != nil {
			t.Fatal(err)
		}
		hit, ok := p.Predict(row)
		if !ok {
			t.Fatalf("%s: a row of which nothing is known", name)
		}
		tokens, observed, prompts = append(tokens, hit.Whole), append(observed, row.Observed.CachedTokens.V), append(prompts, row.InputLength.V)
	}
}

// pointsAbove returns by how many points a trace's prediction is above what the engine had cached.
func pointsAbove(tokens, observed, prompts []int64) float64 {
	var more, all int64
	for i := range tokens {
		more, all = more+tokens[i]-observed[i], all+prompts[i]
	}
	return 100 * float64(more) / float64(all)
}

// TestPromptOrder captures production traffic with too few requests to prove the order of the engine's template. If the order is
// configured, the trace predicts what the engine had cached, from the first request on.
func TestPromptOrder(t *testing.T) {
	t.Parallel()
	config := simulator.VLLM()
	config.Cache.BlockSize, config.TokensPerChunk = 16, 16
	config.Template = &simulator.Template{PerMessage: 5, PerPrompt: 5, SystemLast: true}
	l := &realLoop{
		folder: t.TempDir(), config: config, block: 16, conversations: 4,
		args: []string{"--prompt-order", "other=as_sent", "--prompt-order", "*=system_last", "--keep-journal"},
	}
	l.capture(t, 7)
	trace := filepath.Join(l.folder, "prod.jsonl")
	tokens, observed, prompts := predicted(t, trace)
	if len(tokens) != 16 {
		t.Fatalf("%d rows", len(tokens))
	}
	for i := range tokens {
		if d := tokens[i] - observed[i]; d < -16 || d > 16 {
			t.Errorf("row %d of %d tokens: %d cached, predicted %d", i, prompts[i], observed[i], tokens[i])
		}
	}
	sidecar, err := os.ReadFile(filepath.Join(l.folder, "prod.meta.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(sidecar, []byte("system_last")) {
		t.Errorf("the sidecar does not say the order:\n%s", sidecar)
	}

	// The same journal in telemetry's order: the order makes the difference.
	var stdout, stderr bytes.Buffer
	never := filepath.Join(l.folder, "never.jsonl")
	if status := run(t.Context(), []string{"compile", filepath.Join(l.folder, "prod.journal"), "--out", never, "--follow-engine", "never"}, strings.NewReader(""), &stdout, &stderr); status != exitOK {
		t.Fatalf("exit status %d\n%s%s", status, &stdout, &stderr)
	}
	told, without := pointsAbove(tokens, observed, prompts), pointsAbove(predicted(t, never))
	t.Logf("%d requests: %+.2f points, in telemetry's order %+.2f", len(tokens), told, without)
	if without < 10 {
		t.Errorf("%+.2f points in telemetry's order: the test proves nothing", without)
	}
}
