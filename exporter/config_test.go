// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/confmaptest"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/moonloop/moonloop/mooncake"
)

// load reads a section of testdata/config.yaml.
func load(t *testing.T, name string) *Config {
	t.Helper()
	all, err := confmaptest.LoadConf(filepath.Join("testdata", "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	sub, err := all.Sub(name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := createDefaultConfig().(*Config)
	if err := sub.Unmarshal(cfg); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestConfig(t *testing.T) {
	storage := component.MustNewID("file_storage")
	for _, c := range []struct {
		name string
		want func(*Config)
	}{
		{"mooncake", func(c *Config) { c.Directory = "/var/lib/moonloop" }},
		{"mooncake/all", func(c *Config) {
			queue := exporterhelper.NewDefaultQueueConfig()
			queue.QueueSize = 5000
			retry := c.BackOffConfig
			*c = Config{
				Directory: "/data/journal", Name: "gateway-1", Rotation: RotationConfig{64, 15 * time.Minute}, Grace: 30 * time.Second,
				Compile: true, Format: "mooncake", Replays: "only", MissingTokens: "estimate", FollowEngine: "never", Graphs: "never", BlockSize: 256, MemoryLimitMiB: 512, MetricModels: 7, Sampling: createDefaultConfig().(*Config).Sampling,
				Retention: RetentionConfig{10e9, 168 * time.Hour}, TimeoutConfig: exporterhelper.TimeoutConfig{Timeout: 20 * time.Second},
				QueueConfig: configoptional.Some(queue), BackOffConfig: retry,
			}
		}},
		{"mooncake/storage", func(c *Config) {
			c.Directory = "/data/journal"
			queue := exporterhelper.NewDefaultQueueConfig()
			queue.StorageID, queue.NumConsumers, queue.BlockOnOverflow = &storage, 4, true
			c.QueueConfig, c.BackOffConfig.Enabled = configoptional.Some(queue), true
		}},
		{"mooncake/memory", func(c *Config) {
			c.Directory, c.Fsync = "/data/journal", false
			c.QueueConfig, c.BackOffConfig.Enabled = configoptional.Some(exporterhelper.NewDefaultQueueConfig()), true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := load(t, c.name), createDefaultConfig().(*Config)
			c.want(want)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(configoptional.Optional[exporterhelper.QueueBatchConfig]{},
				configoptional.Optional[exporterhelper.BatchConfig]{}, component.ID{}, component.Type{}, exporterhelper.RequestSizerType{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := confmap.Validate(got); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []struct {
		key   string
		value any
		want  string
	}{
		{"directory", "", "directory is missing"},
		{"name", "a/b", "begins the names of files"},
		{"rotation::max_size_mib", 0, "max_size_mib is 0"},
		{"rotation::max_size_mib", 1<<20 + 1, "between 1 and 1048576"},
		{"rotation::max_size_mib", 1 << 43, "max_size_mib is 8796093022208"},  // shifted it is below 0
		{"rotation::max_size_mib", 1 << 44, "max_size_mib is 17592186044416"}, // shifted it is 0
		{"rotation::max_age", "1ms", "a second or more"},
		{"grace", "2h", "grace period is 2h0m0s"},
		{"format", "csv", "must be full or mooncake"},
		{"replays", "some", "must be separate, drop or only"},
		{"missing_tokens", "guess", "must be drop or estimate"},
		{"follow_engine", "always", "must be auto or never"},
		{"graphs", "some", "must be agents, all or never"},
		{"block_size", 0, "block_size is 0"},
		{"block_size", mooncake.MaxBlockSize + 1, "between 1 and 16777216 tokens"}, // no sidecar may say it
		{"memory_limit_mib", -1, "memory_limit_mib is -1"},
		{"metric_models", -1, "metric_models is -1"},
		{"metric_models", 1001, "metric_models is 1001"},
		{"sampling::rate", 0, "sampling: rate is 0: it must be from 0.001"},
		{"sampling::trunk_list", "t.json", "sampling: trunk_list has no effect"},
		{"retention::max_bytes", -1, "neither may be below 0"},
		{"sending_queue::queue_size", 0, "queue_size"},
		{"directorx", "x", "directorx"}, // a typo is an error
	} {
		tree := c.value
		parts := strings.Split(c.key, "::")
		for _, part := range slices.Backward(parts) {
			tree = map[string]any{part: tree}
		}
		conf := confmap.NewFromStringMap(map[string]any{"directory": "d"})
		if err := conf.Merge(confmap.NewFromStringMap(tree.(map[string]any))); err != nil {
			t.Fatal(err)
		}
		cfg := createDefaultConfig().(*Config)
		err := conf.Unmarshal(cfg)
		if err == nil {
			err = confmap.Validate(cfg)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "size of a segment is") ||
			strings.Count(err.Error(), c.want) > 1 {
			t.Errorf("%s: %v: got error %v, want one with %q", c.key, c.value, err, c.want)
		}
	}
}
