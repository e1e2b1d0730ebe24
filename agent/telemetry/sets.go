// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/semconv"
)

// maxSets is the maximum number of attribute sets. An engine that names a new model in each reply, or keeps failing in new ways, or a trace
// with a class for each row, must not increase the memory of agent and backend without limit: later sets count as "_OTHER".
const maxSets = 128

// sets are the options of every measurement of one kind of request, ready for use.
type sets struct {
	plain         []metric.RecordOption    // the attributes that all metrics share
	operation     []metric.RecordOption    // with the outcome and error.type
	input, output []metric.RecordOption    // with the token type
	promptError   [3][]metric.RecordOption // with the sign of the prompt's token error: fewer, equal, more
	requests      []metric.AddOption       // with the outcome
	add           []metric.AddOption       // as plain
}

// setKey has what distinguishes the sets of two requests.
type setKey struct {
	outcome       measure.Outcome
	reason, model string
	asked         string // the model that was asked for
	class         string // of the row
	server        *measure.Server
}

// setCache makes sets when they are first needed.
type setCache struct {
	base  []attribute.KeyValue
	model string // asked for by requests whose record names none

	mu   sync.Mutex
	sets map[setKey]*sets
}

func (c *setCache) of(r *measure.Record) *sets {
	key := setKey{outcome: r.Outcome, reason: r.Reason, asked: cmp.Or(r.Model, c.model), server: r.Server}
	if r.Sent {
		key.model = r.Exchange.Model
	}
	if r.Row != nil {
		key.class = r.Row.Class
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sets) >= maxSets && c.sets[key] == nil {
		if key.reason != "" {
			key.reason = semconv.ErrorOther
		}
		if key.asked != c.model {
			key.asked = semconv.ErrorOther
		}
		if key.class != "" {
			key.class = semconv.ErrorOther
		}
		key.model = ""
	}
	if s := c.sets[key]; s != nil {
		return s
	}
	s := c.build(key)
	c.sets[key] = s
	return s
}

func (c *setCache) build(key setKey) *sets {
	base := append(slices.Clip(c.base), attribute.String(semconv.GenAIRequestModel, key.asked))
	if key.model != "" {
		base = append(base, attribute.String(semconv.GenAIResponseModel, key.model))
	}
	if key.class != "" {
		base = append(base, attribute.String(semconv.Class, key.class))
	}
	if s := key.server; s != nil {
		base = append(base, attribute.String(semconv.ServerAddress, s.Address), attribute.Int(semconv.ServerPort, s.Port))
	}
	with := func(kvs ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(slices.Clip(base), kvs...)...))
	}
	record := func(kvs ...attribute.KeyValue) []metric.RecordOption { return []metric.RecordOption{with(kvs...)} }
	recordAs := func(key, value string) []metric.RecordOption { return record(attribute.String(key, value)) }
	var why []attribute.KeyValue
	switch {
	case key.outcome == measure.Skipped:
		why = append(why, attribute.String(semconv.OutcomeReason, key.reason))
	case key.outcome != measure.Served && key.outcome != measure.Disconnected:
		why = append(why, attribute.String(semconv.ErrorType, cmp.Or(key.reason, semconv.ErrorOther)))
	}
	why = append(why, attribute.String(semconv.Outcome, key.outcome.String()))
	return &sets{
		plain:     record(),
		operation: record(why...),
		input:     recordAs(semconv.GenAITokenType, semconv.TokenTypeInput),
		output:    recordAs(semconv.GenAITokenType, semconv.TokenTypeOutput),
		promptError: [3][]metric.RecordOption{
			recordAs(semconv.PromptErrorSign, semconv.SignFewer),
			recordAs(semconv.PromptErrorSign, semconv.SignEqual),
			recordAs(semconv.PromptErrorSign, semconv.SignMore),
		},
		requests: []metric.AddOption{with(why...)},
		add:      []metric.AddOption{with()},
	}
}
