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

// Requests are counted by model, identity, outcome and traffic, and their tokens by model and traffic. A batch is added up
// first and then counted at once, so that each request costs only a few additions. The names of models come from the network,
// so their number is limited: the first models keep their names, and the rest share one name.

// Values of the attribute model that are not the name of a model.
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

// Values of the attribute outcome, as indices: of a request that a replay itself ended, failed + its ending.
const (
	served = iota
	failed
	outcomes = failed + int(journal.Disconnected) + 1
)

var (
	tokenNames   = [tokenTypes]string{"prompt", "output", "cached", "cache_known"}
	outcomeNames = [outcomes]string{"served", "failed", "skipped", "cancelled", "disconnected"}
	trafficNames = [2]string{"production", "replay"}
)

const identities = journal.None + 1

// identityName returns the value of the attribute identity. A request without an identity was not annotated.
func identityName(i journal.Identity) string {
	if i == journal.NoIdentity {
		return "unannotated"
	}
	return i.String()
}

// series holds the attributes of all measurements of one model and kind of traffic, so that they are made only once.
type series struct {
	model  string // as the metrics name it
	spans  [len(outcomeNames)][identities]metric.MeasurementOption
	tokens [tokenTypes]metric.MeasurementOption
}

func newSeries(model string, traffic int) *series {
	option := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(more, attribute.String("model", model), attribute.String("traffic", trafficNames[traffic]))...))
	}
	s := &series{model: model}
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

// models holds the series of each model seen so far. It is safe for concurrent use.
type models struct {
	max     int
	metrics metrics

	mu    sync.Mutex
	named int // number of models in known, without modelUnknown and modelOther
	known map[string]*[len(trafficNames)]*series
}

// series returns the series of a model, under the name that the metrics use for it.
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
		all[traffic] = newSeries(strings.Clone(model), traffic)
		for _, option := range all[traffic].tokens {
			m.metrics.ExporterMooncakeTokens.Add(context.Background(), 0, option) // rate() needs a first sample of 0
		}
	}
	return all[traffic]
}

// tally adds up the requests of a batch.
type tally struct {
	lines      []line
	at         *line // the last line added to; requests of one model often follow one another
	ended      int64 // the earliest end of a request, in ns since the Unix epoch; 0: none
	production bool  // at least one request is production traffic
}

// line adds up the requests of one model and kind of traffic.
type line struct {
	model string // of the first request
	*series
	sums
}

// sums are the figures of a line, with the model and the traffic to which they belong.
type sums struct {
	Model   string                               `json:"model"` // as the metrics name it
	Traffic int                                  `json:"traffic,omitzero"`
	Spans   [len(outcomeNames)][identities]int64 `json:"spans"`
	Tokens  [tokenTypes]int64                    `json:"tokens"`
}

// add adds the figures of another line of the same model and traffic.
func (s *sums) add(o *sums) {
	for outcome := range s.Spans {
		for identity := range s.Spans[outcome] {
			s.Spans[outcome][identity] += o.Spans[outcome][identity]
		}
	}
	for i := range s.Tokens {
		s.Tokens[i] += o.Tokens[i]
	}
}

func (t *tally) reset() {
	clear(t.lines)
	*t = tally{lines: t.lines[:0]}
}

// add adds a request.
func (t *tally) add(r *journal.Inference, m *models) {
	traffic, outcome, identity := 0, served, r.Identity
	if r.Row.Set || !r.Run.IsZero() {
		traffic = 1
	} else {
		t.production = true
	}
	if r.Failed {
		outcome = failed + int(r.Ending)
	}
	if identity == journal.NoIdentity && r.Row.Set {
		identity = journal.None // a replay wrote the span, so the span is annotated
	}
	if t.ended == 0 || r.End < t.ended {
		t.ended = r.End
	}
	l := t.at
	if model := r.Model.String(); l == nil || l.model != model || l.Traffic != traffic {
		l = t.line(model, traffic, m)
		t.at = l
	}
	l.Spans[outcome][identity]++
	prompt, output, cached := &r.InputTokens, r.OutputTokens.V, &r.CachedTokens
	if prompt.V > capture.MaxTokens || output > capture.MaxTokens {
		return // such counts would spoil the sum; traces leave the request out, too
	}
	l.Tokens[tokensPrompt] += prompt.V
	l.Tokens[tokensOutput] += output
	if prompt.Set && cached.Set {
		l.Tokens[tokensCached] += min(cached.V, prompt.V)
		l.Tokens[tokensCacheKnown] += prompt.V
	}
}

// line returns the line of a model. All models for which the metrics have no name share one line.
func (t *tally) line(model string, traffic int, m *models) *line {
	for i := range t.lines {
		if l := &t.lines[i]; l.model == model && l.Traffic == traffic {
			return l
		}
	}
	return t.lineOf(m.series(cmp.Or(model, modelUnknown), traffic), model, traffic)
}

// lineOf returns the line with a series.
func (t *tally) lineOf(s *series, model string, traffic int) *line {
	for i := range t.lines {
		if l := &t.lines[i]; l.series == s {
			return l
		}
	}
	t.at = nil // it may be moved
	t.lines = append(t.lines, line{model: model, series: s, sums: sums{Model: s.model, Traffic: traffic}})
	return &t.lines[len(t.lines)-1]
}

// merge adds the requests of another tally.
func (t *tally) merge(o *tally) {
	for i := range o.lines {
		t.lineOf(o.lines[i].series, o.lines[i].model, o.lines[i].Traffic).sums.add(&o.lines[i].sums)
	}
	t.production = t.production || o.production
	if t.ended == 0 || o.ended != 0 && o.ended < t.ended {
		t.ended = o.ended
	}
}

// restore adds figures that a queue has stored.
func (t *tally) restore(s *sums, m *models) {
	t.line(s.Model, s.Traffic, m).sums.add(s)
}

// count adds the tally to the metrics.
func (t *tally) count(ctx context.Context, m metrics) {
	for i := range t.lines {
		l := &t.lines[i]
		for outcome := range l.Spans {
			for identity, n := range l.Spans[outcome] {
				if n > 0 {
					m.ExporterMooncakeRequestSpans.Add(ctx, n, l.series.spans[outcome][identity])
				}
			}
		}
		for i, n := range l.Tokens {
			if n > 0 {
				m.ExporterMooncakeTokens.Add(ctx, n, l.series.tokens[i])
			}
		}
	}
}

// rows counts the rows of a compiled trace, and the requests that did not become rows.
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

// identitiesOfRows lists the identities that rows of production can have.
var identitiesOfRows = []string{semconv.IdentityEngine, semconv.IdentityTokens, semconv.IdentityText, semconv.IdentityStructure, semconv.IdentityLengths}
