// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// jaegerSpan is what this test reads of a span in Jaeger's answer.
type jaegerSpan struct {
	TraceID    string            `json:"traceId"`
	SpanID     string            `json:"spanId"`
	Parent     string            `json:"parentSpanId"`
	Name       string            `json:"name"`
	Attributes []jaegerAttribute `json:"attributes"`
	Events     []struct {
		Name string `json:"name"`
	} `json:"events"`
}

type jaegerAttribute struct {
	Key   string         `json:"key"`
	Value map[string]any `json:"value"`
}

func (s jaegerSpan) has(key string) bool {
	return slices.ContainsFunc(s.Attributes, func(a jaegerAttribute) bool { return a.Key == key })
}

// TestAcceptanceJaeger looks at replays as somebody does who has Jaeger open while one runs, and after one was killed: every
// trace that holds a finished request has its root, so that the list has a name for it.
func TestAcceptanceJaeger(t *testing.T) {
	jaeger, moonloop, dir := setting(t, "MOONLOOP_JAEGER"), setting(t, "MOONLOOP_BIN"), artefacts(t)
	port := map[string]string{}
	var flags []string
	for _, listener := range []string{
		"collector.otlp.http", "collector.otlp.grpc", "query.http-server", "query.grpc-server", "admin.http", "collector.grpc-server", "collector.http-server",
	} {
		port[listener] = freePort(t)
		flags = append(flags, "--"+listener+".host-port=127.0.0.1:"+port[listener])
	}
	start(t, dir, "jaeger", []string{"COLLECTOR_OTLP_ENABLED=true"}, jaeger, flags...)
	api := "http://127.0.0.1:" + port["query.http-server"] + "/api/v3/"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if response, err := http.Get(api + "services"); err == nil {
			_ = response.Body.Close()
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("Jaeger does not answer: %v", err)
		}
	}
	simulator := start(t, dir, "simulate", nil, moonloop, "simulate", "--listen", "127.0.0.1:0")
	engine := simulator.find(t, regexp.MustCompile(`listening on (\S+)`))
	trace := filepath.Join("..", "..", "examples", "demo.jsonl")
	replay := func(run string) *process {
		return start(t, dir, run, nil, moonloop, "replay", trace, "--url", engine, "--run-id", run, "--progress", "none",
			"--otlp-endpoint", "http://127.0.0.1:"+port["collector.otlp.http"], "--out", filepath.Join(dir, run+".results"))
	}

	killed := replay("killed")
	time.Sleep(12 * time.Second)
	during := spansOf(t, api, "killed")
	checkRoots(t, "during the run", during, 10)
	if err := killed.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.wait(t, time.Minute)
	time.Sleep(time.Second) // what was on the wire
	checkRoots(t, "after kill -9", spansOf(t, api, "killed"), 10)

	whole := replay("whole")
	if code := whole.wait(t, 5*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, whole.tail())
	}
	spans := spansOf(t, api, "whole")
	checkRoots(t, "after the run", spans, 100)
	rows := readLines[struct {
		SessionID string `json:"session_id"`
	}](t, trace)
	requests, children, events := 0, map[string][]string{}, 0
	for _, s := range spans {
		if s.has("mooncake.row") {
			requests++
			for _, e := range s.Events {
				if e.Name == "mooncake.token" {
					events++
				}
			}
		}
		children[s.TraceID+s.Parent] = append(children[s.TraceID+s.Parent], s.Name)
	}
	if requests != len(rows) {
		t.Errorf("Jaeger has %d requests with a row, the trace has %d rows", requests, len(rows))
	}
	if events == 0 {
		t.Error("no request has an event for a token")
	}
	for _, s := range spans {
		if !s.has("mooncake.row") {
			continue
		}
		below := children[s.TraceID+s.SpanID]
		slices.Sort(below)
		if want := []string{"decode", "prefill", "queue"}; !slices.Equal(below, want) {
			t.Fatalf("below a request are %v, want %v", below, want)
		}
	}
	t.Logf("%d spans during the run, %d of the whole one: %d requests, %d events for tokens", len(during), len(spans), requests, events)
}

// checkRoots fails unless each trace that has a finished request has exactly one root, and at least so many traces have one.
func checkRoots(t *testing.T, when string, spans []jaegerSpan, least int) {
	t.Helper()
	roots, finished := map[string]int{}, map[string]bool{}
	for _, s := range spans {
		if strings.Trim(s.Parent, "0") == "" {
			roots[s.TraceID]++
		}
		if s.has("mooncake.row") {
			finished[s.TraceID] = true
		}
	}
	without := 0
	for trace := range finished {
		if roots[trace] != 1 {
			without++
		}
	}
	if without > 0 || len(finished) < least {
		t.Errorf("%s Jaeger has %d traces with a finished request, at least %d were expected; %d have not exactly one root",
			when, len(finished), least, without)
	}
}

// spansOf asks Jaeger for all spans of a run.
func spansOf(t *testing.T, api, run string) (spans []jaegerSpan) {
	t.Helper()
	query := url.Values{
		"query.service_name":   {"moonloop"},
		"query.start_time_min": {time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)},
		"query.start_time_max": {time.Now().Add(time.Minute).UTC().Format(time.RFC3339)},
		"query.num_traces":     {"10000"},
	}
	response, err := http.Get(api + "traces?" + query.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("Jaeger: %s, %v\n%.300s", response.Status, err, body)
	}
	var answer struct {
		Result struct {
			ResourceSpans []struct {
				Resource struct {
					Attributes []jaegerAttribute `json:"attributes"`
				} `json:"resource"`
				ScopeSpans []struct {
					Spans []jaegerSpan `json:"spans"`
				} `json:"scopeSpans"`
			} `json:"resourceSpans"`
		} `json:"result"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	for _, rs := range answer.Result.ResourceSpans {
		of := ""
		for _, a := range rs.Resource.Attributes {
			if a.Key == "mooncake.run.id" {
				of = fmt.Sprint(a.Value["stringValue"])
			}
		}
		for _, ss := range rs.ScopeSpans {
			if of == run {
				spans = append(spans, ss.Spans...)
			}
		}
	}
	return spans
}
