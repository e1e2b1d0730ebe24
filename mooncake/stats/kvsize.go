// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/moonloop/moonloop/internal/jsonrows"
)

// MaxKVBytesPerToken is the maximum size of a token in a KV cache: a thousand times that of the largest models of 2026.
const MaxKVBytesPerToken = 1 << 32

// maxModelConfig is the maximum size of a model's config.json, in bytes.
const maxModelConfig = 1 << 20

// KVBytesPerToken returns the size of a token in a model's KV cache, in bytes: keys and values (2), for each layer and each of its KV
// heads, headDim numbers of dtypeBytes. It fails unless all are above 0 and the result is at most [MaxKVBytesPerToken].
func KVBytesPerToken(layers, kvHeads, headDim, dtypeBytes int64) (int64, error) {
	return kvProduct(2, layers, kvHeads, headDim, dtypeBytes)
}

func kvProduct(factors ...int64) (int64, error) {
	product := 1.
	for _, f := range factors {
		if f <= 0 {
			return 0, errors.New("layers, KV heads, head dimension and bytes of a number must be above 0")
		}
		product *= float64(f)
	}
	if product > MaxKVBytesPerToken {
		return 0, fmt.Errorf("a token would take %.0f bytes, and may take at most %d", product, int64(MaxKVBytesPerToken))
	}
	return int64(product), nil
}

// KVBytesOfConfig returns the size of a token in a model's KV cache, in bytes, computed from the model's config.json as published on model
// hubs. Models with latent attention (kv_lora_rank) store one compressed vector for keys and values together. Layers without attention
// store nothing for a token; layers with a sliding window count in full. dtypeBytes is the size of a number in the cache; 0 = from the
// file, else 2.
func KVBytesOfConfig(from io.Reader, dtypeBytes int64) (int64, error) {
	type attention struct {
		Layers        int64    `json:"num_hidden_layers"`
		LayerTypes    []string `json:"layer_types"`
		Heads         int64    `json:"num_attention_heads"`
		KVHeads       int64    `json:"num_key_value_heads"`
		HeadDim       int64    `json:"head_dim"`
		Hidden        int64    `json:"hidden_size"`
		LatentRank    int64    `json:"kv_lora_rank"`
		LatentRope    int64    `json:"qk_rope_head_dim"`
		DType         string   `json:"torch_dtype"`
		DTypeNewer    string   `json:"dtype"`
		CacheDTypeKey string   `json:"kv_cache_dtype"`
	}
	var c struct {
		attention
		Text *attention `json:"text_config"` // of multi-modal models
	}
	if err := json.NewDecoder(io.LimitReader(from, maxModelConfig)).Decode(&c); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return 0, fmt.Errorf("this is not a model's config.json: %w; name the config.json of a model, or give the bytes per token", jsonrows.Explain(err))
	}
	a := c.attention
	if a.Layers == 0 && c.Text != nil {
		a = *c.Text
	}
	if dtypeBytes == 0 {
		name := cmp.Or(a.CacheDTypeKey, a.DTypeNewer, a.DType, c.DTypeNewer, c.DType)
		width, known := map[string]int64{
			"": 2, "auto": 2, "float16": 2, "bfloat16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "float8_e4m3fn": 1, "int8": 1,
		}[name]
		if !known {
			return 0, fmt.Errorf("its data type %q is not known; give the bytes per token", name)
		}
		dtypeBytes = width
	}
	layers := a.Layers
	if len(a.LayerTypes) > 0 {
		layers = 0
		for _, kind := range a.LayerTypes {
			if strings.HasSuffix(kind, "attention") && kind != "linear_attention" {
				layers++
			}
		}
	}
	if a.LatentRank > 0 && layers > 0 {
		return kvProduct(layers, a.LatentRank+a.LatentRope, dtypeBytes)
	}
	heads, dim := cmp.Or(a.KVHeads, a.Heads), a.HeadDim
	if dim == 0 && a.Heads > 0 {
		dim = a.Hidden / a.Heads
	}
	if layers == 0 || heads == 0 || dim == 0 {
		return 0, errors.New("it lacks num_hidden_layers, num_attention_heads, or both hidden_size and head_dim; give the bytes per token")
	}
	return KVBytesPerToken(layers, heads, dim, dtypeBytes)
}
