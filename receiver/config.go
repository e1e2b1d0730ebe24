// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"errors"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configopaque"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Config is the configuration of the receiver: that of the stock OTLP receiver, and what is done to telemetry.
type Config struct {
	// OTLP says where to listen: protocols, with localhost:4317 for gRPC and localhost:4318 for HTTP where they are
	// named without an endpoint.
	OTLP otlpreceiver.Config `mapstructure:",squash"`

	// BlockSize is the number of tokens per block id, 1 to [annotate.MaxBlockSize]. Default 512.
	BlockSize int `mapstructure:"block_size"`
	// HashKey is the secret under which prompts and session ids are hashed, as it stands: see [annotate.ParseKey].
	// Empty means a random one for this process.
	HashKey configopaque.String `mapstructure:"hash_key"`
	// Content says what becomes of text: drop, the default, or keep.
	Content annotate.Policy `mapstructure:"content"`
	// SessionKeys are attributes that hold a session id, best first, by their full names. They come before those that are
	// known.
	SessionKeys []string `mapstructure:"session_keys"`
	// Deny are attributes that are removed from all spans, metrics and logs, beside those that are known. A trailing *
	// matches all names that begin so.
	Deny []string `mapstructure:"deny"`
}

var (
	_ component.Config  = (*Config)(nil)
	_ confmap.Validator = (*Config)(nil)
)

// Validate returns all that is wrong with the receiver's own settings. Those of OTLP are validated with them.
func (c *Config) Validate() error {
	config, err := c.annotation()
	if c.BlockSize == 0 {
		config.BlockSize = -1 // the default is written out
	}
	return errors.Join(err, config.Validate())
}

// annotation returns the configuration of the annotator.
func (c *Config) annotation() (annotate.Config, error) {
	key, err := annotate.ParseKey(string(c.HashKey))
	return annotate.Config{
		BlockSize:   c.BlockSize,
		Key:         key,
		Content:     c.Content,
		SessionKeys: c.SessionKeys,
		Deny:        c.Deny,
	}, err
}

func createDefaultConfig() component.Config {
	otlp := otlpreceiver.NewFactory().CreateDefaultConfig().(*otlpreceiver.Config) //nolint:forcetypeassert // its own type
	return &Config{OTLP: *otlp, BlockSize: mooncake.BlockSize, Content: annotate.ContentDrop}
}
