// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package processor

import (
	"go.opentelemetry.io/collector/component"

	"github.com/moonloop/moonloop/receiver/annotate"
)

// Config is the configuration of the processor.
type Config struct {
	// Annotation says what is done to telemetry.
	Annotation annotate.CollectorConfig `mapstructure:",squash"`
}

// Validate returns all that is wrong with the settings.
func (c *Config) Validate() error {
	_, err := c.Annotation.Config()
	return err
}

func createDefaultConfig() component.Config {
	return &Config{Annotation: annotate.DefaultCollectorConfig()}
}
