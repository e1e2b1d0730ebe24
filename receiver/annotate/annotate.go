// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate

import (
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// Annotator annotates telemetry. It is safe for concurrent use.
type Annotator struct {
	config      Config
	fingerprint string // of the key
	rules       *rules
	pool        sync.Pool // of *worker
}

// New returns an annotator, or an error about the configuration.
func New(config Config) (*Annotator, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.BlockSize == 0 {
		config.BlockSize = mooncake.BlockSize
	}
	config.SessionKeys, config.Deny = slices.Clone(config.SessionKeys), slices.Clone(config.Deny)
	config.ClassKeys, config.PromptOrder = slices.Clone(config.ClassKeys), slices.Clone(config.PromptOrder)
	a := &Annotator{config: config, fingerprint: config.Key.Fingerprint(), rules: newRules(config)}
	a.pool.New = func() any {
		return &worker{
			Annotator: a,
			reader:    genai.NewReader(genai.Options{SessionKeys: config.SessionKeys, ClassKeys: config.ClassKeys, Limits: config.Limits}),
			domains:   map[domainKey]*domain{},
			twins:     map[string]string{},
		}
	}
	return a, nil
}

// Fingerprint returns the fingerprint of the key. Every span with cells or ids made here has it.
func (a *Annotator) Fingerprint() string { return a.fingerprint }

// keeps reports whether text is kept.
func (a *Annotator) keeps() bool { return a.config.Content == ContentKeep }

// Traces annotates and cleans spans in place. It adds and removes no span. A span that is already annotated is only cleaned.
func (a *Annotator) Traces(td ptrace.Traces) Counts {
	w := a.worker()
	defer w.release()
	for _, resource := range td.ResourceSpans().All() {
		service := serviceName(resource.Resource())
		for _, scope := range resource.ScopeSpans().All() {
			name := scope.Scope().Name()
			for _, span := range scope.Spans().All() {
				w.span(service, name, span)
			}
			w.cleanScope(scope)
		}
		w.cleanResource(resource)
	}
	return w.counts
}

// serviceName returns the name of the service that sent the telemetry, or "".
func serviceName(resource pcommon.Resource) string {
	if v, ok := resource.Attributes().Get(semconv.ServiceName); ok && v.Type() == pcommon.ValueTypeStr && len(v.Str()) <= maxName {
		return v.Str()
	}
	return ""
}

// span annotates and cleans a span.
func (w *worker) span(service, scope string, span ptrace.Span) {
	w.counts.Spans++
	attributes := span.Attributes()
	kind, strict := genai.KindInference, true
	if isAnnotated(attributes) {
		w.counts.Annotated++
	} else {
		rec := w.reader.Span(scope, span)
		if kind, strict = rec.Kind, rec.Dialect != ""; strict {
			count(&w.counts.Dialects, rec.Dialect, 1)
		}
		switch kind {
		case genai.KindInference:
			name := ""
			if rec.Engine.BlockSize > 0 {
				name = spanKey{span.TraceID(), span.SpanID()}.name()
			}
			id := w.identify(rec, service, name) // read the attributes before they change
			w.readTools(rec)
			w.annotate(rec, id, attributes)
			w.tools.put(attributes)
		case genai.KindTool:
			w.readTools(rec)
			w.tools.put(attributes)
		default:
		}
		w.putSession(rec, attributes)
		putClass(rec, attributes)
	}
	if w.keeps() {
		return
	}
	before := attributes.Len()
	w.cleanSpan(span, strict)
	if strict && kind != genai.KindInference && attributes.Len() < before && w.reader.Span(scope, span).Kind == genai.KindInference {
		// Cleaning has removed the evidence that the span is not a request.
		attributes.PutStr(spanKind, spanKindChain)
	}
}

// The attribute in which OpenInference names the kind of a span, and the kind of spans around requests.
const (
	spanKind      = "openinference.span.kind"
	spanKindChain = "CHAIN"
)

// putSession writes the keyed hash of a record's session, unless the span has a session already.
func (w *worker) putSession(rec *genai.Record, attributes pcommon.Map) {
	if rec.Session == "" {
		return
	}
	if v, ok := attributes.Get(semconv.Session); ok && (v.Type() == pcommon.ValueTypeInt || v.Type() == pcommon.ValueTypeStr && v.Str() != "") {
		return
	}
	attributes.PutStr(semconv.Session, w.twin(rec.Session))
	w.counts.Sessions++
}

// putClass writes the class and the priority of a record, unless the span has its own.
func putClass(rec *genai.Record, attributes pcommon.Map) {
	if _, ok := attributes.Get(semconv.Class); !ok {
		putString(attributes, semconv.Class, rec.Class)
	}
	if _, ok := attributes.Get(semconv.Priority); !ok {
		putTokens(attributes, semconv.Priority, rec.Priority)
	}
}
