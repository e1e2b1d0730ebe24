// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
)

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
		sub, err := conf.Sub("receivers::mooncake")
		require.NoError(t, err)
		cfg := createDefaultConfig().(*Config)
		require.NoError(t, sub.Unmarshal(cfg))
		require.NoError(t, confmap.Validate(cfg))
	}
}
