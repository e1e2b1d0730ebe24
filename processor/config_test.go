// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"

	"github.com/moonloop/moonloop/processor/internal/metadata"
	"github.com/moonloop/moonloop/receiver"
	"github.com/moonloop/moonloop/receiver/annotate"
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
	require.Equal(t, annotate.DefaultCollectorConfig(), cfg.Annotation)

	cfg, err = load(t, "all")
	require.NoError(t, err)
	require.Equal(t, annotate.CollectorConfig{
		BlockSize: 256, HashKey: configopaque.String("an example of a key, do not use it"), Content: annotate.ContentDrop,
		SessionKeys: []string{"chat.id", "thread.id"}, Deny: []string{"tenant.name", "billing.*"}, MessageEnds: true,
		PromptOrder: []annotate.ModelOrder{{Model: "mistral*", Order: "system_last"}},
	}, cfg.Annotation)

	cfg, err = load(t, "ends")
	require.NoError(t, err)
	require.False(t, cfg.Annotation.MessageEnds)

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
		{"bad_key", []string{"hash_key", "9 bytes", "openssl rand -hex 32"}},
		{"bad_content", []string{"content", "drop", "keep"}},
		{"bad_names", []string{"session_keys[0]", "session_keys[1]", "deny[0]", "deny[1]"}},
		{"no_counts", []string{"deny[0]", "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"}},
		{"keep_and_deny", []string{"deny", "keep"}},
		{"typo", []string{"blok_size"}},
		{"receivers", []string{"protocols"}},
	} {
		t.Run(c.section, func(t *testing.T) {
			_, err := load(t, c.section)
			require.Error(t, err)
			for _, part := range c.want {
				require.ErrorContains(t, err, part)
			}
			require.NotContains(t, err.Error(), "too short", "a key is in an error")
			require.NotContains(t, strings.ToLower(err.Error()), "annotation:", "no setting has this name")
		})
	}
}

// TestSettingsOfTheReceiver: receiver and processor have the same settings for annotation.
func TestSettingsOfTheReceiver(t *testing.T) {
	field, ok := reflect.TypeFor[receiver.Config]().FieldByName("Annotation")
	require.True(t, ok)
	require.Equal(t, reflect.TypeFor[Config]().Field(0).Type, field.Type)
	require.Equal(t, reflect.TypeFor[Config]().Field(0).Tag, field.Tag)
}

var yamlBlocks = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestReadme: the examples in README.md work.
func TestReadme(t *testing.T) {
	t.Setenv("MOONLOOP_HASH_KEY", strings.Repeat("k", 64))
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := yamlBlocks.FindAllSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		resolver, err := confmap.NewResolver(confmap.ResolverSettings{
			URIs:              []string{"yaml:" + string(block[1])},
			ProviderFactories: []confmap.ProviderFactory{yamlprovider.NewFactory(), envprovider.NewFactory()},
		})
		require.NoError(t, err)
		conf, err := resolver.Resolve(t.Context())
		require.NoError(t, err)
		sub, err := conf.Sub("processors::mooncake")
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		require.NoError(t, confmap.Validate(cfg))
	}
}
