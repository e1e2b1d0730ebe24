// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package encoding

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/moonloop/moonloop/encoding/internal/metadata"
)

// Config is the configuration of the extension. There is nothing to choose: equal spans become equal messages everywhere.
type Config struct{}

// NewFactory returns the factory of the extension "mooncake_encoding".
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, func() component.Config { return new(Config) }, create, metadata.ExtensionStability)
}

func create(_ context.Context, set extension.Settings, _ component.Config) (extension.Extension, error) {
	return newCoder(set)
}
