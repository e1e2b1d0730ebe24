// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics serves /metrics from a registry of its own. Totals are read from the engine when scraped; the histograms
// take their values from the record of each request that has finished, so both say the same.
type metrics struct {
	handler                             http.Handler
	queue, prefill, first, inter, whole prometheus.Histogram
}

const metricPrefix = "moonloop_simulator_"

func newMetrics(e *Engine) *metrics {
	reg := prometheus.NewRegistry()
	total := func(name, help string, labels prometheus.Labels, value func() int64) {
		reg.MustRegister(prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: metricPrefix + name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	gauge := func(name, help string, value func() int) {
		reg.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: metricPrefix + name, Help: help},
			func() float64 { return float64(value()) }))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: buckets})
		reg.MustRegister(h)
		return h
	}
	for i, o := range outcomes {
		total("requests_total", "Requests that have ended, by outcome.", prometheus.Labels{"outcome": string(o)}, e.count.outcomes[i].Load)
	}
	total("unauthorized_total", "Requests refused for want of a valid key.", nil, e.count.unauthorized.Load)
	total("prompt_tokens_total", "Prompt tokens of ended requests.", nil, e.count.prompt.Load)
	total("generation_tokens_total", "Output tokens of ended requests.", nil, e.count.output.Load)
	total("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", nil, e.count.prompt.Load)
	total("prefix_cache_hits_total", "Prompt tokens served by the prefix cache.", nil, e.count.cached.Load)
	total("prefix_cache_evicted_blocks_total", "Blocks evicted from the prefix cache.", nil, func() int64 { _, n := e.cacheCounts(); return n })
	gauge("prefix_cache_blocks", "Blocks in the prefix cache.", func() int { n, _ := e.cacheCounts(); return n })
	gauge("num_requests_running", "Requests in prefill or decode.", func() int { n, _ := e.queue.counts(); return n })
	gauge("num_requests_waiting", "Requests that wait to run.", func() int { _, n := e.queue.counts(); return n })

	registerLike(reg, e)

	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 25, 50, 100, 250}
	tokens := []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
	m := &metrics{
		handler: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}),
		queue:   histogram("request_queue_time_seconds", "From the body's last byte to admission.", seconds),
		prefill: histogram("request_prefill_time_seconds", "From admission to the end of the prefill.", seconds),
		first:   histogram("time_to_first_token_seconds", "From the body's last byte to the first write with a token.", seconds),
		inter:   histogram("inter_token_latency_seconds", "Between writes with tokens, as they were done.", tokens),
		whole:   histogram("e2e_request_latency_seconds", "From the body's last byte to the end.", seconds),
	}
	return m
}

// registerLike adds the metrics by which a client finds out how the engine caches, under the names that the engine has which this
// one is like. vLLM counts a prompt when it is looked up; here it counts when its request has ended.
func registerLike(reg *prometheus.Registry, e *Engine) {
	running := func() float64 { n, _ := e.queue.counts(); return float64(n) }
	waiting := func() float64 { _, n := e.queue.counts(); return float64(n) }
	computed := func() float64 { return float64(e.count.prompt.Load() - e.count.cached.Load()) }
	value := func(load func() int64) func() float64 { return func() float64 { return float64(load()) } }
	type one struct {
		name, help string
		value      func() float64
	}
	var totals, gauges []one
	var prefix string
	var labels prometheus.Labels
	switch e.config.Like {
	case LikePlain:
	case LikeVLLM:
		prefix, labels = "vllm:", prometheus.Labels{"engine": "0", "model_name": e.modelNames()[0]}
		totals = []one{
			{"prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", value(e.count.prompt.Load)},
			{"prefix_cache_hits_total", "Prompt tokens served by the prefix cache.", value(e.count.cached.Load)},
			{"prompt_tokens_total", "Prompt tokens.", value(e.count.prompt.Load)},
			{"generation_tokens_total", "Output tokens.", value(e.count.output.Load)},
		}
		gauges = []one{{"num_requests_running", "Requests that run.", running}, {"num_requests_waiting", "Requests that wait.", waiting}}
		c := e.config.Cache
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: prefix + "cache_config_info", Help: "Settings of the cache.",
			ConstLabels: prometheus.Labels{
				"engine": "0", "block_size": strconv.Itoa(c.BlockSize), "num_gpu_blocks": strconv.Itoa(c.Blocks),
				"enable_prefix_caching": map[bool]string{true: "True", false: "False"}[!c.Disabled],
			},
		}, func() float64 { return 1 }))
	case LikeLlamaCPP:
		prefix = "llamacpp:"
		totals = []one{
			{"prompt_tokens_total", "Prompt tokens computed.", computed},
			{"prompt_tokens_cached_total", "Prompt tokens served by the slots.", value(e.count.cached.Load)},
			{"tokens_predicted_total", "Output tokens.", value(e.count.output.Load)},
		}
		gauges = []one{{"requests_processing", "Requests that run.", running}, {"requests_deferred", "Requests that wait.", waiting}}
	}
	for _, m := range totals {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + m.name, Help: m.help, ConstLabels: labels}, m.value))
	}
	for _, m := range gauges {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + m.name, Help: m.help, ConstLabels: labels}, m.value))
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
