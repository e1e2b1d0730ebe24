// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/internal/testport"
)

// TestAcceptanceVLLM is the loop of engine_test.go on vLLM. Without a GPU its blocks are multiples of 32 tokens.
func TestAcceptanceVLLM(t *testing.T) {
	home, dir := setting(t, "MOONLOOP_VLLM"), artefacts(t)
	drawn := seeds(t)
	var table []string
	for _, run := range []struct {
		name     string
		block    int
		args     []string
		seeds    []string
		variants []variant
	}{
		{"vLLM, blocks of 32", 32, nil, drawn, loopBounds(1)},
		{"vLLM, blocks of 128", 128, nil, drawn, loopBounds(1)},
		// The trace follows the template. No reply is carried, since the prefix that the engine has cached contains none.
		{
			"vLLM, blocks of 32, system text last", 32,
			[]string{"--chat-template", "vllm/last.jinja"},
			drawn,
			[]variant{{name: "replay", bounds: bounds{points: 2, near: 0.9, perMean: 4}}},
		},
	} {
		t.Run(strings.NewReplacer(", ", "_", " ", "-").Replace(run.name), func(t *testing.T) {
			folder := filepath.Join(dir, filepath.Base(t.Name()))
			mkdir(t, folder)
			engine := startVLLM(t, home, folder, run.name, run.block, run.args...)
			for _, seed := range run.seeds {
				t.Run("seed-"+seed, func(t *testing.T) {
					table = append(table, engine.loop(t, home, filepath.Join(folder, seed), seed, run.variants)...)
				})
			}
		})
	}
	showTable(t, table)
}

// startVLLM starts an engine and waits until it has loaded its model.
func startVLLM(t *testing.T, home, dir, name string, block int, args ...string) *realEngine {
	t.Helper()
	port := testport.Port(t)
	e := &realEngine{name: name, url: "http://127.0.0.1:" + port, block: int64(block), conversations: 20, atOnce: 10}
	server := startGroup(t, dir, "vllm", []string{
		"VLLM_CPU_KVCACHE_SPACE=2", "OMP_NUM_THREADS=1", "HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1", "DO_NOT_TRACK=1",
		"VLLM_SERVER_DEV_MODE=1", // which has reset_prefix_cache
	}, filepath.Join(home, "server", "bin", "vllm"), append([]string{
		"serve", filepath.Join(home, "model"), "--served-model-name", "tiny",
		"--host", "127.0.0.1", "--port", port, "--enable-prefix-caching", "--enable-prompt-tokens-details", "--enforce-eager",
		"--max-model-len", "16384", "--max-num-seqs", "64", "--block-size", strconv.Itoa(block),
	}, args...)...)
	t.Cleanup(func() { server.stop(t) })
	e.empty = func(t *testing.T) {
		t.Helper()
		if _, err := e.ask(t.Context(), http.MethodPost, "/reset_prefix_cache"); err != nil {
			t.Fatal(err)
		}
	}
	e.hits = func(t *testing.T) int64 {
		t.Helper()
		return e.counter(t, "vllm:prefix_cache_hits_total")
	}
	e.ready(t, server)
	return e
}
