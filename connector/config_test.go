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
		"capacities[1]: 7 is given twice": func(c *Config) { c.Capacities = []int64{7, 7} },
		"models[0]::model: is empty":      func(c *Config) { c.Models = []ModelConfig{{KVBytesPerToken: 1}} },
		`models[0]::model: is "m*8b"`:     func(c *Config) { c.Models = []ModelConfig{{Model: "m*8b", KVBytesPerToken: 1}} },
		`models[0]::model: is "m**"`:      func(c *Config) { c.Models = []ModelConfig{{Model: "m**", KVBytesPerToken: 1}} },
		"needs exactly one of":            func(c *Config) { c.Models = []ModelConfig{{Model: "m", KVBytesPerToken: 1, ConfigJSON: "x"}} },
		"kv_bytes_per_token: is -1":       func(c *Config) { c.Models = []ModelConfig{{Model: "m", KVBytesPerToken: -1}} },
		"dtype_bytes: is -1, and must be": func(c *Config) { c.Models = []ModelConfig{{Model: "m", ConfigJSON: "x", DTypeBytes: -1}} },
		"dtype_bytes: is 2, and has no":   func(c *Config) { c.Models = []ModelConfig{{Model: "m", KVBytesPerToken: 1, DTypeBytes: 2}} },
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

// The size of a token in a model's KV cache is read from the model's config.json when the connector starts.
func TestConfigJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	_, err := (&ModelConfig{Model: "m", ConfigJSON: path}).bytesPerToken()
	require.ErrorContains(t, err, "config_json")
	missing := createDefaultConfig().(*Config)
	missing.Models = []ModelConfig{{Model: "m", ConfigJSON: path}}
	require.ErrorContains(t, missing.Validate(), "config_json: open "+path, "a missing file is found before the start")
	require.NoError(t, os.WriteFile(path, []byte(`{"num_hidden_layers": 2}`), 0o600))
	_, err = (&ModelConfig{Model: "m", ConfigJSON: path}).bytesPerToken()
	require.ErrorContains(t, err, "config.json: it lacks num_hidden_layers")
	require.NoError(t, os.WriteFile(path, []byte(`{"num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 16}`), 0o600))
	got, err := (&ModelConfig{Model: "m", ConfigJSON: path, DTypeBytes: 1}).bytesPerToken()
	require.NoError(t, err)
	assert.EqualValues(t, 256, got)

	c, sink := start(t, func(c *Config) {
		c.SamplingRatio = 1
		c.Models = []ModelConfig{{Model: "m", ConfigJSON: path, DTypeBytes: 1}}
	})
	require.NoError(t, os.Remove(path))
	require.NoError(t, c.ConsumeTraces(t.Context(), spans(request{ids: []uint64{1}, tokens: 512, model: "m", response: "a", cached: -1})))
	assert.EqualValues(t, 512*256, points(t, c, sink)["mooncake.cache.potential.working_set.size m"], "the file is gone after the start")
}
