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

// New returns an annotator, or what is wrong with the configuration.
func New(config Config) (*Annotator, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if config.BlockSize == 0 {
		config.BlockSize = mooncake.BlockSize
	}
	config.SessionKeys, config.Deny = slices.Clone(config.SessionKeys), slices.Clone(config.Deny)
	config.PromptOrder = slices.Clone(config.PromptOrder)
	a := &Annotator{config: config, fingerprint: config.Key.Fingerprint(), rules: newRules(config)}
	a.pool.New = func() any {
		return &worker{
			Annotator: a,
			reader:    genai.NewReader(genai.Options{SessionKeys: config.SessionKeys, Limits: config.Limits}),
			domains:   map[domainKey]*domain{},
			twins:     map[string]string{},
		}
	}
	return a, nil
}

// Fingerprint returns that of the key, which is on every span that carries cells or ids made here.
func (a *Annotator) Fingerprint() string { return a.fingerprint }

// Traces annotates and cleans spans in place; none is added and none is lost. What has been annotated before is only
// cleaned.
func (a *Annotator) Traces(td ptrace.Traces) Counts {
	var counts Counts
	w := a.pool.Get().(*worker) //nolint:forcetypeassert // the pool has nothing else
	defer w.release()
	c := cleaner{rules: a.rules, counts: &counts, twin: w.twin}
	for _, resource := range td.ResourceSpans().All() {
		service := serviceName(resource.Resource())
		for _, scope := range resource.ScopeSpans().All() {
			name := scope.Scope().Name()
			for _, span := range scope.Spans().All() {
				w.span(&c, service, name, span)
			}
			if a.config.Content != ContentKeep {
				c.scope(scope.Scope())
				c.schema(scope)
			}
		}
		if a.config.Content != ContentKeep {
			c.resource(resource.Resource())
			c.schema(resource)
		}
	}
	return counts
}

// serviceName returns the name of the service that telemetry is from, or "".
func serviceName(resource pcommon.Resource) string {
	if v, ok := resource.Attributes().Get(semconv.ServiceName); ok && v.Type() == pcommon.ValueTypeStr && len(v.Str()) <= maxName {
		return v.Str()
	}
	return ""
}

// span annotates and cleans a span.
func (w *worker) span(c *cleaner, service, scope string, span ptrace.Span) {
	c.counts.Spans++
	attributes := span.Attributes()
	if annotated(attributes) {
		c.counts.Annotated++
		if w.config.Content != ContentKeep {
			c.span(span, true)
		}
		return
	}
	rec := w.reader.Span(scope, span)
	kind, strict := rec.Kind, rec.Dialect != ""
	if strict {
		count(&c.counts.Dialects, rec.Dialect, 1)
	}
	if kind == genai.KindInference {
		name := ""
		if rec.Engine.BlockSize > 0 {
			name = spanKey{span.TraceID(), span.SpanID()}.name()
		}
		id := w.identify(c.counts, rec, service, name) // reads the attributes before they change
		w.annotate(c.counts, rec, id, attributes)
	}
	w.session(c.counts, rec, attributes)
	if w.config.Content == ContentKeep {
		return
	}
	before := attributes.Len()
	c.span(span, strict)
	if strict && kind != genai.KindInference && attributes.Len() < before {
		if w.reader.Span(scope, span).Kind == genai.KindInference {
			// What said that it is none is gone with the text.
			attributes.PutStr(spanKind, spanKindChain)
		}
	}
}

// The attribute by which OpenInference says what a span is, and its word for what stands around requests.
const (
	spanKind      = "openinference.span.kind"
	spanKindChain = "CHAIN"
)

// session writes the twin of the session that a record names, unless a session is there.
func (w *worker) session(counts *Counts, rec *genai.Record, attributes pcommon.Map) {
	id := rec.SessionID()
	if id == "" {
		return
	}
	if v, ok := attributes.Get(semconv.Session); ok {
		switch v.Type() {
		case pcommon.ValueTypeInt:
			return
		case pcommon.ValueTypeStr:
			if v.Str() != "" {
				return
			}
		default:
		}
	}
	attributes.PutStr(semconv.Session, w.twin(id))
	counts.Sessions++
}
