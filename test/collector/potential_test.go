// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/connector"
	"github.com/moonloop/moonloop/exporter"
	"github.com/moonloop/moonloop/internal/splitmix"
	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
	"github.com/moonloop/moonloop/processor"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// seeds is the number of models, which share nothing: each has the requests of the public trace, with its own ids, and therefore another
// sample.
const seeds = 20

// TestPotentialOfThePublicTrace sends the public trace to a Collector with examples/capture/cache.yaml as live traffic, for twenty models
// at once, and reads the estimates as Prometheus would. They estimate the share of prompt tokens that a cache hits; the simulation has the
// exact one. For the infinite cache, they are within half a point of the exact share on average, with a standard deviation of up to 0.6
// points; for finite caches, within one point, with up to 1.6. All samples together have about a tenth of the blocks.
func TestPotentialOfThePublicTrace(t *testing.T) {
	t.Parallel()
	rows := publicTrace(t)
	exact := stats.NewCacheSim(stats.CacheOptions{Capacities: []int{5_859, 30_000}, Eviction: stats.RootFirst})
	for _, row := range rows {
		exact.Add(row)
	}
	truth := map[string]float64{}
	for _, c := range exact.Stats() {
		name := strconv.Itoa(c.Capacity * 512)
		if c.Capacity == 0 {
			name = "infinite"
		}
		truth[name] = c.TokenRate
	}

	prometheus := testport.Address(t)
	c := configure(t, t.TempDir(), settings{config: "examples/capture/cache.yaml", more: fmt.Sprintf(`
connectors: {mooncake_cache: {interval: 1s, capacities: [2999808, 15360000]}}
exporters: {mooncake: {fsync: false}, prometheus: {endpoint: %q}}
extensions: {health_check: }
service: {extensions: [health_check]}
`, prometheus)})
	p := c.start(t)
	before := p.memory(t, "VmRSS")
	to := dial(t, c.address)
	const batch = 400
	for first := 0; first < len(rows); first += batch {
		for seed := range uint64(seeds) {
			td := rowSpans(rows[first:min(first+batch, len(rows))], first, seed)
			body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
			if err != nil {
				t.Fatal(err)
			}
			if err := to.export(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
	}
	page := ""
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		page = get(t, "http://"+prometheus+"/metrics")
		analysed := 0.
		for _, point := range scraped(t, page, "mooncake_cache_potential_requests") {
			if point.labels["mooncake_cache_result"] == "analysed" {
				analysed += point.value
			}
		}
		if analysed == float64(seeds*len(rows)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%.0f of %d requests are analysed\n%s", analysed, seeds*len(rows), p.tail())
		}
	}
	got := map[string][]float64{}
	for _, point := range scraped(t, page, "mooncake_cache_potential_hit_ratio") {
		capacity := point.labels["mooncake_cache_capacity"]
		got[capacity] = append(got[capacity], point.value)
	}
	for capacity, want := range truth {
		if len(got[capacity]) != seeds {
			t.Fatalf("%d estimates for a cache of %s tokens, want %d\n%s", len(got[capacity]), capacity, seeds, page)
		}
		mean, squares := 0., 0.
		for _, v := range got[capacity] {
			mean += v / seeds
		}
		for _, v := range got[capacity] {
			squares += (v - mean) * (v - mean)
		}
		deviation := math.Sqrt(squares / (seeds - 1))
		t.Logf("%8s tokens: exact %.4f, mean %.4f, standard deviation %.4f", capacity, want, mean, deviation)
		bias, most := 0.01, 0.016
		if capacity == "infinite" {
			bias, most = 0.005, 0.006
		}
		if math.Abs(mean-want) > bias || deviation > most {
			t.Errorf("%s tokens: exact %.4f, mean %.4f, standard deviation %.4f", capacity, want, mean, deviation)
		}
	}
	blocks := 0.
	for _, point := range scraped(t, page, "mooncake_cache_potential_blocks") {
		blocks += point.value
	}
	// Most of the process's growth is buffers of the whole pipeline. TestReuseMemory (mooncake/stats) checks what a block takes.
	t.Logf("memory: %d MiB before, at most %d MiB, with %.0f blocks in all samples", before>>20, p.memory(t, "VmHWM")>>20, blocks)
	if blocks < 0.08*seeds*182_790 || blocks > 0.12*seeds*182_790 {
		t.Errorf("%.0f blocks in all samples, want a tenth of %d", blocks, seeds*182_790)
	}
	p.stop(t)
}

// TestPotentialOfLogRecords analyses requests whose prompts are in log records, as the receiver passes them on. Log records arrive before or after
// their spans: SDKs send both in batches of their own.
func TestPotentialOfLogRecords(t *testing.T) {
	t.Parallel()
	all := testproducers.All()
	events := all[slices.IndexFunc(all, func(p testproducers.Producer) bool { return p.Name == "events" })]
	annotator, err := annotate.New(annotate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var spans, prompts []ptrace.Traces
	for line := range bytes.Lines(events.Traces) {
		td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
		if err != nil {
			t.Fatal(err)
		}
		annotator.Traces(td)
		spans = append(spans, td)
	}
	for line := range bytes.Lines(events.Logs) {
		ld, err := new(plog.JSONUnmarshaler).UnmarshalLogs(line)
		if err != nil {
			t.Fatal(err)
		}
		td, _ := annotator.Logs(ld)
		prompts = append(prompts, td)
	}
	for order, batches := range map[string][]ptrace.Traces{"spans first": slices.Concat(spans, prompts), "prompts first": slices.Concat(prompts, spans)} {
		f := connector.NewFactory()
		cfg := f.CreateDefaultConfig().(*connector.Config)
		cfg.SamplingRatio = 1
		sink := new(consumertest.MetricsSink)
		c, err := f.CreateTracesToMetrics(t.Context(), connectortest.NewNopSettings(f.Type()), cfg, sink)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context(), componenttest.NewNopHost()); err != nil {
			t.Fatal(err)
		}
		for _, td := range batches {
			if err := c.ConsumeTraces(t.Context(), td); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		analysed, ratio := int64(0), 0.
		for _, m := range sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			switch m.Name() {
			case semconv.CachePotentialRequests.Name:
				for _, p := range m.Sum().DataPoints().All() {
					if v, _ := p.Attributes().Get(semconv.CacheRequestResult); v.Str() == "analysed" {
						analysed += p.IntValue()
					}
				}
			case semconv.CachePotentialHitRatio.Name:
				for _, p := range m.Gauge().DataPoints().All() {
					ratio = max(ratio, p.DoubleValue())
				}
			}
		}
		if want := int64(events.Want.Text); analysed != want || ratio < 0.5 || ratio > 0.9 {
			t.Errorf("%s: %d requests are analysed, want %d; they hit %.3f, want 0.5 to 0.9: five of them share most of their prompts", order, analysed, want, ratio)
		}
	}
}

// publicTrace returns the rows of the public trace.
func publicTrace(t *testing.T) (rows []*mooncake.Row) {
	t.Helper()
	name := filepath.Join(root, "..", "shared", "data", "conversation_trace.jsonl")
	trace, err := mooncake.Open(t.Context(), name, mooncake.OpenOptions{})
	if err != nil {
		t.Skip("the public conversation trace is missing: ../shared/data/conversation_trace.jsonl from the repository root")
	}
	defer func() { _ = trace.Close() }()
	for {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
}

// rowSpans returns requests as reported by an engine that names the blocks of its cache.
func rowSpans(rows []*mooncake.Row, first int, seed uint64) ptrace.Traces {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	now := time.Now()
	for i, row := range rows {
		span := spans.AppendEmpty()
		span.SetName("chat")
		span.SetKind(ptrace.SpanKindClient)
		var id [16]byte
		binary.BigEndian.PutUint64(id[:], seed+1)
		binary.BigEndian.PutUint64(id[8:], uint64(first+i)+1)
		span.SetTraceID(id)
		span.SetSpanID(pcommon.SpanID(id[8:]))
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(now))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(time.Second)))
		a := span.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.request.model", fmt.Sprintf("seed-%d", seed))
		a.PutInt("gen_ai.usage.input_tokens", row.InputLength.V)
		a.PutInt("gen_ai.usage.output_tokens", row.OutputLength.V)
		a.PutStr("mooncake.identity", "trace")
		a.PutStr("mooncake.hash.domain", "0a1b2c3d")
		a.PutInt("mooncake.block_size", 512)
		ids := a.PutEmptySlice("mooncake.hash_ids")
		for _, id := range row.HashIDs {
			ids.AppendEmpty().SetInt(int64(splitmix.Next(id | (seed+1)<<32)))
		}
	}
	return td
}

// scrapedPoint is a point of a metric, as Prometheus reads it.
type scrapedPoint struct {
	labels map[string]string
	value  float64
}

// scraped returns the points of the metrics whose names have this beginning.
func scraped(t *testing.T, page, metric string) (points []scrapedPoint) {
	t.Helper()
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	for _, match := range regexp.MustCompile(`(?m)^`+metric+`(?:_ratio|_total)?\{([^}]*)\} (\S+)$`).FindAllStringSubmatch(page, -1) {
		p := scrapedPoint{labels: map[string]string{}}
		for _, l := range label.FindAllStringSubmatch(match[1], -1) {
			p.labels[l[1]] = l[2]
		}
		var err error
		if p.value, err = strconv.ParseFloat(match[2], 64); err != nil {
			t.Fatal(err)
		}
		points = append(points, p)
	}
	return points
}

// potentialOf adds the connector next to the exporter of laptop.yaml.
const potentialOf = `
connectors: {mooncake_cache: }
service: {pipelines: {traces: {exporters: [mooncake, mooncake_cache]}, metrics: {receivers: [mooncake, mooncake_cache]}}}
`

// TestPotentialCost runs the paired measurement briefly, to test it. With so few spans, its result says little.
func TestPotentialCost(t *testing.T) {
	if more := potentialCost(t, production(t, 25, 8<<10), 200); more > 0.5 {
		t.Errorf("the live cache potential takes %.0f %% more processor time", 100*more)
	}
}

// TestAcceptancePotentialCost measures what the live cache potential adds to the processor time of a Collector that captures.
func TestAcceptancePotentialCost(t *testing.T) {
	if !acceptance() {
		t.Skip("run this with make acceptance")
	}
	for name, l := range map[string]*load{
		"prompts of 2 kB": production(t, 25, 2<<10), "prompts of 8 kB": production(t, 25, 8<<10), "prompts of 48 kB": production(t, 25, 48<<10),
		"a replay's spans": replay(t, 25),
	} {
		if more := potentialCost(t, l, 2000); more > 0.05 {
			t.Errorf("%s: the live cache potential takes %.1f %% more processor time, want at most 5 %%", name, 100*more)
		}
	}
}

// potentialCost sends the same spans to two Collectors with laptop.yaml, one of them with the connector, alternately, so that other work of
// the machine affects both, and returns the share of processor time that the connector adds. All prompts are new, so the connector
// remembers as much as possible, and its sample is full from the start of the measurement on.
func potentialCost(t *testing.T, l *load, batches uint64) float64 {
	t.Helper()
	type contestant struct {
		p    *process
		to   *sender
		took time.Duration
	}
	var both [2]contestant
	for i, more := range []string{"", potentialOf} {
		c := configure(t, t.TempDir(), settings{config: "examples/capture/laptop.yaml", more: more})
		both[i].p = c.start(t)
		both[i].to = dial(t, c.address)
	}
	warm := batches / 4
	for n := range warm + batches {
		if n == warm {
			for i := range both {
				both[i].took = both[i].p.cpu(t)
			}
		}
		body := l.next(n*1000, time.Now())
		for i := range both {
			if err := both[(i+int(n))%2].to.export(t.Context(), body); err != nil {
				t.Fatal(err)
			}
		}
	}
	spans := float64(batches) * float64(l.spans)
	var cost [2]float64
	for i := range both {
		cost[i] = float64((both[i].p.cpu(t) - both[i].took).Nanoseconds()) / spans / 1e3
		both[i].p.stop(t)
	}
	t.Logf("%.1f µs of processor time for a span, %.1f with the connector: %+.1f %%", cost[0], cost[1], 100*(cost[1]/cost[0]-1))
	return cost[1]/cost[0] - 1
}

// BenchmarkCacheConnector sends the same spans through the capture path, from encoded OTLP through the processor to the exporter's
// journal, with and without the connector next to the exporter, alternately, and reports the processor time of each. There is no network and
// no fsync, so the path is as cheap as possible, and every prompt is new, so the connector remembers as much as possible. It is measured
// when the sample is full, as it is after the first minutes of traffic that is worth a cache.
func BenchmarkCacheConnector(b *testing.B) {
	for _, size := range []int{2 << 10, 8 << 10, 48 << 10} {
		b.Run(fmt.Sprintf("prompts of %d kB", size>>10), func(b *testing.B) {
			const requests = 50
			l := production(b, requests, size)
			paths := []consumer.Traces{capturePath(b, false), capturePath(b, true)}
			var took [2]time.Duration
			n := uint64(0)
			batch := func() {
				body := l.next(n*requests, time.Now())
				n++
				for k := range paths {
					at := (k + int(n)) % len(paths) // neither always finds the caches warm
					began := selfCPU(b)             // processor time: others use the machine, too
					request := ptraceotlp.NewExportRequest()
					if err := request.UnmarshalProto(body); err != nil {
						b.Fatal(err)
					}
					if err := paths[at].ConsumeTraces(b.Context(), request.Traces()); err != nil {
						b.Fatal(err)
					}
					took[at] += selfCPU(b) - began
				}
			}
			c := connector.NewFactory().CreateDefaultConfig().(*connector.Config)
			full := 2 * uint64(float64(c.MaxBlocks)/c.SamplingRatio) / uint64(requests*size/blockhash.CellSize)
			for n < full {
				batch()
			}
			took = [2]time.Duration{}
			for b.Loop() {
				batch()
			}
			spans := float64((n - full) * requests)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(took[0].Nanoseconds())/spans, "CPU-ns/span-without")
			b.ReportMetric(float64(took[1].Nanoseconds())/spans, "CPU-ns/span-with")
			b.ReportMetric(100*(took[1].Seconds()/took[0].Seconds()-1), "%-more-CPU")
		})
	}
}

// capturePath returns the path of spans through the processor to the exporter, and, if potential is true, also to the connector.
func capturePath(b *testing.B, potential bool) consumer.Traces {
	b.Helper()
	start := func(c component.Component, err error) {
		if err == nil {
			err = c.Start(b.Context(), componenttest.NewNopHost())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := c.Shutdown(context.Background()); err != nil {
				b.Error(err)
			}
		})
	}
	ef := exporter.NewFactory()
	ec := ef.CreateDefaultConfig().(*exporter.Config)
	ec.Directory, ec.Fsync = filepath.Join(b.TempDir(), "journal"), false
	e, err := ef.CreateTraces(b.Context(), exportertest.NewNopSettings(ef.Type()), ec)
	start(e, err)
	next := consumer.Traces(e)
	if potential {
		cf := connector.NewFactory()
		c, err := cf.CreateTracesToMetrics(b.Context(), connectortest.NewNopSettings(cf.Type()), cf.CreateDefaultConfig(), new(consumertest.MetricsSink))
		start(c, err)
		both, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			return errors.Join(e.ConsumeTraces(ctx, td), c.ConsumeTraces(ctx, td))
		})
		if err != nil {
			b.Fatal(err)
		}
		next = both
	}
	pf := processor.NewFactory()
	pc := pf.CreateDefaultConfig().(*processor.Config)
	pc.Annotation.HashKey = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed"
	p, err := pf.CreateTraces(b.Context(), processortest.NewNopSettings(pf.Type()), pc, next)
	start(p, err)
	return p
}
