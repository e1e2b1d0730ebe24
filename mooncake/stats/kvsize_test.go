// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package stats

import (
	"strings"
	"testing"
)

// Sizes that the models' publishers, or serving engines, print.
func TestKVBytesOfConfig(t *testing.T) {
	for name, c := range map[string]struct {
		json  string
		dtype int64
		want  int64
	}{
		"Llama 3.1 8B: 128 KiB":                    {`{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16"}`, 0, 131_072},
		"Llama 3.1 8B in 8 bits: 64 KiB":           {`{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16"}`, 1, 65_536},
		"Qwen 2.5 7B: 56 KiB":                      {`{"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584, "torch_dtype": "bfloat16"}`, 0, 57_344},
		"latent attention: 61 layers, 576 numbers": {`{"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"}`, 0, 70_272},
		"multi-modal":                              {`{"text_config": {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "dtype": "float32"}}`, 0, 1024},
		"attention in one layer of four":           {`{"num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"], "num_attention_heads": 4, "head_dim": 16}`, 0, 256},
		"a sliding window":                         {`{"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4, "head_dim": 16}`, 0, 512},
	} {
		if got, err := KVBytesOfConfig(strings.NewReader(c.json), c.dtype); err != nil || got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, err, c.want)
		}
	}
	for json, want := range map[string]string{
		`{"num_hidden_layers": 2}`: "give the bytes per token",
		`not json`:                 "this is not a model's config.json",
		`{"num_hidden_layers": 2, "torch_dtype": "float5"}`:                               `data type "float5" is not known`,
		`{"num_hidden_layers": 2, "num_attention_heads": -4, "head_dim": 16}`:             "must be above 0",
		`{"num_hidden_layers": 9000000000000000000, "kv_lora_rank": 9000000000000000000}`: "may take at most 4294967296",
	} {
		if _, err := KVBytesOfConfig(strings.NewReader(json), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", json, err, want)
		}
	}
}
