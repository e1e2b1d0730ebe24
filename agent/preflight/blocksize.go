// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"regexp"
	"strconv"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// metricsLimit is the maximum time for reading the engine's metrics.
const metricsLimit = 5 * time.Second

// blockInMetrics matches the block size in vLLM's metrics.
var blockInMetrics = regexp.MustCompile(`(?m)^vllm:cache_config_info\{[^\n]*\bblock_size="(\d+)"`)

// askBlockSize asks the engine for the block size of its cache; 0 if it does not state one. Only the prediction depends on it.
func (p *preflight) askBlockSize(ctx context.Context) int {
	ctx, cancel := context.WithTimeout(ctx, metricsLimit)
	defer cancel()
	var text []byte
	if err := p.client.Get(ctx, "/metrics", &text); err != nil {
		return 0
	}
	m := blockInMetrics.FindSubmatch(text)
	if m == nil {
		return 0
	}
	if n, err := strconv.Atoi(string(m[1])); err == nil && n <= mooncake.MaxBlockSize {
		return n
	}
	return 0
}
