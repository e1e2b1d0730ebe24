// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxConfigJSON bounds a model's config.json, in bytes.
const maxConfigJSON = 1 << 20

// maxKVBytes bounds what one token takes in a KV cache: a thousand times what the largest models of 2026 take.
const maxKVBytes = 1 << 32

// bytesPerToken returns how many bytes the KV cache of a model takes for each token: keys and values (2), for each layer and each
// of its KV heads, HeadDim numbers of DTypeBytes.
func (m *ModelConfig) bytesPerToken() (float64, error) {
	g := *m
	if m.ConfigJSON != "" {
		if err := g.readConfigJSON(); err != nil {
			return 0, err
		}
	}
	if g.KVBytesPerToken != 0 {
		if g.KVBytesPerToken < 0 || g.KVBytesPerToken > maxKVBytes {
			return 0, fmt.Errorf("kv_bytes_per_token: is %d, and must be 1 to %d", g.KVBytesPerToken, int64(maxKVBytes))
		}
		return float64(g.KVBytesPerToken), nil
	}
	if g.Layers <= 0 || g.KVHeads <= 0 || g.HeadDim <= 0 || g.DTypeBytes < 0 {
		return 0, fmt.Errorf("model %q: layers %d, kv_heads %d, head_dim %d and dtype_bytes %d must be above 0 (dtype_bytes may be left out for 2)",
			m.Model, g.Layers, g.KVHeads, g.HeadDim, g.DTypeBytes)
	}
	size := 2 * float64(g.Layers) * float64(g.KVHeads) * float64(g.HeadDim) * float64(cmp.Or(g.DTypeBytes, 2))
	if size > maxKVBytes {
		return 0, fmt.Errorf("model %q: its KV cache would take %.0f bytes for each token, and may take at most %d", m.Model, size, int64(maxKVBytes))
	}
	return size, nil
}

// readConfigJSON takes the geometry from a model's config.json. Models with latent attention (kv_lora_rank) store one compressed
// vector for keys and values together.
func (m *ModelConfig) readConfigJSON() error {
	f, err := os.Open(m.ConfigJSON)
	if err != nil {
		return fmt.Errorf("config_json: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	type attention struct {
		Layers        int64  `json:"num_hidden_layers"`
		Heads         int64  `json:"num_attention_heads"`
		KVHeads       int64  `json:"num_key_value_heads"`
		HeadDim       int64  `json:"head_dim"`
		Hidden        int64  `json:"hidden_size"`
		LatentRank    int64  `json:"kv_lora_rank"`
		LatentRope    int64  `json:"qk_rope_head_dim"`
		DType         string `json:"torch_dtype"`
		DTypeNewer    string `json:"dtype"`
		CacheDTypeKey string `json:"kv_cache_dtype"`
	}
	var c struct {
		attention
		Text *attention `json:"text_config"` // of multi-modal models
	}
	if err := json.NewDecoder(io.LimitReader(f, maxConfigJSON)).Decode(&c); err != nil {
		return fmt.Errorf("config_json: %s is not a model's config.json: %w", m.ConfigJSON, err)
	}
	a := c.attention
	if a.Layers == 0 && c.Text != nil {
		a = *c.Text
	}
	width, known := map[string]int64{
		"": 2, "auto": 2, "float16": 2, "bfloat16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1, "int8": 1,
	}[cmp.Or(a.CacheDTypeKey, a.DTypeNewer, a.DType, c.DTypeNewer, c.DType)]
	if !known {
		return fmt.Errorf("config_json: %s: data type %q is not known; set kv_bytes_per_token", m.ConfigJSON, cmp.Or(a.CacheDTypeKey, a.DTypeNewer, a.DType))
	}
	m.DTypeBytes = cmp.Or(m.DTypeBytes, width)
	if a.LatentRank > 0 {
		m.KVBytesPerToken = a.Layers * (a.LatentRank + a.LatentRope) * m.DTypeBytes
		return nil
	}
	m.Layers, m.KVHeads, m.HeadDim = a.Layers, cmp.Or(a.KVHeads, a.Heads), a.HeadDim
	if m.HeadDim == 0 && a.Heads > 0 {
		m.HeadDim = a.Hidden / a.Heads
	}
	if m.Layers == 0 || m.KVHeads == 0 || m.HeadDim == 0 {
		return fmt.Errorf("config_json: %s has no num_hidden_layers, num_attention_heads and hidden_size or head_dim; set kv_bytes_per_token", m.ConfigJSON)
	}
	return nil
}
