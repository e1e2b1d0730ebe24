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

// metricsLimit bounds the look at the engine's metrics.
const metricsLimit = 5 * time.Second

// blockInMetrics matches the block size in vLLM's metrics.
var blockInMetrics = regexp.MustCompile(`(?m)^vllm:cache_config_info\{[^\n]*\bblock_size="(\d+)"`)

// askBlockSize asks the engine for the size of its cache's blocks; 0 where it does not say, since nothing depends on it but the
// prediction.
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
