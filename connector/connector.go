// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/exporter/decode"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// cacheConnector analyses requests, and sends metrics at intervals.
type cacheConnector struct {
	config  *Config
	next    consumer.Metrics
	log     *zap.Logger
	decoder *decode.Decoder
	clock   func() time.Time
	kvBytes []int64 // of a token, by the index of the model's setting

	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	started pcommon.Timestamp
	streams map[streamKey]*stream
	order   []*stream        // in order of appearance, for metrics in a stable order
	expired int64            // streams that were removed
	rest    map[string]int64 // requests without a stream, by result
	ignored map[string]int64 // other spans, by reason
	recent  recency
	waiting waiting
}

// requestKey identifies a request: half the hash of its response id, or a hash of its OTel trace and prompt.
type requestKey uint64

// sighting is what tells whether two spans with one key are of one request. Hashes are 0 if the value is unknown.
type sighting struct {
	key requestKey

	start, end                int64 // ns
	producer, trace, response uint32
	prompt, tokens            uint32
}

// same reports whether two spans with one key are of one request. They may not be: an application sends one prompt several times, and some
// servers give the same response id to all replies.
func (s *sighting) same(o *sighting) bool {
	together := s.start == o.start || s.start < o.end && o.start < s.end
	alike := s.producer != 0 && s.producer == o.producer
	switch {
	case s.response != 0 && o.response != 0 && s.response != o.response:
		return false
	case alike: // nested, or of another request
		return together && (s.trace == o.trace || s.prompt == o.prompt)
	}
	return s.trace == o.trace || together || s.tokens == o.tokens // the clocks of two producers can differ
}

// recency remembers about 100,000 spans, so that a second span of a request is not counted again. For each of its keys, a span has a slot among
// eight, of which the oldest is replaced. So looking it up and remembering it is one access to memory, without garbage.
type recency [1 << 14][8]sighting

// add remembers a span, and reports whether one of the same request was remembered before. Of a request, the first span is remembered; of
// requests with one key, the latest.
func (r *recency) add(s sighting) (before bool) {
	place := &r[s.key%requestKey(len(r))]
	i := slices.IndexFunc(place[:], func(o sighting) bool { return o.key == s.key })
	if i >= 0 {
		if place[i].same(&s) {
			return true
		}
		place[i] = s
		return false
	}
	copy(place[1:], place[:])
	place[0] = s
	return false
}

func newCacheConnector(c *Config, set connector.Settings, next consumer.Metrics) (*cacheConnector, error) {
	return &cacheConnector{
		config: c, next: next, log: set.Logger, decoder: decode.New(decode.Config{RequestsOnly: true}), clock: time.Now,
		kvBytes: make([]int64, len(c.Models)), streams: map[streamKey]*stream{}, rest: map[string]int64{}, ignored: map[string]int64{},
		waiting: waiting{halves: map[mooncake.SpanRef]*list.Element{}},
	}, nil
}

// Start begins to send metrics. It reads the models' config.json.
func (c *cacheConnector) Start(context.Context, component.Host) error {
	for i := range c.config.Models {
		var err error
		if c.kvBytes[i], err = c.config.Models[i].bytesPerToken(); err != nil {
			return fmt.Errorf("models[%d]::%w", i, err)
		}
	}
	c.started = pcommon.NewTimestampFromTime(c.clock())
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() {
		ticker := time.NewTicker(c.config.Interval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				c.send(ctx)
			}
		}
	})
	return nil
}

// Shutdown sends the metrics a last time. It may be called before Start, and twice. No prompt comes any more, so no request waits for one.
func (c *cacheConnector) Shutdown(ctx context.Context) error {
	if c.stop == nil {
		return nil
	}
	c.stop()
	c.stop = nil
	c.done.Wait()
	c.mu.Lock()
	c.giveUp(c.clock().Add(joinWithin))
	c.mu.Unlock()
	c.send(ctx)
	return nil
}

func (c *cacheConnector) send(ctx context.Context) {
	c.mu.Lock()
	metrics := c.metrics(c.clock())
	c.mu.Unlock()
	if metrics.MetricCount() == 0 {
		return
	}
	if err := c.next.ConsumeMetrics(ctx, metrics); err != nil && ctx.Err() == nil {
		c.log.Warn("metrics of the cache potential were refused; the next ones include them", zap.Error(err))
	}
}

// Capabilities says that spans stay as they are.
func (c *cacheConnector) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// ConsumeTraces analyses the requests among spans. It never fails: the spans also go elsewhere.
func (c *cacheConnector) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	if c.config.TenantAttribute == "" {
		return c.consume(td, "")
	}
	for _, rs := range td.ResourceSpans().All() {
		tenant := ""
		if v, ok := rs.Resource().Attributes().Get(c.config.TenantAttribute); ok {
			tenant = clip(v.AsString())
		}
		one := ptrace.NewTraces()
		rs.CopyTo(one.ResourceSpans().AppendEmpty())
		if err := c.consume(one, tenant); err != nil {
			return err
		}
	}
	return nil
}

// clip returns a value for an attribute of metrics: a long value is replaced by a hash of it.
func clip(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

func (c *cacheConnector) consume(td ptrace.Traces, tenant string) error {
	now := c.clock()
	others := int64(td.SpanCount())
	counts, err := c.decoder.Traces(td, func(r journal.Record) error {
		others--
		c.mu.Lock()
		defer c.mu.Unlock()
		switch r := r.(type) {
		case *journal.Inference:
			c.add(r, tenant, now)
		case *journal.Content:
			c.prompt(r, now)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ignored[ignoredNoTraceID] += counts.NoTraceID
	c.ignored[ignoredNoSpanID] += counts.NoSpanID
	c.ignored[ignoredOther] += others - counts.NoTraceID - counts.NoSpanID
	return err
}

// add counts a request under its result, and analyses it if it can be. A request whose prompt may be in log records waits for it.
func (c *cacheConnector) add(r *journal.Inference, tenant string, now time.Time) {
	p := promptOf(r, &r.Prompt)
	result := c.result(r, &p)
	if result == resultNoPrompt && !r.Remote { // of a remote prompt, log records have only a part
		switch h := c.waiting.get(r.Span); {
		case h == nil:
			c.wait(requestHalf(r, tenant), now)
			return
		case h.request != nil:
			result = resultDuplicate // of the span itself
		default:
			c.waiting.remove(h)
			p = promptOf(r, &h.prompt)
			result = c.result(r, &p)
		}
	}
	c.count(r, &p, tenant, result, now)
}

// count counts a request under its result, and analyses it if that is the result.
func (c *cacheConnector) count(r *journal.Inference, p *prompt, tenant, result string, now time.Time) {
	key := streamKey{r.Model.String(), tenant}
	if result == resultAnalysed {
		if s := c.stream(key, now); s != nil {
			s.add(r, p, now)
		} else {
			result = resultStreams
		}
	}
	if s := c.streams[key]; s != nil {
		s.results[result]++
	} else {
		c.rest[result]++
	}
}

// result returns the result of a request, as long as there are not too many streams.
func (c *cacheConnector) result(r *journal.Inference, p *prompt) string {
	switch {
	case !r.Run.IsZero() && !c.config.Replays:
		return resultReplay
	case r.Failed:
		return resultFailed
	case p.tokens <= 0:
		return resultNoTokens
	case !p.known:
		return resultNoPrompt
	case c.seen(r, p):
		return resultDuplicate
	}
	return resultAnalysed
}

// stream returns the stream of a request that will be analysed; nil if there are too many. Other requests make no stream: the names of models
// that do not exist, in requests that failed, would use up the limit.
func (c *cacheConnector) stream(key streamKey, now time.Time) *stream {
	s := c.streams[key]
	if s != nil || len(c.streams) >= c.config.MaxStreams {
		return s
	}
	s = &stream{
		streamKey: key, started: pcommon.NewTimestampFromTime(now), results: map[string]int64{},
		reuse: stats.NewReuse(stats.ReuseOptions{Rate: c.config.SamplingRatio, MaxBlocks: c.config.MaxBlocks}),
	}
	if i := slices.IndexFunc(c.config.Models, func(m ModelConfig) bool { return m.matches(key.model) }); i >= 0 {
		s.kvBytes = c.kvBytes[i]
	}
	c.streams[key] = s
	c.order = append(c.order, s)
	return s
}

// expire removes the streams without an analysed request since a time, before which their blocks are forgotten, too. So a model that is no
// longer used makes room for another one.
func (c *cacheConnector) expire(before time.Time) {
	streams := len(c.order)
	c.order = slices.DeleteFunc(c.order, func(s *stream) bool {
		if !s.last.Before(before) {
			return false
		}
		delete(c.streams, s.streamKey)
		return true
	})
	c.expired += int64(streams - len(c.order))
}

// seen reports whether a span of the same request came earlier: applications, gateways and engines each record one. A span that cannot be
// analysed is not remembered, because another span of the same request may have what it lacks.
func (c *cacheConnector) seen(r *journal.Inference, p *prompt) bool {
	trace := binary.LittleEndian.Uint64(r.Span.TraceID[:]) + binary.LittleEndian.Uint64(r.Span.TraceID[8:])
	prompt := splitmix.Mix(p.all + uint64(len(p.ids)))
	s := sighting{
		start: r.Start, end: r.End,
		//nolint:gosec // parts of hashes; tokens are only compared
		producer: uint32(r.Producer), trace: uint32(splitmix.Mix(trace)), prompt: uint32(prompt), tokens: uint32(p.tokens),
	}
	before := false
	if r.Response != (journal.Response{}) {
		s.key = requestKey(binary.LittleEndian.Uint64(r.Response[:]))
		s.response = max(1, uint32(s.key)) //nolint:gosec // a part of a hash
		before = c.recent.add(s)
	}
	s.key = requestKey(splitmix.Mix(trace + prompt)) // only one of two spans may have the response id
	return c.recent.add(s) || before
}
