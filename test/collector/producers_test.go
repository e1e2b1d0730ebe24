// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testproducers"
)

// producersConfig keeps everything that can leave the receiver: it sends it to journals, to files, and to the log with every attribute.
const producersConfig = `
receivers:
  mooncake:
    protocols:
      http: {endpoint: %q}
    hash_key: ${env:MOONLOOP_HASH_KEY}
exporters:
  mooncake: {directory: journals}
  file/spans: {path: spans.jsonl}
  file/logs: {path: logs.jsonl}
  debug: {verbosity: detailed, sampling_initial: 1000000}
extensions: {health_check: }
service:
  extensions: [health_check]
  pipelines:
    traces: {receivers: [mooncake], exporters: [mooncake, file/spans, debug]}
    logs: {receivers: [mooncake], exporters: [file/logs, debug]}
  telemetry:
    metrics: {level: detailed, readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}
`

// account are the results of the requests that a producer's application really made.
type account struct {
	requests   int // at the engine
	rows       int // with the exact counts
	failed     int // the engine refused them, or the reply was cut off
	uncounted  int // nobody counted their tokens
	embeddings int // not requests for a reply
	noSpan     int // the library wrote none: the rest; the captures' own description gives this number
	twice      int // further rows of a request
	sessions   int // rows with the session of the truth
	text       int // rows whose prompts are identified by their text
	pairs      int // pairs of these rows that share as many blocks as their prompts do, one more or one fewer
}

// TestProducers sends telemetry of our own making, shaped like that of each kind of producer, twice, and accounts for every request that
// the engine behind it got: each is a row with the right counts, session and shared blocks, or the reason why not is
// reported. No text of a prompt leaves the Collector anywhere.
func TestProducers(t *testing.T) {
	t.Parallel()
	var checks []check
	dir := t.TempDir()
	for _, p := range testproducers.All() {
		write(t, dir, p.Name+".traces.jsonl", string(p.Traces))
		write(t, dir, p.Name+".logs.jsonl", string(p.Logs))
		write(t, dir, p.Name+".truth.jsonl", string(p.Truth))
		w := p.Want
		checks = append(checks, check{p.Name, p.Reason, account{
			requests: w.Requests, rows: w.Rows, failed: w.Failed, uncounted: w.Uncounted, embeddings: w.Embeddings, noSpan: w.NoSpan,
			sessions: w.Sessions, text: w.Text, pairs: w.Text * (w.Text - 1) / 2,
		}})
	}
	runChecks(t, dir, checks)
}

// TestRealProducers does the same with unchanged telemetry of real instrumentation libraries, if the captures are available: they are not
// part of the repository.
func TestRealProducers(t *testing.T) {
	t.Parallel()
	data := filepath.Join(root, "..", "shared", "data", "producers")
	if _, err := os.Stat(data); err != nil {
		t.Skipf("the captures of real libraries are not here; TestProducers has telemetry of our own making: %v", err)
	}
	runChecks(t, data, []check{
		{
			"go-genkit", "counts only without streams, no sessions",
			account{requests: 14, rows: 4, failed: 3, uncounted: 6, noSpan: 1, text: 4, pairs: 6},
		},
		{
			"js-openinference-longconv", "two spans lost their counts to the limit of attributes",
			account{requests: 4, rows: 2, uncounted: 2, text: 2, pairs: 1},
		},
		{
			"js-openinference-openai", "no counts of streams",
			account{requests: 25, rows: 9, uncounted: 8, embeddings: 1, noSpan: 7, sessions: 9, text: 9, pairs: 36},
		},
		{
			"js-traceloop-openai", "no counts of streams; half of a prompt of the responses API",
			account{requests: 25, rows: 8, uncounted: 9, noSpan: 8, sessions: 8, text: 7, pairs: 21},
		},
		{
			"otel-js-openai", "messages in logs; session C asked for no usage",
			account{requests: 25, rows: 13, failed: 3, uncounted: 2, embeddings: 1, noSpan: 6, sessions: 13, text: 13, pairs: 78},
		},
		{
			"otel-js-openai-nocontent", "the turns of sessions are all that is known of prompts",
			account{requests: 25, rows: 13, failed: 3, uncounted: 2, embeddings: 1, noSpan: 6, sessions: 13},
		},
		{
			"vercel-ai7-otel", "agents and steps repeat usage and messages; the last request is of no session",
			account{requests: 18, rows: 12, failed: 4, uncounted: 1, noSpan: 1, sessions: 11, text: 12, pairs: 66},
		},
	})
}

// check is a producer, with the expected results of its requests.
type check struct {
	producer, reason string
	want             account
}

// runChecks sends the telemetry of each producer, whose files are in a folder, to a separate Collector.
func runChecks(t *testing.T, data string, checks []check) {
	t.Helper()
	key, err := blockhash.NewKey([]byte(strings.TrimPrefix(testKey, "MOONLOOP_HASH_KEY=")))
	if err != nil {
		t.Fatal(err)
	}
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	defer table.Flush() //nolint:errcheck // a test's log
	fmt.Fprintln(table, "PRODUCER\tREQUESTS\tROWS\tFAILED\tUNCOUNTED\tEMBEDDINGS\tNO SPAN\tTWICE\tSESSIONS\tBY TEXT\tPAIRS")
	for _, c := range checks {
		t.Run(c.producer, func(t *testing.T) {
			stem, dir := filepath.Join(data, c.producer), t.TempDir()
			address, metrics := testport.Address(t), testport.Address(t)
			host, port := split(t, metrics)
			p := launch(t, dir, []string{testKey}, write(t, dir, "config.yaml", fmt.Sprintf(producersConfig, address, host, port)))
			p.ready(t)
			for range 2 { // a sender that got no answer retries
				post(t, "http://"+address+"/v1/traces", readOptional(t, stem+".traces.jsonl"))
				post(t, "http://"+address+"/v1/logs", readOptional(t, stem+".logs.jsonl"))
			}
			write(t, dir, "metrics.txt", get(t, "http://"+metrics+"/metrics"))
			p.stop(t)

			trace := compileTrace(t, dir)
			got := reconcile(t, trace, readTruth(t, stem+".truth.jsonl"), readOptional(t, stem+".traces.jsonl"), key)
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", c.producer, got.requests, got.rows, got.failed, got.uncounted,
				got.embeddings, got.noSpan, got.twice, got.sessions, got.text, got.pairs)
			if got != c.want {
				t.Errorf("%s\ngot  %+v\nwant %+v", c.reason, got, c.want)
			}

			search := newSearch(t, stem+".truth.jsonl")
			if sent := append(readOptional(t, stem+".traces.jsonl"), readOptional(t, stem+".logs.jsonl")...); len(search.in(sent)) == 0 && got.text > 0 {
				t.Error("what was sent holds no text, so nothing could have leaked")
			}
			files := 0
			err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
				if err != nil || entry.IsDir() {
					return err
				}
				content, err := os.ReadFile(name)
				files++
				if found := search.in(content); len(found) > 0 {
					t.Errorf("%s holds %d pieces of prompts: %q", filepath.Base(name), len(found), found)
				}
				return err
			})
			if err != nil || files < 7 { // journal, trace, sidecar, spans, logs, the Collector's log, its metrics
				t.Errorf("%d files searched: %v", files, err)
			}
		})
	}
}

// readOptional reads a file; an absent one is empty.
func readOptional(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return content
}

// post sends each line of a capture as a request of OTLP over HTTP.
func post(t *testing.T, url string, lines []byte) {
	t.Helper()
	for line := range bytes.Lines(lines) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("POST %s: %s", url, response.Status)
		}
	}
}
