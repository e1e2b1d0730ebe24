// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics serves /metrics from a registry of its own. Totals are read from the engine when scraped; the histograms take their values from
// the record of each request that has finished, so that histograms and records agree.
type metrics struct {
	handler                             http.Handler
	queue, prefill, first, inter, whole prometheus.Histogram
}

const metricPrefix = "moonloop_simulator_"

// registry registers metrics; the value of a total or a gauge is read when it is scraped.
type registry struct{ *prometheus.Registry }

func (r registry) total(name, help string, labels prometheus.Labels, value func() int64) {
	r.MustRegister(prometheus.NewCounterFunc(
		prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) }))
}

func (r registry) gauge(name, help string, labels prometheus.Labels, value func() int64) {
	r.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) }))
}

func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: buckets})
	r.MustRegister(h)
	return h
}

func newMetrics(e *Engine) *metrics {
	r, c := registry{prometheus.NewRegistry()}, &e.count
	for i, o := range outcomes {
		r.total(metricPrefix+"requests_total", "Requests that have ended, by outcome.", prometheus.Labels{"outcome": string(o)}, c.outcomes[i].Load)
	}
	r.total(metricPrefix+"unauthorized_total", "Requests refused because they had no valid key.", nil, c.unauthorized.Load)
	r.total(metricPrefix+"prompt_tokens_total", "Prompt tokens of ended requests.", nil, c.prompt.Load)
	r.total(metricPrefix+"generation_tokens_total", "Output tokens of ended requests.", nil, c.output.Load)
	r.total(metricPrefix+"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", nil, c.prompt.Load)
	r.total(metricPrefix+"prefix_cache_hits_total", "Prompt tokens served by the prefix cache.", nil, c.cached.Load)
	r.total(metricPrefix+"prefix_cache_evicted_blocks_total", "Blocks evicted from the prefix cache.", nil,
		func() int64 { _, n := e.cacheCounts(); return n })
	r.gauge(metricPrefix+"prefix_cache_blocks", "Blocks in the prefix cache.", nil, func() int64 { n, _ := e.cacheCounts(); return int64(n) })
	r.gauge(metricPrefix+"num_requests_running", "Requests in prefill or decode.", nil, e.queue.running)
	r.gauge(metricPrefix+"num_requests_waiting", "Requests that wait to run.", nil, e.queue.waiting)

	r.like(e)
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250}
	tokens := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	return &metrics{
		handler: promhttp.HandlerFor(r, promhttp.HandlerOpts{}),
		queue:   r.histogram("request_queue_time_seconds", "From the body's last byte to admission.", seconds),
		prefill: r.histogram("request_prefill_time_seconds", "From admission to the end of the prefill.", seconds),
		first:   r.histogram("time_to_first_token_seconds", "From the body's last byte to the first write with a token.", seconds),
		inter:   r.histogram("inter_token_latency_seconds", "Between writes with tokens, as they were done.", tokens),
		whole:   r.histogram("e2e_request_latency_seconds", "From the body's last byte to the end.", seconds),
	}
}

// like adds the metrics by which a client finds out how the engine caches, under the names of the imitated engine. vLLM counts a prompt
// when it is looked up; here it counts when its request has ended.
func (r registry) like(e *Engine) {
	c := &e.count
	switch e.config.Like {
	case LikePlain:
	case LikeVLLM:
		labels := prometheus.Labels{"engine": "0", "model_name": e.modelNames()[0]}
		r.total("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", labels, c.prompt.Load)
		r.total("vllm:prefix_cache_hits_total", "Prompt tokens served by the prefix cache.", labels, c.cached.Load)
		r.total("vllm:prompt_tokens_total", "Prompt tokens.", labels, c.prompt.Load)
		r.total("vllm:generation_tokens_total", "Output tokens.", labels, c.output.Load)
		r.gauge("vllm:num_requests_running", "Requests that run.", labels, e.queue.running)
		r.gauge("vllm:num_requests_waiting", "Requests that wait.", labels, e.queue.waiting)
		cache := e.config.Cache
		r.gauge("vllm:cache_config_info", "Settings of the cache.", prometheus.Labels{
			"engine": "0", "block_size": strconv.Itoa(cache.BlockSize), "num_gpu_blocks": strconv.Itoa(cache.Blocks),
			"enable_prefix_caching": map[bool]string{true: "True", false: "False"}[!cache.Disabled],
		}, func() int64 { return 1 })
	case LikeLlamaCPP:
		computed := func() int64 { return c.prompt.Load() - c.cached.Load() }
		r.total("llamacpp:prompt_tokens_total", "Prompt tokens computed.", nil, computed)
		r.total("llamacpp:prompt_tokens_cached_total", "Prompt tokens served by the slots.", nil, c.cached.Load)
		r.total("llamacpp:tokens_predicted_total", "Output tokens.", nil, c.output.Load)
		r.gauge("llamacpp:requests_processing", "Requests that run.", nil, e.queue.running)
		r.gauge("llamacpp:requests_deferred", "Requests that wait.", nil, e.queue.waiting)
	}
}

// observe takes the figures of a finished request from its record.
func (m *metrics) observe(r *Record) {
	if r.Outcome != Finished {
		return
	}
	m.queue.Observe((r.Admitted - r.BodyRead).Seconds())
	m.prefill.Observe((r.PrefillDone - r.Admitted).Seconds())
	m.whole.Observe((r.Ended - r.BodyRead).Seconds())
	before := Never
	for _, w := range r.Writes {
		switch {
		case w.Tokens == 0:
			continue
		case before == Never:
			m.first.Observe((w.At - r.BodyRead).Seconds())
		default:
			m.inter.Observe((w.At - before).Seconds())
		}
		before = w.At
	}
}

// compile-time check: an engine is what an HTTP server needs.
var _ http.Handler = (*Engine)(nil)
