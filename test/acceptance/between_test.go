// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// One request of production is recorded by the application, by a gateway and by the engine, each of which writes spans, while replays take
// the same path. The trace must have each request of the application once, and none of the replays.

// between is a path from an application to the engine.
type between struct {
	instrumentation string
	gateway         string // one of liteLLMs; "" means none
	propagate       bool   // the application's requests carry its trace context
}

// liteLLMs are the ways in which LiteLLM's callback for OpenTelemetry writes spans, as environment variables. Each has its own names for
// spans and attributes.
var liteLLMs = map[string][]string{
	"LiteLLM":         nil,
	"LiteLLM, latest": {"OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"},
	forwarding:        nil,
	"LiteLLM, v2":     {"LITELLM_OTEL_V2=true", "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=span_only"},
}

// forwarding is a LiteLLM that forwards the trace context to the engine. Behind one that does not, a replay must export its spans to the
// capture, or the engine's spans of the replay count as production; behind this one, it need not.
const forwarding = "LiteLLM, forwarding"

// application returns a name for how the application writes its spans.
func (b between) application() string {
	if b.propagate {
		return b.instrumentation + ", propagated"
	}
	return b.instrumentation
}

// TestAcceptanceBetween tests each instrumentation with each gateway on one vLLM, whose own spans go to the capture, too. Requests have
// tools, and some replies call them.
func TestAcceptanceBetween(t *testing.T) {
	home, lite, dir := setting(t, "MOONLOOP_VLLM"), setting(t, "MOONLOOP_LITELLM"), artefacts(t)
	grpc, otlp := "127.0.0.1:"+testport.Port(t), "127.0.0.1:"+testport.Port(t) // addresses at which the captures listen, one after the other
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "200")                                 // ms; spans are there soon after their request
	engine := startVLLM(t, home, dir, "vLLM with its own spans", 32, "--otlp-traces-endpoint", "http://"+grpc,
		"--chat-template", "vllm/tools.jinja", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
	engine.conversations, engine.atOnce = 5, 5
	table := []string{
		"| application | between | requests | spans of them | rows | twice | invented | lost | replay, of 12 |",
		"|---|---|---|---|---|---|---|---|---|",
	}
	for _, gateway := range []string{"", "LiteLLM", "LiteLLM, latest", "LiteLLM, v2", forwarding} {
		t.Run(pathOf(cmp.Or(gateway, "direct")), func(t *testing.T) {
			url := engine.url
			if gateway != "" {
				url = startLiteLLM(t, lite, dir, engine.url, "http://"+otlp, gateway)
			}
			for _, instrumentation := range []string{"openai-v2", "openinference", "traceloop"} {
				for _, propagate := range []bool{false, true} {
					if propagate && len(liteLLMs[gateway]) > 0 || !propagate && gateway == forwarding {
						continue // how spans are joined does not depend on their names
					}
					b := between{instrumentation, gateway, propagate}
					t.Run(pathOf(b.application()), func(t *testing.T) {
						folder := filepath.Join(dir, pathOf(b.application()+" "+cmp.Or(gateway, "direct")))
						table = append(table, engine.between(t, b, home, folder, url, grpc, otlp))
					})
				}
			}
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// pathOf turns a text into a part of a path.
func pathOf(text string) string { return strings.NewReplacer(", ", "_", " ", "-").Replace(text) }

// startLiteLLM starts a gateway before an engine, whose own spans go to an OTLP receiver.
func startLiteLLM(t *testing.T, home, dir, engine, otlp, how string) (url string) {
	t.Helper()
	port, config := testport.Port(t), filepath.Join(dir, pathOf(how)+".yaml")
	content := fmt.Sprintf(`model_list:
  - model_name: tiny
    litellm_params: {model: openai/tiny, api_base: "%s/v1", api_key: none}
litellm_settings: {callbacks: [otel], num_retries: 0, forward_traceparent_to_llm_provider: %t}
`, engine, how == forwarding)
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := &realEngine{name: how, url: "http://127.0.0.1:" + port}
	server := startGroup(t, dir, pathOf(how), append([]string{
		"OTEL_EXPORTER=otlp_http", "OTEL_ENDPOINT=" + otlp + "/v1/traces", "LITELLM_LOCAL_MODEL_COST_MAP=True",
		"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true", "HF_HUB_OFFLINE=1", "DO_NOT_TRACK=1",
	}, liteLLMs[how]...), filepath.Join(home, "bin", "litellm"), "--config", config, "--host", "127.0.0.1", "--port", port, "--telemetry", "False")
	t.Cleanup(func() { server.stop(t) })
	gateway.await(t, server, "/health/liveliness")
	return gateway.url
}

// between runs an application and a replay on one path, captures all spans, and compares. It returns a line for a table.
func (e *realEngine) between(t *testing.T, b between, home, dir, url, grpc, otlp string) (line string) {
	t.Helper()
	mkdir(t, dir)
	moonloop, log, trace := setting(t, "MOONLOOP_BIN"), filepath.Join(dir, "app.jsonl"), filepath.Join(dir, "production.jsonl")
	capture := start(t, dir, "capture", []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("a5", 32)}, moonloop, "capture", "--out", trace,
		"--json", "--keep-journal", "--progress", "none", "--grpc", grpc, "--http", otlp)
	capture.find(t, regexp.MustCompile(`(listening for OTLP over HTTP)`))
	args := []string{
		filepath.Join("vllm", "app.py"), e.url, b.instrumentation, strconv.Itoa(e.conversations), strconv.Itoa(e.atOnce), "7", log,
		"--tools", "--gateway", url,
	}
	if b.propagate {
		args = append(args, "--propagate")
	}
	app := start(t, dir, "app", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + otlp}, filepath.Join(home, "client", "bin", "python"), args...)

	// Meanwhile, a replay takes the same path, with requests of calibration and of a warm-up.
	const rows = 12
	source := filepath.Join(dir, "source.jsonl")
	if code := start(t, dir, "generate", nil, moonloop, "generate", "--rows", strconv.Itoa(rows), "--rate", "2", "--think", "1,0.5", "--system-prompt",
		"300", "--user", "100,0.5,400", "--output", "20,0.5,40", "--out", source).wait(t, time.Minute); code != 0 {
		t.Fatalf("generate ended with status %d", code)
	}
	flags := []string{
		"replay", source, "--url", url, "--model", "tiny", "--warmup-requests", "2", "--out", filepath.Join(dir, "run"), "--run-id", "beside",
		"--progress", "none",
	}
	tells := b.gateway != forwarding // the replay also sends its spans to the capture
	if tells {
		flags = append(flags, "--otlp-endpoint", "http://"+otlp)
	}
	replay := start(t, dir, "replay", nil, moonloop, flags...)
	// 3 means that the machine was too busy to measure times; counts are still valid.
	if code := replay.wait(t, 10*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the replay ended with status %d\n%s", code, replay.tail())
	}
	if b.gateway != "" { // LiteLLM names its deployment
		for i, line := range readLines[struct{ Result struct{ Instance string } }](t, filepath.Join(dir, "run", "requests.jsonl")) {
			if line.Result.Instance == "" {
				t.Errorf("reply %d names no instance", i)
			}
		}
	}
	if code := app.wait(t, 15*time.Minute); code != 0 {
		t.Fatalf("the application ended with status %d\n%s", code, app.tail())
	}
	time.Sleep(5 * time.Second) // in which the gateway and the engine send their last spans
	capture.stop(t)

	requests := multiset(readTruth(t, log), func(s *served) captured { return captured{Input: s.Input, Output: s.Output} })
	seen := multiset(readLines[captured](t, trace), func(r captured) captured { return captured{Input: r.Input, Output: r.Output} })
	twice, invented, lost := 0, 0, without(requests, seen)
	for _, one := range without(seen, requests) {
		if slices.Contains(requests, one) {
			twice++
		} else {
			invented++
		}
	}
	if twice+invented+len(lost) > 0 {
		t.Errorf("the trace has %v in excess and lacks %v, as input/output tokens; the application's requests were\n%v", without(seen, requests), lost, requests)
	}
	if n := len(requests); n < 20 {
		t.Errorf("void: %d requests, want 20 or more", n)
	}
	calls := 0
	for _, s := range readLines[struct{ Calls int }](t, log) {
		calls += s.Calls
	}
	if calls == 0 {
		t.Error("void: no reply called a tool")
	}
	// Each request has a span of the application, of the gateway and of the engine; otherwise the test would show nothing.
	var result struct {
		Traces []struct {
			Replay        bool
			Spans, Merged int
			Meta          struct{ Rows int }
		}
	}
	read(t, capture.out, &result)
	if want := map[bool]int{true: 2, false: 1}[tells]; len(result.Traces) != want {
		t.Fatalf("%d traces, want %d: production's, and the replay's if it sends its spans", len(result.Traces), want)
	}
	each := 2
	if b.gateway != "" {
		each = 3
	}
	production, beside := result.Traces[0], result.Traces[len(result.Traces)-1]
	equal(t, "spans of production, at least", min(production.Spans, each*len(requests)), each*len(requests))
	if tells {
		equal(t, "rows of the replay's own trace", beside.Meta.Rows, rows)
		equal(t, "spans of the replay, at least", min(beside.Spans, each*rows), each*rows)
	} else {
		beside.Meta.Rows = 0
	}
	return fmt.Sprintf("| %s | %s | %d | %d | %d | %d | %d | %d | %d |", b.application(), cmp.Or(b.gateway, "-"), len(requests), production.Spans,
		len(seen), twice, invented, len(lost), beside.Meta.Rows)
}

// without returns what is in a list beyond what is in another, both sorted.
func without(list, other []string) (more []string) {
	for _, one := range list {
		for len(other) > 0 && other[0] < one {
			other = other[1:]
		}
		if len(other) > 0 && other[0] == one {
			other = other[1:]
			continue
		}
		more = append(more, one)
	}
	return more
}
