// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"testing"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

func TestCaptureCounts(t *testing.T) {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(name string, attributes ...string) {
		s := spans.AppendEmpty()
		s.SetName(name)
		for i := 0; i < len(attributes); i += 2 {
			s.Attributes().PutStr(attributes[i], attributes[i+1])
		}
	}
	add("POST /assistant")
	add("chat m", semconv.Identity, semconv.IdentityText)
	add("chat m", semconv.Identity, semconv.IdentityNone)
	add("chat m", semconv.Identity, semconv.IdentityTrace, semconv.Row, "0")
	add(contentSpan, semconv.Identity, semconv.IdentityText)

	var c captureCounts
	if c.silence() != 0 {
		t.Error("silence before the first span")
	}
	refused := errors.New("disk full")
	if err := c.tap(consumertest.NewErr(refused))(t.Context(), td); !errors.Is(err, refused) {
		t.Errorf("error %v, want that of the exporter", err)
	}
	if got, want := c.String(), "spans 0 · inference 0 · prompt unknown 0"; got != want {
		t.Errorf("after a refused batch: %q, want %q", got, want)
	}
	for range 2 {
		if err := c.tap(consumertest.NewNop())(t.Context(), td); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.String(), "spans 10 · inference 6 · of replays 2 · prompt unknown 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if c.lastArrive.Load() == 0 {
		t.Error("the last arrival is not noted")
	}
}
