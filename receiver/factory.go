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
	s := &shared{receivers: map[*Config]*mooncakeReceiver{}}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithTraces(s.createTraces, metadata.TracesStability),
		receiver.WithMetrics(s.createMetrics, metadata.MetricsStability),
		receiver.WithLogs(s.createLogs, metadata.LogsStability))
}

// shared holds the receivers that run or will, so that the pipelines of all signals get one and the same for a
// configuration: it listens once for all.
type shared struct {
	mu        sync.Mutex
	receivers map[*Config]*mooncakeReceiver
}

func (s *shared) createTraces(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Traces) (receiver.Traces, error) {
	r, err := s.get(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	r.nextTraces = next
	return r, nil
}

func (s *shared) createMetrics(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics) (receiver.Metrics, error) {
	r, err := s.get(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	r.nextMetrics = next
	return r, nil
}

func (s *shared) createLogs(_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs) (receiver.Logs, error) {
	r, err := s.get(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	r.nextLogs = next
	return r, nil
}

// get returns the receiver of a configuration, a new one where there is none.
func (s *shared) get(set receiver.Settings, cfg *Config) (*mooncakeReceiver, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.receivers[cfg]; r != nil {
		return r, nil
	}
	r, err := newReceiver(set, cfg)
	if err != nil {
		return nil, err
	}
	r.onShutdown = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.receivers, cfg)
	}
	s.receivers[cfg] = r
	return r, nil
}
