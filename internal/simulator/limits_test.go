// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
)

// TestLimitsAtTheirMaximum: a limit at its maximum costs only what is used of it.
func TestLimitsAtTheirMaximum(t *testing.T) {
	for name, config := range map[string]Config{
		"running":            {MaxRunning: math.MaxInt},
		"waiting":            {MaxWaiting: math.MaxInt, MaxRunning: 1},
		"batch":              {Latency: Latency{MaxBatch: math.MaxInt}},
		"model length":       {MaxModelLen: math.MaxInt},
		"cache blocks":       {Cache: Cache{Blocks: math.MaxInt32 - 2}},
		"block size":         {Cache: Cache{BlockSize: maxBlockSize}},
		"template":           {Template: &Template{PerMessage: maxTemplate, PerPrompt: maxTemplate}},
		"tokens of a chunk":  {TokensPerChunk: math.MaxInt},
		"tokens of a reply":  {DefaultMaxTokens: math.MaxInt},
		"body":               {BodyLimit: math.MaxInt64},
		"time of a body":     {BodyTimeout: math.MaxInt64},
		"records":            {Record: Recording{Keep: math.MaxInt, KeepBytes: math.MaxInt64}},
		"tokens until fault": {Faults: Faults{After: math.MaxInt}},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, url := serve(t, config)
			for _, stream := range []string{"true", "false"} {
				a, text := post(t, url+"/v1/chat/completions", `{"model": "m", "max_tokens": 20, "stream": `+stream+`, "messages": [{"role": "user", "content": "a b c"}]}`)
				if a.StatusCode != http.StatusOK || !strings.Contains(text, "finish_reason") {
					t.Errorf("stream %s: status %d: %.200s", stream, a.StatusCode, text)
				}
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
				t.Errorf("%d MiB were allocated for two short replies", grown>>20)
			}
		})
	}
}
