// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/moonloop/moonloop/receiver/internal/metadata"
)

// NewFactory returns the factory of the receiver "mooncake", for traces, metrics and logs.
func NewFactory() receiver.Factory {
	s := &shared{receivers: map[component.Config]*mooncakeReceiver{}}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithTraces(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
			return s.with(set, cfg, func(r *mooncakeReceiver) { r.nextTraces = next })
		}, metadata.TracesStability),
		receiver.WithMetrics(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
			return s.with(set, cfg, func(r *mooncakeReceiver) { r.nextMetrics = next })
		}, metadata.MetricsStability),
		receiver.WithLogs(func(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
			return s.with(set, cfg, func(r *mooncakeReceiver) { r.nextLogs = next })
		}, metadata.LogsStability))
}

// shared has the receivers that run or will run, so that the pipelines of all signals share the receiver of a configuration, which listens
// only once.
type shared struct {
	mu        sync.Mutex
	receivers map[component.Config]*mooncakeReceiver
}

// with returns the receiver of a configuration, after adding a pipeline to it; it creates a new one if there is none.
func (s *shared) with(set receiver.Settings, cfg component.Config, pipeline func(*mooncakeReceiver)) (component.Component, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.receivers[cfg]
	if r == nil {
		var err error
		if r, err = newReceiver(set, cfg.(*Config)); err != nil {
			return nil, err
		}
		r.onShutdown = func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.receivers, cfg)
		}
		s.receivers[cfg] = r
	}
	pipeline(r)
	return r, nil
}
