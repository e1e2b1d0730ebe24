// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/semconv"
)

func TestCaptureCounts(t *testing.T) {
	td := ptrace.NewTraces()
	calibration := td.ResourceSpans().AppendEmpty()
	calibration.Resource().Attributes().PutStr(semconv.RunID, "r")
	calibration.ScopeSpans().AppendEmpty().Spans().AppendEmpty().Attributes().PutStr(semconv.Identity, semconv.IdentityNone)
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	add := func(name string, attributes ...string) {
		s := spans.AppendEmpty()
		s.SetName(name)
		for i := 0; i < len(attributes); i += 2 {
			s.Attributes().PutStr(attributes[i], attributes[i+1])
		}
	}
	add("POST /assistant")
	add("chat m", semconv.Identity, semconv.IdentityText, semconv.GenAIUsageInputTokens, "5", semconv.GenAIUsageOutputTokens, "5")
	add("chat m", semconv.Identity, semconv.IdentityNone)
	add("chat m", semconv.Identity, semconv.IdentityTrace, semconv.Row, "0")
	add(semconv.SpanContent, semconv.Identity, semconv.IdentityText)

	var said []string
	c := tally{warn: func(text string) { said = append(said, text) }}
	if c.counts().Silence() != 0 {
		t.Error("silence before the first span")
	}
	refused := errors.New("disk full")
	for range 2 {
		if err := c.tap(consumertest.NewErr(refused))(t.Context(), td); !errors.Is(err, refused) {
			t.Errorf("error %v, want that of the exporter", err)
		}
	}
	if got, want := c.counts().String(), "spans 0 · requests 0 · REFUSED 12"; got != want {
		t.Errorf("after refused batches: %q, want %q", got, want)
	}
	for range 2 {
		if err := c.tap(consumertest.NewNop())(t.Context(), td); err != nil {
			t.Fatal(err)
		}
	}
	if len(said) != 2 || !strings.Contains(said[0], "disk full; spans are refused") || !strings.Contains(said[1], "12 spans refused so far") {
		t.Errorf("warnings %q, want one when refusing begins and one when it ends", said)
	}
	if got, want := c.counts().String(), "spans 12 · requests 8 · of replays 4 · REFUSED 12 · 2 without token counts · 2 without prompt"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if c.counts().Last.IsZero() {
		t.Error("the last arrival is not noted")
	}
	points := pmetric.NewMetrics()
	points.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty()
	if err := c.discard(t.Context(), points); err != nil || c.counts().Points != 1 {
		t.Errorf("%d points counted (%v), want 1", c.counts().Points, err)
	}
}

// TestCaptureCountsMost: what most requests lack gets a hint, once there are enough requests.
func TestCaptureCountsMost(t *testing.T) {
	for _, tc := range []struct {
		production, uncounted, anonymous int64
		want                             string
	}{
		{9, 9, 9, "spans 0 · requests 9 · 9 without token counts · 9 without prompt"}, // too few to tell
		{10, 5, 5, "spans 0 · requests 10 · 5 without token counts · 5 without prompt"},
		{10, 6, 10, "spans 0 · requests 10 · 6 without token counts, which is most of them: they give no rows · 10 without prompt, which is most of them: is content recorded?"},
	} {
		c := Counts{Requests: tc.production, Uncounted: tc.uncounted, Anonymous: tc.anonymous}
		if got := c.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
