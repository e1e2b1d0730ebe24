// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/config/configretry"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/exporter/segment"
	"github.com/moonloop/moonloop/mooncake"
)

// Config configures the exporter. README.md describes the fields and what they guarantee.
type Config struct {
	// Directory is the folder for journals and traces. Required; created with mode 0700 if it does not exist.
	Directory string `mapstructure:"directory"`
	// Name is the beginning of the name of each file. Exporters with the same directory need different names.
	Name string `mapstructure:"name"`

	Rotation RotationConfig `mapstructure:"rotation"`
	// Grace is the time from the end of a segment until it is compiled, together with records of its requests that arrived since.
	Grace time.Duration `mapstructure:"grace"`
	// Fsync syncs each batch to disk before it is acknowledged.
	Fsync bool `mapstructure:"fsync"`

	// Compile makes a trace from each closed segment; the fields below configure it.
	Compile        bool                  `mapstructure:"compile"`
	Format         capture.Format        `mapstructure:"format"`
	Replays        capture.Replays       `mapstructure:"replays"`
	MissingTokens  capture.MissingTokens `mapstructure:"missing_tokens"`
	FollowEngine   capture.FollowEngine  `mapstructure:"follow_engine"`
	Graphs         capture.Graphs        `mapstructure:"graphs"`
	BlockSize      int                   `mapstructure:"block_size"`       // tokens, 1 to mooncake.MaxBlockSize
	MemoryLimitMiB int                   `mapstructure:"memory_limit_mib"` // above it, Compile uses temporary files

	Retention RetentionConfig `mapstructure:"retention"`

	// Sampling selects the part of production's requests that is recorded.
	Sampling decode.SamplingConfig `mapstructure:"sampling"`

	// MetricModels is the maximum number of models in metrics, in the order in which they appear, 0 to 1,000. The rest are "other". Default
	// 50.
	MetricModels int `mapstructure:"metric_models"`

	// TimeoutConfig applies to one attempt.
	TimeoutConfig exporterhelper.TimeoutConfig `mapstructure:",squash"`
	// QueueConfig is off by default: then a span is acknowledged when it is in the journal.
	QueueConfig configoptional.Optional[exporterhelper.QueueBatchConfig] `mapstructure:"sending_queue"`
	// BackOffConfig is by default on if there is a queue, and off otherwise.
	BackOffConfig configretry.BackOffConfig `mapstructure:"retry_on_failure"`
}

// RotationConfig says when a segment ends: when the first limit is reached.
type RotationConfig struct {
	MaxSizeMiB int `mapstructure:"max_size_mib"`
	// MaxAge is the age at which a segment ends, a second or more. If it divides a day, segments end at its multiples since midnight UTC.
	// 0 = never.
	MaxAge time.Duration `mapstructure:"max_age"`
}

// RetentionConfig says which closed segments are removed, with their traces. The zero RetentionConfig removes none.
type RetentionConfig struct {
	MaxBytes int64         `mapstructure:"max_bytes"`
	MaxAge   time.Duration `mapstructure:"max_age"`
}

const (
	defaultMemoryMiB = 128
	defaultModels    = 50
	maxModels        = 1000
	maxMiB           = 1 << 20
)

func createDefaultConfig() component.Config {
	retry := configretry.NewDefaultBackOffConfig()
	retry.Enabled = false
	retry.MaxElapsedTime = 0 // an acknowledged span is never given up
	return &Config{
		Name:           "mooncake",
		Rotation:       RotationConfig{MaxSizeMiB: segment.DefaultMaxBytes >> 20, MaxAge: segment.DefaultMaxAge},
		Grace:          segment.DefaultGrace,
		Fsync:          true,
		Compile:        true,
		Format:         capture.FormatFull,
		Replays:        capture.ReplaysSeparate,
		MissingTokens:  capture.MissingDrop,
		FollowEngine:   capture.FollowAuto,
		Graphs:         capture.GraphsAgents,
		BlockSize:      mooncake.BlockSize,
		MemoryLimitMiB: defaultMemoryMiB,
		Sampling:       decode.DefaultSamplingConfig(),
		MetricModels:   defaultModels,
		TimeoutConfig:  exporterhelper.NewDefaultTimeoutConfig(),
		QueueConfig:    configoptional.Default(exporterhelper.NewDefaultQueueConfig()),
		BackOffConfig:  retry,
	}
}

// Unmarshal reads the configuration. With a queue, senders do not try again, so retrying is on unless it is switched off.
func (c *Config) Unmarshal(conf *confmap.Conf) error {
	if err := conf.Unmarshal(c); err != nil {
		return err
	}
	if c.QueueConfig.HasValue() && !conf.IsSet("retry_on_failure::enabled") {
		c.BackOffConfig.Enabled = true
	}
	return nil
}

// Validate returns an error about the configuration, except for the sections that have a Validate of their own: the Collector calls it.
func (c *Config) Validate() error {
	opt := c.options()
	var errs []error
	if c.Rotation.MaxSizeMiB <= 0 || c.Rotation.MaxSizeMiB > maxMiB {
		errs = append(errs, fmt.Errorf("rotation::max_size_mib is %d: it must be between 1 and %d, which is a TiB", c.Rotation.MaxSizeMiB, maxMiB))
		opt.MaxBytes = 0 // shifted, it may have overflowed: a second error about it would mislead
	}
	errs = append(errs, opt.Validate())
	switch {
	case c.Format != capture.FormatFull && c.Format != capture.FormatMooncake:
		errs = append(errs, fmt.Errorf("format is %q: it must be full or mooncake", c.Format))
	case c.Replays != capture.ReplaysSeparate && c.Replays != capture.ReplaysDrop && c.Replays != capture.ReplaysOnly:
		errs = append(errs, fmt.Errorf("replays is %q: it must be separate, drop or only", c.Replays))
	case c.MissingTokens != capture.MissingDrop && c.MissingTokens != capture.MissingEstimate:
		errs = append(errs, fmt.Errorf("missing_tokens is %q: it must be drop or estimate", c.MissingTokens))
	case c.FollowEngine != capture.FollowAuto && c.FollowEngine != capture.FollowNever:
		errs = append(errs, fmt.Errorf("follow_engine is %q: it must be auto or never", c.FollowEngine))
	case c.Graphs != capture.GraphsAgents && c.Graphs != capture.GraphsAll && c.Graphs != capture.GraphsNever:
		errs = append(errs, fmt.Errorf("graphs is %q: it must be agents, all or never", c.Graphs))
	}
	if c.BlockSize <= 0 || c.BlockSize > mooncake.MaxBlockSize {
		errs = append(errs, fmt.Errorf("block_size is %d: it must be between 1 and %d tokens", c.BlockSize, mooncake.MaxBlockSize))
	}
	if c.MemoryLimitMiB <= 0 || c.MemoryLimitMiB > maxMiB {
		errs = append(errs, fmt.Errorf("memory_limit_mib is %d: it must be between 1 and %d, which is a TiB", c.MemoryLimitMiB, maxMiB))
	}
	if c.MetricModels < 0 || c.MetricModels > maxModels {
		errs = append(errs, fmt.Errorf("metric_models is %d: it must be between 0 and %d, because each model adds some ten time series", c.MetricModels, maxModels))
	}
	return errors.Join(errs...)
}

// options returns the options of segments.
func (c *Config) options() segment.Options {
	opt := segment.Options{
		Directory: c.Directory, Name: c.Name,
		MaxBytes: int64(c.Rotation.MaxSizeMiB) << 20, MaxAge: c.Rotation.MaxAge, Grace: c.Grace, NoSync: !c.Fsync,
		Retention: segment.Retention{MaxBytes: c.Retention.MaxBytes, MaxAge: c.Retention.MaxAge},
	}
	if c.Compile {
		opt.Compile = &capture.Options{
			Replays: c.Replays, Format: c.Format, MissingTokens: c.MissingTokens, FollowEngine: c.FollowEngine, Graphs: c.Graphs,
			BlockSize: c.BlockSize, Memory: c.MemoryLimitMiB << 20,
		}
	}
	return opt
}
