// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
	"github.com/moonloop/moonloop/semconv"
)

// TestMadeProducers converts telemetry of our own making that imitates each kind of producer: every request is a row, or the reason is
// reported. [TestProducers] uses what real libraries wrote, if it is available.
func TestMadeProducers(t *testing.T) {
	for _, p := range testproducers.All() {
		t.Run(p.Name, func(t *testing.T) {
			var traces []*trace
			opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}
			files := []capture.Source{source("traces", string(p.Traces)), source("logs", string(p.Logs))}
			if p.Logs == nil {
				files = files[:1]
			}
			if _, err := convert.Convert(t.Context(), opt, memory(&traces), files...); err != nil {
				t.Fatal(err)
			}
			rows := traces[0].rows(t)
			sessions := 0
			for _, row := range rows {
				if row.SessionID != "" {
					sessions++
				}
			}
			dropped := map[string]int64{}
			for _, d := range traces[0].meta.Dropped {
				dropped[d.What+": "+d.Reason] = d.Count
			}
			got := testproducers.Account{
				Requests: p.Want.Requests, Rows: len(rows), Sessions: sessions, Text: int(traces[0].meta.Identity["text"]),
				Failed: int(dropped["requests: failed"]), Uncounted: int(dropped["rows: no token counts"]),
				Embeddings: p.Want.Embeddings, NoSpan: p.Want.NoSpan,
			}
			if got != p.Want {
				t.Errorf("%s\ngot  %+v\nwant %+v, dropped %v", p.Reason, got, p.Want, dropped)
			}
		})
	}
}

// TestDenyLosesNoRow: every request that becomes a row also becomes one if an operator denies all attributes that may be denied.
func TestDenyLosesNoRow(t *testing.T) {
	attribute := regexp.MustCompile(`"key":"([^"]+)"`)
	for _, p := range testproducers.All() {
		config := annotate.Config{Key: testKey(t)}
		names := []string{ // a receiver adds these
			semconv.GenAIOperationName, semconv.GenAIProviderName, semconv.GenAIRequestModel, semconv.GenAIResponseModel, semconv.GenAIResponseID,
			semconv.GenAIResponseFinishReasons, semconv.GenAIResponseTimeToFirstChunk, semconv.GenAIUsageInputTokens, semconv.GenAIUsageOutputTokens,
			semconv.GenAIUsageCacheReadTokens, semconv.GenAIUsageCacheWriteTokens, semconv.GenAIUsageReasoningTokens, semconv.ErrorType,
		}
		for _, match := range attribute.FindAllSubmatch(slices.Concat(p.Traces, p.Logs), -1) {
			names = append(names, string(match[1]))
		}
		for _, name := range names {
			if (&annotate.Config{Deny: []string{name}}).Validate() == nil {
				config.Deny = append(config.Deny, name)
			}
		}
		files := []capture.Source{source("traces", string(p.Traces)), source("logs", string(p.Logs))}
		if p.Logs == nil {
			files = files[:1]
		}
		var traces []*trace
		if _, err := convert.Convert(t.Context(), convert.Options{Format: convert.OTLP, Annotate: config}, memory(&traces), files...); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if len(config.Deny) < 12 {
			t.Errorf("%s: only %d attributes may be denied: %q", p.Name, len(config.Deny), config.Deny)
		}
		if got := len(traces[0].rows(t)); got != p.Want.Rows {
			t.Errorf("%s: with %q denied, %d rows, want %d; dropped %v", p.Name, config.Deny, got, p.Want.Rows, traces[0].meta.Dropped)
		}
	}
}
