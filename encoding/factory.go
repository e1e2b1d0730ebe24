// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/moonloop/moonloop/encoding/internal/metadata"
	"github.com/moonloop/moonloop/exporter/decode"
)

// Config is the configuration of the extension. With equal configurations, equal spans become equal messages.
type Config struct {
	// Sampling selects the part of production's requests that is written into messages.
	Sampling decode.SamplingConfig `mapstructure:"sampling"`
}

// NewFactory returns the factory of the extension "mooncake_encoding".
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

func createDefaultConfig() component.Config {
	return &Config{Sampling: decode.DefaultSamplingConfig()}
}

func create(_ context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
	return newCoder(set, cfg.(*Config))
}
