// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/moonloop/moonloop/semconv"
)

// lastingReader keeps the metrics of a run for a scraper, even after the run ended: the verdict is set at the run's last collection, which
// a scraper would miss. Each series has the run's id.
type lastingReader struct {
	sdkmetric.Reader
	registry *prometheus.Registry

	mu   sync.Mutex
	over bool
	last []*dto.MetricFamily
}

func newLastingReader() (*lastingReader, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(),
		otelprometheus.WithResourceAsConstantLabels(attribute.NewAllowKeysFilter(semconv.RunID)))
	return &lastingReader{Reader: reader, registry: registry}, err
}

// Gather implements prometheus.Gatherer.
func (r *lastingReader) Gather() ([]*dto.MetricFamily, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return r.last, nil
	}
	return r.registry.Gather()
}

// Shutdown collects for the last time.
func (r *lastingReader) Shutdown(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		r.last, _ = r.registry.Gather() // after an error, use the metrics that were gathered
		r.over = true
	}
	return r.Reader.Shutdown(ctx)
}

// registerOwn registers the metrics of the service itself.
func (s *Service) registerOwn() (prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("github.com/moonloop/moonloop/internal/service")
	of := semconv.ServiceRuns
	_, err = meter.Int64ObservableGauge(of.Name, metric.WithUnit(of.Unit), metric.WithDescription(of.Description),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			counts := make(map[State]int64)
			for _, it := range s.list() {
				counts[it.State]++
			}
			for _, state := range []State{Starting, Running, Stopping, Finished, Stopped, Failed, Interrupted} {
				o.Observe(counts[state], metric.WithAttributes(attribute.String(semconv.RunState, string(state))))
			}
			return nil
		}))
	if err != nil {
		return nil, err
	}
	of = semconv.ServiceRefused
	s.refused, err = meter.Int64Counter(of.Name, metric.WithUnit(of.Unit), metric.WithDescription(of.Description))
	return registry, err
}

// maxScrapes is the maximum number of scrapes at a time.
const maxScrapes = 4

// metricsHandler answers with what gather returns. There is one for all requests, because it counts those in progress.
func (s *Service) metricsHandler() http.Handler {
	return promhttp.HandlerFor(prometheus.GathererFunc(s.gather), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
}

// gather returns the metrics of the service, of the runs in progress, and of the run that ended last.
func (s *Service) gather() ([]*dto.MetricFamily, error) {
	all := prometheus.Gatherers{s.own}
	for _, one := range s.runs() {
		if metrics := one.scraped(); metrics != nil {
			all = append(all, metrics)
		}
	}
	s.mu.Lock() // only now: a run that was no longer in progress above is the latest, or an earlier one
	latest := s.latest
	s.mu.Unlock()
	if latest != nil && !slices.Contains(all, prometheus.Gatherer(latest)) {
		all = append(all, latest)
	}
	return all.Gather()
}
