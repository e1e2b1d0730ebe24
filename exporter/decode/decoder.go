// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Config configures a [Decoder]. The zero Config is usable.
type Config struct {
	// Limits limits the cost of reading one span that was not annotated.
	Limits genai.Limits
	// RequestsOnly leaves out everything but requests, annotated ones and others with gen_ai.request.model, and prompts from log records.
	// All other spans are then not read, which saves time.
	RequestsOnly bool
	// Sampling keeps only a sample of production's requests; nil keeps all.
	Sampling *Sampling
}

// Decoder converts spans to records. It is safe for concurrent use.
type Decoder struct {
	pool sync.Pool // of *worker
}

// New returns a decoder.
func New(cfg Config) *Decoder {
	return &Decoder{pool: sync.Pool{New: func() any {
		return &worker{genai: genai.NewReader(genai.Options{Limits: cfg.Limits}), requestsOnly: cfg.RequestsOnly, sampling: cfg.Sampling}
	}}}
}

// Traces calls visit with the record of each span, in order, or of each span in the sample. The record, including its slices, is valid
// until visit returns. An error of visit ends the walk and is returned unchanged, with the counts up to and including that record. The
// spans are not changed.
func (d *Decoder) Traces(td ptrace.Traces, visit func(journal.Record) error) (Counts, error) {
	w := d.pool.Get().(*worker)
	w.counts = Counts{}
	err := w.traces(td, visit)
	counts := w.counts
	w.shrink()
	d.pool.Put(w)
	return counts, err
}

// worker has the state for decoding one span after the other.
type worker struct {
	genai        *genai.Reader
	requestsOnly bool
	sampling     *Sampling
	choice       choice

	counts Counts
	run    journal.Name // of the current resource
	// producer identifies the service and the instrumentation, clock identifies the process.
	producer, clock uint64

	carried   journal.Decoder // decodes carried records; visit gets an inference in place
	inference journal.Inference
	content   journal.Content
	link      journal.Link

	ids    []uint64
	cells  []uint64
	ends   []blockhash.End
	ints   []int64
	ranges []mooncake.HashRange
	parts  []mooncake.Reply

	follows []journal.SpanID
}

// keep is the maximum capacity of a buffer that is reused, in elements, so that one huge span does not occupy its memory forever.
const keep = 1 << 16

func (w *worker) shrink() {
	if cap(w.ids) > keep {
		w.ids = nil
	}
	if cap(w.cells) > keep {
		w.cells = nil
	}
	if cap(w.ints) > keep {
		w.ints, w.ranges, w.parts = nil, nil, nil
	}
	if cap(w.carried.HashIDs) > keep || cap(w.carried.Chain.Cells) > keep || cap(w.carried.HashRanges) > keep {
		w.carried = journal.Decoder{}
	}
	w.inference, w.content = journal.Inference{}, journal.Content{}
	w.choice.shrink()
}

func (w *worker) traces(td ptrace.Traces, visit func(journal.Record) error) error {
	if w.sampling != nil {
		return w.sampled(td, visit)
	}
	return w.each(td, nil, func(_ int, r journal.Record) error { return visit(r) })
}

// each calls visit with the number (from 0) and the record of each wanted span. If wanted is nil, all are.
func (w *worker) each(td ptrace.Traces, wanted func(int) bool, visit func(int, journal.Record) error) error {
	next := 0
	for _, resource := range td.ResourceSpans().All() {
		attributes := resource.Resource().Attributes()
		w.run = runOf(attributes, &w.counts)
		w.clock = hashOf(attributes, "", semconv.ServiceName, semconv.ServiceInstanceID, "host.name", "host.id", "k8s.pod.name")
		for _, scope := range resource.ScopeSpans().All() {
			name := scope.Scope().Name()
			w.producer = hashOf(attributes, name, semconv.ServiceName)
			for _, span := range scope.Spans().All() {
				number := next
				if next++; wanted != nil && !wanted(number) {
					continue
				}
				record := w.span(name, span)
				if record == nil {
					continue
				}
				if err := visit(number, record); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// span returns the record of a span, nil if there is none.
func (w *worker) span(scope string, span ptrace.Span) journal.Record {
	ref := mooncake.SpanRef{TraceID: span.TraceID(), SpanID: span.SpanID()}
	switch {
	case span.TraceID().IsEmpty():
		w.counts.NoTraceID++
		return nil
	case span.SpanID().IsEmpty():
		w.counts.NoSpanID++
		return nil
	}
	parent := journal.SpanID(span.ParentSpanID())
	attributes := span.Attributes()

	annotated, asks, session := false, false, journal.Session(0)
	border, acts := false, journal.NoActor
	var tools journal.ToolIDs
	var class journal.Name
	var priority mooncake.Opt[int64]
	var record journal.Record
	for key, v := range attributes.All() {
		switch key {
		case semconv.Identity, semconv.Row:
			annotated = true
		case semconv.GenAIRequestModel:
			asks = true
		case semconv.Session:
			id, _ := w.text(key, v)
			session = journal.SessionOf(id)
		case semconv.Class:
			class = w.model(key, v) // checked like the name of a model
		case semconv.Priority:
			priority = mooncake.Opt[int64]{V: v.Int(), Set: v.Type() == pcommon.ValueTypeInt}
		case semconv.ToolCalls:
			tools.Made = w.toolIDs(key, v)
		case semconv.ToolResults:
			tools.Given = w.toolIDs(key, v)
		case semconv.Record:
			record = w.carriedBy(ref, v)
		}
	}
	switch {
	case record != nil:
		return w.wanted(record)
	case w.requestsOnly && !annotated && !asks:
		return nil
	case span.Name() == semconv.SpanContent:
		w.content = journal.Content{Span: ref, Parent: parent, Start: w.time(span.StartTimestamp(), "start_time")}
		w.content.Tools = tools
		if p := &w.content.Prompt; w.prompt(attributes, p) && (p.HashIDs != nil || p.Chain.Bytes > 0) || tools.Made != nil || tools.Given != nil {
			w.counts.Contents++
			return &w.content
		}
	case annotated:
		w.request(ref, parent, span)
		w.inference.Session, w.inference.Tools, w.inference.Class, w.inference.Priority = session, tools, class, priority
		w.annotated(span)
		w.counts.Inferences++
		return &w.inference
	default:
		r := w.genai.Span(scope, span)
		border = r.Kind == genai.KindTool || r.Operation == "invoke_agent"
		switch {
		case r.Kind == genai.KindTool:
			acts = journal.Tool
		case border || r.Kind == genai.KindWrapper:
			acts = journal.Agent
		}
		if r.Kind == genai.KindInference {
			w.request(ref, parent, span)
			w.inference.Session, w.inference.Class, w.inference.Priority = session, class, priority
			w.raw(r, span)
			w.counts.Unannotated++
			return &w.inference
		}
	}
	if w.requestsOnly {
		return nil
	}
	w.link = journal.Link{
		Span: ref, Parent: parent, Session: session, Border: border, Acts: acts, Follows: w.followed(span), Tools: tools, Class: class, Priority: priority,
	}
	if start, end := int64(span.StartTimestamp()), int64(span.EndTimestamp()); w.run.IsZero() && start > 0 && end >= start { //nolint:gosec // a time
		w.link.Start, w.link.End = start, end
	}
	w.counts.Links++
	return &w.link
}

// request begins an inference record with the span's own values.
func (w *worker) request(ref mooncake.SpanRef, parent journal.SpanID, span ptrace.Span) {
	w.inference = journal.Inference{
		Span: ref, Parent: parent, Run: w.run, Producer: w.producer, Clock: w.clock,
		Start:  w.time(span.StartTimestamp(), "start_time"),
		End:    w.time(span.EndTimestamp(), "end_time"),
		Failed: span.Status().Code() == ptrace.StatusCodeError,
	}
	if w.inference.End == 0 {
		w.inference.End = w.inference.Start
	}
	w.inference.Follows = w.followed(span)
}

// followed returns the spans in a span's own trace to which its links point. Valid until the next span.
func (w *worker) followed(span ptrace.Span) []journal.SpanID {
	w.follows = w.follows[:0]
	for _, link := range span.Links().All() {
		id := journal.SpanID(link.SpanID())
		if link.TraceID() == span.TraceID() && id != (journal.SpanID{}) && id != journal.SpanID(span.SpanID()) && len(w.follows) < journal.MaxFollows {
			w.follows = append(w.follows, id)
		}
	}
	if len(w.follows) == 0 {
		return nil
	}
	return w.follows
}

// hashOf returns a hash of a scope and attributes of a resource, as far as they exist; 0 if none does.
func hashOf(resource pcommon.Map, scope string, names ...string) uint64 {
	all := []byte(scope)
	for _, name := range names {
		if v, ok := resource.Get(name); ok && (v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeInt) {
			all = append(append(append(append(all, 0), name...), 0), v.AsString()...)
		}
	}
	return uint64(journal.SessionOf(string(all)))
}

// runOf returns the run of a resource. A run whose id is not a valid name must not count as production, so it gets a hash of its id.
func runOf(resource pcommon.Map, counts *Counts) journal.Name {
	v, ok := resource.Get(semconv.RunID)
	if !ok {
		return journal.Name{}
	}
	id := v.Str()
	switch v.Type() {
	case pcommon.ValueTypeStr, pcommon.ValueTypeEmpty:
	default:
		// No run has such an id, so it need not be distinguished from similar ones, and a text of it could take any amount of memory.
		id = "a " + v.Type().String()
	}
	name, err := journal.ParseName(id)
	if err != nil {
		counts.invalid(semconv.RunID)
		name, _ = journal.ParseName(journal.SessionOf(id).String()) // hex digits are a valid name
	}
	return name
}
