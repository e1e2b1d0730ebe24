// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package annotate_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/internal/testproducers"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// testKey returns a key that is the same in every run.
func testKey(t testing.TB, c byte) blockhash.Key {
	t.Helper()
	key, err := blockhash.NewKey(bytes.Repeat([]byte{c}, blockhash.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAnnotator(t testing.TB, config annotate.Config) *annotate.Annotator {
	t.Helper()
	if config.Key.IsZero() {
		config.Key = testKey(t, 'k')
	}
	a, err := annotate.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// producers returns the folder of real telemetry next to the repository, with what the server really received. It skips the test if there
// is none.
func producers(t testing.TB) string {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "shared", "data", "producers")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("captured telemetry is not here, so nothing is compared with it: %v", err)
	}
	return folder
}

// figures are the expected counts for a producer, without those of removed values.
type figures struct {
	Spans         int64
	Dialects      map[genai.Dialect]int64
	Identities    map[string]int64
	Sessions      int64
	WithoutTokens int64
	Truncated     int64
	Logs, Content int64
	Carriers      int64
	Dropped       map[annotate.Reason]int64
}

type (
	dialects = map[genai.Dialect]int64
	named    = map[string]int64
	reasons  = map[annotate.Reason]int64
)

func TestProducers(t *testing.T) {
	folder := producers(t)
	for _, c := range []struct {
		producer, reason string
		want             figures
	}{
		{
			"otel-js-openai", "messages in logs; two requests have logs and no span; the Responses API repeats itself in attributes; a reply came in the batch after its prompt",
			figures{
				Spans: 66, Dialects: dialects{"otel": 2, "otel-1.36": 17}, Identities: named{"none": 18, "text": 20},
				Sessions: 22, WithoutTokens: 5, Logs: 68, Content: 68, Carriers: 20,
				Dropped: reasons{"usage_estimate": 2, "reply_without_prompt": 1},
			},
		},
		{
			"otel-js-openai-nocontent", "the same, but records of messages have no text",
			figures{
				Spans: 41, Dialects: dialects{"otel": 2, "otel-1.36": 17}, Identities: named{"none": 18},
				Sessions: 22, WithoutTokens: 5, Logs: 68, Content: 68, Carriers: 2, // with the ids of a tool call
				Dropped: reasons{"prompt_textless": 20, "usage_estimate": 2},
			},
		},
		{
			"js-traceloop-openai", "the count of tokens shows that one prompt lacks its instructions; no counts on streams",
			figures{
				Spans: 39, Dialects: dialects{"traceloop": 17}, Identities: named{"none": 1, "text": 16},
				Sessions: 22, WithoutTokens: 9, Dropped: reasons{"prompt_gaps": 1, "usage_estimate": 7},
			},
		},
		{
			"js-openinference-openai", "an embedding is in the dialect, but is not a request; sessions on the spans themselves; reasoning was counted, but its text is not there",
			figures{
				Spans: 40, Dialects: dialects{"openinference": 18}, Identities: named{"text": 17},
				Sessions: 18, WithoutTokens: 8, Dropped: reasons{"usage_estimate": 6, "reply_partial": 1},
			},
		},
		{
			"js-openinference-longconv", "two spans lost counts and messages to the attribute cap, and kept input.value",
			figures{Spans: 4, Dialects: dialects{"openinference": 4}, Identities: named{"text": 4}, WithoutTokens: 2},
		},
		{
			"vercel-ai7-otel", "agents, steps and tools are not requests",
			figures{
				Spans: 66, Dialects: dialects{"vercel": 51}, Identities: named{"text": 17},
				Sessions: 15, WithoutTokens: 5,
			},
		},
		{
			"go-genkit", "flows and util spans are not requests; no sessions; streams report characters instead of tokens",
			figures{
				Spans: 27, Dialects: dialects{"genkit": 27}, Identities: named{"text": 13}, WithoutTokens: 9,
				Dropped: reasons{"usage_estimate": 6},
			},
		},
	} {
		t.Run(c.producer, func(t *testing.T) {
			a := newAnnotator(t, annotate.Config{})
			var n annotate.Counts
			stem := filepath.Join(folder, c.producer)
			testproducers.EachTraces(t, stem, func(td ptrace.Traces) { n.Add(a.Traces(td)) })
			testproducers.EachLogs(t, stem, func(ld plog.Logs) {
				_, counts := a.Logs(ld)
				n.Add(counts)
			})
			got := figures{n.Spans, n.Dialects, n.Identities, n.Sessions, n.WithoutTokens, n.Truncated, n.Logs, n.ContentLogs, n.Carriers, n.Dropped}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}
