// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"cmp"
	"context"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/semconv"
)

// Requests are counted by model, identity, outcome and traffic, and their tokens by model. A batch is added up first and then counted at
// once, so that a request costs a few additions. Models come from the network: the first of them have names, the rest share one.

// Values of the attribute model that are no names.
const (
	modelUnknown = "unknown"
	modelOther   = "other"
)

// Values of the attribute type of tokens, as indices.
const (
	tokensPrompt = iota
	tokensOutput
	tokensCached
	tokensCacheKnown
	tokenTypes
)

var (
	tokenNames   = [tokenTypes]string{"prompt", "output", "cached", "cache_known"}
	outcomeNames = [2]string{"served", "failed"}
	trafficNames = [2]string{"production", "replay"}
)

const identities = journal.None + 1

// identityName returns the attribute's value. A request without an identity is one that nobody annotated.
func identityName(i journal.Identity) string {
	if i == journal.NoIdentity {
		return "unannotated"
	}
	return i.String()
}

// series are the attributes of all measurements of a model and a kind of traffic, made once.
type series struct {
	spans  [len(outcomeNames)][identities]metric.MeasurementOption
	tokens [tokenTypes]metric.MeasurementOption
}

func newSeries(model string, traffic int) *series {
	option := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String("model", model), attribute.String("traffic", trafficNames[traffic]))...))
	}
	s := new(series)
	for outcome, name := range outcomeNames {
		for i := range identities {
			s.spans[outcome][i] = option(attribute.String("outcome", name), attribute.String("identity", identityName(i)))
		}
	}
	for i, name := range tokenNames {
		s.tokens[i] = option(attribute.String("type", name))
	}
	return s
}

// models has the series of each model that was seen. It is safe for concurrent use.
type models struct {
	max     int
	metrics metrics

	mu    sync.Mutex
	named int // of known, without the two that are no names
	known map[string]*[len(trafficNames)]*series
}

// series returns that of a model, by the name that metrics have for it.
func (m *models) series(model string, traffic int) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known[model] == nil && model != modelUnknown && model != modelOther {
		if m.named < m.max {
			m.named++
		} else {
			model = modelOther
		}
	}
	all := m.known[model]
	if all == nil {
		all = new([len(trafficNames)]*series)
		m.known[strings.Clone(model)] = all
	}
	if all[traffic] == nil {
		all[traffic] = newSeries(model, traffic)
		for _, option := range all[traffic].tokens {
			m.metrics.ExporterMooncakeTokens.Add(context.Background(), 0, option) // a rate needs a beginning
		}
	}
	return all[traffic]
}

// tally is what a batch has of requests.
type tally struct {
	lines      []line
	at         *line // that was added to last: requests come in runs of one model
	ended      int64 // when the request ended that did so first, in ns since the Unix epoch; 0 is none
	production bool  // one of them is of production
}

// line is one model's.
type line struct {
	model   string
	traffic int
	*series
	spans  [len(outcomeNames)][identities]int64
	tokens [tokenTypes]int64
}

func (t *tally) reset() {
	clear(t.lines)
	*t = tally{lines: t.lines[:0]}
}

// add adds a request.
func (t *tally) add(r *journal.Inference, m *models) {
	traffic, outcome, identity := 0, 0, r.Identity
	if r.Row.Set || !r.Run.IsZero() {
		traffic = 1
	} else {
		t.production = true
	}
	if r.Failed {
		outcome = 1
	}
	if identity == journal.NoIdentity && r.Row.Set {
		identity = journal.None // the agent wrote the span, so it is annotated
	}
	if t.ended == 0 || r.End < t.ended {
		t.ended = r.End
	}
	l := t.at
	if model := r.Model.String(); l == nil || l.model != model || l.traffic != traffic {
		l = t.line(model, traffic, m)
		t.at = l
	}
	l.spans[outcome][identity]++
	prompt, output, cached := &r.InputTokens, r.OutputTokens.V, &r.CachedTokens
	if prompt.V > capture.MaxTokens || output > capture.MaxTokens {
		return // nobody would believe the sum; no trace has it either
	}
	l.tokens[tokensPrompt] += prompt.V
	l.tokens[tokensOutput] += output
	if prompt.Set && cached.Set {
		l.tokens[tokensCached] += min(cached.V, prompt.V)
		l.tokens[tokensCacheKnown] += prompt.V
	}
}

// line returns that of a model; all models that metrics have no name for share one.
func (t *tally) line(model string, traffic int, m *models) *line {
	for i := range t.lines {
		if l := &t.lines[i]; l.model == model && l.traffic == traffic {
			return l
		}
	}
	s := m.series(cmp.Or(model, modelUnknown), traffic)
	for i := range t.lines {
		if l := &t.lines[i]; l.series == s {
			return l
		}
	}
	t.lines = append(t.lines, line{model: model, traffic: traffic, series: s})
	return &t.lines[len(t.lines)-1]
}

// count counts what was added, once.
func (t *tally) count(ctx context.Context, m metrics) {
	for i := range t.lines {
		l := &t.lines[i]
		for outcome := range l.spans {
			for identity, n := range l.spans[outcome] {
				if n > 0 {
					m.ExporterMooncakeRequestSpans.Add(ctx, n, l.series.spans[outcome][identity])
				}
			}
		}
		for i, n := range l.tokens {
			if n > 0 {
				m.ExporterMooncakeTokens.Add(ctx, n, l.series.tokens[i])
			}
		}
	}
}

// rows counts those of a compiled trace, and the requests that are none.
func (o *observer) rows(ctx context.Context, t capture.TraceResult) {
	traffic := trafficNames[0]
	if t.Replay {
		traffic = trafficNames[1]
	}
	for identity, n := range t.Meta.Identity {
		o.ExporterMooncakeRows.Add(ctx, n, rowsOf(identity, traffic))
	}
	for _, d := range t.Meta.Dropped {
		if d.What == "rows" || d.What == "requests" {
			o.ExporterMooncakeLeftOutRequests.Add(ctx, d.Count, with("reason", strings.ReplaceAll(d.Reason, " ", "_")))
		}
	}
}

func rowsOf(identity, traffic string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("identity", identity), attribute.String("traffic", traffic)))
}

// identitiesOfRows are those of production's rows.
var identitiesOfRows = []string{semconv.IdentityEngine, semconv.IdentityTokens, semconv.IdentityText, semconv.IdentityStructure, semconv.IdentityLengths}
