// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConfigSaysWhatIsWrong(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"interval: is 0s":                 func(c *Config) { c.Interval = 0 },
		"window: is 1s":                   func(c *Config) { c.Window = time.Second },
		"retention: is 1m0s":              func(c *Config) { c.Retention = time.Minute },
		"sampling_ratio: is 2":            func(c *Config) { c.SamplingRatio = 2 },
		"max_blocks: is 5":                func(c *Config) { c.MaxBlocks = 5 },
		"max_streams: is 0":               func(c *Config) { c.MaxStreams = 0 },
		"top_prefixes: is -1":             func(c *Config) { c.TopPrefixes = -1 },
		"capacities[0]: is 0":             func(c *Config) { c.Capacities = []int64{0} },
		"capacities[1]: 7 is there twice": func(c *Config) { c.Capacities = []int64{7, 7} },
		"models[0]::model: is empty":      func(c *Config) { c.Models = []ModelConfig{{KVBytesPerToken: 1}} },
		"needs exactly one of":            func(c *Config) { c.Models = []ModelConfig{{Model: "m", KVBytesPerToken: 1, ConfigJSON: "x"}} },
		"kv_bytes_per_token: is -1":       func(c *Config) { c.Models = []ModelConfig{{Model: "m", KVBytesPerToken: -1}} },
		"kv_heads 0":                      func(c *Config) { c.Models = []ModelConfig{{Model: "m", Layers: 3}} },
		"and may take at most 4294967296": func(c *Config) {
			c.Models = []ModelConfig{{Model: "m", Layers: 1 << 40, KVHeads: 1 << 40, HeadDim: 1 << 40}}
		},
	} {
		cfg := createDefaultConfig().(*Config)
		change(cfg)
		assert.ErrorContains(t, cfg.Validate(), want)
	}
	assert.NoError(t, createDefaultConfig().(*Config).Validate())
}

// Sizes that the models' publishers, or serving engines, print.
func TestBytesPerToken(t *testing.T) {
	for name, c := range map[string]struct {
		json string
		want float64
	}{
		"Llama 3.1 8B: 128 KiB":  {`{"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096, "torch_dtype": "bfloat16"}`, 131_072},
		"Qwen 2.5 7B: 56 KiB":    {`{"num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "hidden_size": 3584, "torch_dtype": "bfloat16"}`, 57_344},
		"latent: 61 layers, 576": {`{"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "torch_dtype": "bfloat16"}`, 70_272},
		"multi-modal":            {`{"text_config": {"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16, "dtype": "float32"}}`, 1024},
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(path, []byte(c.json), 0o600))
		got, err := (&ModelConfig{Model: "m", ConfigJSON: path}).bytesPerToken()
		require.NoError(t, err, name)
		assert.InDelta(t, c.want, got, 0, name)
	}
	for json, want := range map[string]string{
		`{"num_hidden_layers": 2}`: "set kv_bytes_per_token",
		`not json`:                 "is not a model's config.json",
		`{"num_hidden_layers": 2, "torch_dtype": "float5"}`: `data type "float5" is not known`,
	} {
		path := filepath.Join(t.TempDir(), "config.json")
		require.NoError(t, os.WriteFile(path, []byte(json), 0o600))
		_, err := (&ModelConfig{Model: "m", ConfigJSON: path}).bytesPerToken()
		assert.ErrorContains(t, err, want)
	}
}
