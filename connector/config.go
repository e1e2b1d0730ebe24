// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// Config configures the connector. README.md describes the fields.
type Config struct {
	// Interval is the time between two exports of the metrics, 1 s to 1 h. Default 30 s.
	Interval time.Duration `mapstructure:"interval"`
	// Window is the time over which hit ratios are computed, from Interval to 24 h. Default 1 h.
	Window time.Duration `mapstructure:"window"`
	// Retention is how long an unused block is remembered: the meaning of "infinite". From Window to 30 days. Default 24 h.
	Retention time.Duration `mapstructure:"retention"`

	// SamplingRatio is the initial share of blocks in the sample, above 0, at most 1. Default 0.1.
	SamplingRatio float64 `mapstructure:"sampling_ratio"`
	// MaxBlocks is the maximum number of blocks in the sample of one model (and tenant); the ratio is halved when it is reached. 1,024 to
	// 16,777,216. Default 32,768: more blocks cost processor time and improve little.
	MaxBlocks int `mapstructure:"max_blocks"`
	// MaxStreams is the maximum number of models, or of pairs of model and tenant, that are analysed; requests of others are only counted. A
	// request that is not analysed takes no place. 1 to 1,000. Default 20.
	MaxStreams int `mapstructure:"max_streams"`

	// Capacities are sizes of caches, in tokens of at least 1. The infinite cache is always added.
	Capacities []int64 `mapstructure:"capacities"`
	// TopPrefixes is the number of shared prefixes that are reported, 0 to 100. Default 10.
	TopPrefixes int `mapstructure:"top_prefixes"`
	// TenantAttribute is the resource attribute with the tenant. Empty: tenants are not distinguished.
	TenantAttribute string `mapstructure:"tenant_attribute"`
	// Replays includes the requests of replays, which the figures otherwise exclude.
	Replays bool `mapstructure:"replays"`

	// Models give the memory of models' KV caches. The first match counts.
	Models []ModelConfig `mapstructure:"models"`
}

// ModelConfig gives the size of a token in a model's KV cache, in bytes: directly, by the model's geometry, or by its config.json.
type ModelConfig struct {
	// Model is the requested model, or that of the reply. A trailing * matches all names with that beginning.
	Model string `mapstructure:"model"`
	// KVBytesPerToken is the size, above 0.
	KVBytesPerToken int64 `mapstructure:"kv_bytes_per_token"`
	// Layers, KVHeads, HeadDim and DTypeBytes give the size as 2 * layers * kv_heads * head_dim * dtype_bytes. All are above 0; DTypeBytes is
	// 2 by default, or, with ConfigJSON, that of the file.
	Layers     int64 `mapstructure:"layers"`
	KVHeads    int64 `mapstructure:"kv_heads"`
	HeadDim    int64 `mapstructure:"head_dim"`
	DTypeBytes int64 `mapstructure:"dtype_bytes"`
	// ConfigJSON is the path of the model's config.json, as published on model hubs.
	ConfigJSON string `mapstructure:"config_json"` // read when the configuration is validated, and at the start
}

const day = 24 * time.Hour

func createDefaultConfig() component.Config {
	return &Config{
		Interval: 30 * time.Second, Window: time.Hour, Retention: day,
		SamplingRatio: 0.1, MaxBlocks: 1 << 15, MaxStreams: 20, TopPrefixes: 10,
		Capacities: []int64{65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864},
	}
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Validate returns all errors of the settings.
func (c *Config) Validate() error {
	var all []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(format, args...))
		}
	}
	check(c.Interval >= time.Second && c.Interval <= time.Hour, "interval: is %s, and must be 1s to 1h", c.Interval)
	check(c.Window >= c.Interval && c.Window <= day, "window: is %s, and must be at least the interval (%s), up to 24h", c.Window, c.Interval)
	check(c.Retention >= c.Window && c.Retention <= 30*day, "retention: is %s, and must be at least the window (%s), up to 720h", c.Retention, c.Window)
	check(c.SamplingRatio > 0 && c.SamplingRatio <= 1, "sampling_ratio: is %v, and must be above 0, up to 1", c.SamplingRatio)
	check(c.MaxBlocks >= 1024 && c.MaxBlocks <= 1<<24, "max_blocks: is %d, and must be 1024 to 16777216", c.MaxBlocks)
	check(c.MaxStreams >= 1 && c.MaxStreams <= 1000, "max_streams: is %d, and must be 1 to 1000", c.MaxStreams)
	check(c.TopPrefixes >= 0 && c.TopPrefixes <= 100, "top_prefixes: is %d, and must be 0 to 100", c.TopPrefixes)
	check(len(c.Capacities) <= 50, "capacities: are %d, and must be at most 50: each is a time series for each model", len(c.Capacities))
	for i, n := range c.Capacities {
		check(n >= 1, "capacities[%d]: is %d, and must be at least 1 token", i, n)
		check(slices.Index(c.Capacities, n) == i, "capacities[%d]: %d is given twice", i, n)
	}
	for i, m := range c.Models {
		if err := m.validate(); err != nil {
			all = append(all, fmt.Errorf("models[%d]::%w", i, err))
		}
	}
	return errors.Join(all...)
}

func (m *ModelConfig) validate() error {
	ways := 0
	if m.KVBytesPerToken != 0 {
		ways++
	}
	if m.Layers != 0 || m.KVHeads != 0 || m.HeadDim != 0 {
		ways++
	}
	if m.ConfigJSON != "" {
		ways++
	}
	switch {
	case strings.TrimSuffix(m.Model, "*") == "" && m.Model != "*":
		return errors.New(`model: is empty; name a model, or "*" for all`)
	case strings.Contains(strings.TrimSuffix(m.Model, "*"), "*"):
		return fmt.Errorf("model: is %.80q, and must be the name of a model, or the beginning of names and one * after it", m.Model)
	case ways != 1:
		return fmt.Errorf("model %q: needs exactly one of kv_bytes_per_token, layers with kv_heads and head_dim, or config_json", m.Model)
	case m.DTypeBytes < 0:
		return fmt.Errorf("model %q: dtype_bytes: is %d, and must be above 0: leave it out for the default", m.Model, m.DTypeBytes)
	case m.DTypeBytes != 0 && m.KVBytesPerToken != 0:
		return fmt.Errorf("model %q: dtype_bytes: is %d, and has no effect with kv_bytes_per_token: leave one of the two out", m.Model, m.DTypeBytes)
	}
	_, err := m.bytesPerToken()
	return err
}

// matches reports whether the setting applies to a model.
func (m *ModelConfig) matches(model string) bool {
	if prefix, ok := strings.CutSuffix(m.Model, "*"); ok {
		return strings.HasPrefix(model, prefix)
	}
	return m.Model == model
}

// bytesPerToken returns how many bytes the KV cache of the model takes for each token.
func (m *ModelConfig) bytesPerToken() (size int64, err error) {
	switch {
	case m.ConfigJSON != "":
		f, err := atomicfile.Open(m.ConfigJSON)
		if err != nil {
			return 0, fmt.Errorf("config_json: %w", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		if size, err = stats.KVBytesOfConfig(f, m.DTypeBytes); err != nil {
			return 0, fmt.Errorf("config_json: %s: %w (kv_bytes_per_token)", m.ConfigJSON, err)
		}
		return size, nil
	case m.KVBytesPerToken != 0:
		if m.KVBytesPerToken < 0 || m.KVBytesPerToken > stats.MaxKVBytesPerToken {
			return 0, fmt.Errorf("kv_bytes_per_token: is %d, and must be 1 to %d", m.KVBytesPerToken, int64(stats.MaxKVBytesPerToken))
		}
		return m.KVBytesPerToken, nil
	}
	if size, err = stats.KVBytesPerToken(m.Layers, m.KVHeads, m.HeadDim, cmp.Or(m.DTypeBytes, 2)); err != nil {
		return 0, fmt.Errorf("model %q: layers %d, kv_heads %d, head_dim %d, dtype_bytes %d: %w", m.Model, m.Layers, m.KVHeads, m.HeadDim, m.DTypeBytes, err)
	}
	return size, nil
}
