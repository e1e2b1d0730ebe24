// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"cmp"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"

	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/receiver/internal/metadata"
)

// load reads and validates a section of the test configuration.
func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	conf, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	require.NoError(t, err)
	sub, err := conf.Sub(component.NewIDWithName(metadata.Type, name).String())
	require.NoError(t, err)
	cfg := createDefaultConfig().(*Config)
	if err := sub.Unmarshal(cfg); err != nil {
		return cfg, err
	}
	return cfg, confmap.Validate(cfg)
}

func TestConfig(t *testing.T) {
	cfg, err := load(t, "")
	require.NoError(t, err)
	require.Equal(t, 512, cfg.Annotation.BlockSize)
	require.Equal(t, annotate.ContentDrop, cfg.Annotation.Content)
	require.Empty(t, cfg.Annotation.HashKey)
	require.True(t, cfg.Annotation.MessageEnds)
	require.Equal(t, "localhost:4317", cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint)
	require.Equal(t, "localhost:4318", cfg.OTLP.Protocols.HTTP.Get().ServerConfig.NetAddr.Endpoint)

	cfg, err = load(t, "all")
	require.NoError(t, err)
	require.Equal(t, 256, cfg.Annotation.BlockSize)
	require.Equal(t, configopaque.String("an example of a key, do not use it"), cfg.Annotation.HashKey)
	require.Equal(t, []string{"chat.id", "thread.id"}, cfg.Annotation.SessionKeys)
	require.Equal(t, []string{"tenant.name", "billing.*"}, cfg.Annotation.Deny)
	require.False(t, cfg.Annotation.MessageEnds)
	require.Equal(t, "127.0.0.1:14317", cfg.OTLP.Protocols.GRPC.Get().NetAddr.Endpoint)

	cfg, err = load(t, "default_limit")
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, cfg.Admission.ReadTimeout)
	require.EqualValues(t, 256<<20, cfg.Admission.bytes(&cfg.OTLP))

	cfg, err = load(t, "other_counts")
	require.NoError(t, err)
	require.Len(t, cfg.Annotation.Deny, 4)

	cfg, err = load(t, "orders")
	require.NoError(t, err)
	require.Equal(t, []annotate.ModelOrder{
		{Model: "mistral-small-24b", Order: "both_last"},
		{Model: "mistral*", Order: "system_last"},
		{Model: "arn:aws:bedrock:us-east-1::model/x", Order: "tools_last"},
		{Model: "*", Order: "as_sent"},
	}, cfg.Annotation.PromptOrder)

	cfg, err = load(t, "keep")
	require.NoError(t, err)
	require.Equal(t, annotate.ContentKeep, cfg.Annotation.Content)
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		section string
		want    []string // what the message says
	}{
		{"bad_block_size", []string{"block_size", "1 to", "512"}},
		{"bad_admission", []string{"request_limit_mib: is -1, and must be 1 to 1048576, or 0", "read_timeout: is 0s, and must be above 0s, up to 1h: leave it out for the default, 30s"}},
		{"bad_key", []string{"hash_key", "9 bytes", "openssl rand -hex 32"}},
		{"bad_content", []string{"content", "drop", "keep"}},
		{"bad_names", []string{"session_keys[0]", "session_keys[1]", "session_keys[2]", "deny[0]", "deny[1]", "deny[2]", "deny[3]"}},
		{"no_counts", []string{
			"deny[0]: covers gen_ai.usage.input_tokens", "deny[1]: covers gen_ai.usage.output_tokens", "deny[2]: covers gen_ai.usage.input_tokens",
			"deny[2]: covers gen_ai.usage.output_tokens", "deny[3]: covers gen_ai.usage.input_tokens",
		}},
		{"bad_orders", []string{
			"prompt_order[0]: model", "prompt_order[1]: model", `prompt_order[2]: order is "last"`, "as_sent, system_last, tools_last, both_last",
			`prompt_order[3]: order is ""`, `prompt_order[5]: has no effect after that of "o*"`, "message_ends",
		}},
		{"bad_order_key", []string{"modell"}},
		{"keep_and_deny", []string{"deny", "keep"}},
		{"no_protocol", []string{"at least one protocol"}},
		{"typo", []string{"blok_size"}},
	} {
		t.Run(c.section, func(t *testing.T) {
			_, err := load(t, c.section)
			require.Error(t, err)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error(), "too short", "a key is in an error")
		})
	}
}

// TestKeyFromEnvironment: a key that YAML would read as a number is used as its characters, and so is one with a $, as long as the Collector
// expands nothing in it. What it expands, moonloop warns of (hashKey in cmd/moonloop).
func TestKeyFromEnvironment(t *testing.T) {
	long := strings.Repeat("a", 64)
	t.Setenv("EXPANDED", "b")
	for key, want := range map[string]string{
		strings.Repeat("1234567890", 4): "", "0x" + strings.Repeat("ab", 20): "", strings.Repeat("1", 30) + "e5": "", long: "", long + "$a$": "",
		long + "$$a": long + "$a", long + "${env:EXPANDED}": long + "b",
	} {
		want := cmp.Or(want, key)
		t.Setenv("MOONLOOP_HASH_KEY", key)
		resolver, err := confmap.NewResolver(confmap.ResolverSettings{
			URIs:              []string{"yaml:hash_key: ${env:MOONLOOP_HASH_KEY}"},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory(), envprovider.NewFactory()},
		})
		require.NoError(t, err)
		conf, err := resolver.Resolve(t.Context())
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, conf.Unmarshal(cfg))
		require.Equal(t, configopaque.String(want), cfg.Annotation.HashKey)
		require.NotContains(t, cfg.Annotation.HashKey.String(), want)
	}
}
