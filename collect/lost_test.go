// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// post sends OTLP as JSON and returns the status.
func post(t *testing.T, url, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode
}

// spanJSON returns the span of a request to a model with the given trace id.
func spanJSON(traceID string) string {
	now := time.Now().UnixNano()
	return fmt.Sprintf(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":%q,"spanId":"eee19b7ec3c1b174","name":"chat m","kind":3,`+
		`"startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[{"key":"gen_ai.operation.name","value":{"stringValue":"chat"}},`+
		`{"key":"gen_ai.usage.input_tokens","value":{"intValue":"12"}},{"key":"gen_ai.usage.output_tokens","value":{"intValue":"3"}}]}]}]}]}`, traceID, now, now+5)
}

// logJSON returns a message of a prompt and an unrelated log record, both of the span with the given last digit of its ids, or of none.
func logJSON(digit string) string {
	trace, span := "", ""
	if digit != "" {
		trace, span = strings.Repeat("0", 31)+digit, strings.Repeat("0", 15)+digit
	}
	record := `{"timeUnixNano":"1","traceId":%q,"spanId":%q,"eventName":%q,"body":{"kvlistValue":{"values":[{"key":"content","value":{"stringValue":"hello"}}]}}}`
	return fmt.Sprintf(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[`+record+","+record+"]}]}]}", trace, span, "gen_ai.user.message", trace, span, "sold")
}

const metricJSON = `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[{"asInt":"1"},{"asInt":"2"}]}}]}]}]}`

// lossy starts a collector. It also returns the folder of its journal, and a function that returns the warnings so far.
func lossy(t *testing.T) (p *Collector, folder string, warnings func() string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "journal")
	var mu sync.Mutex
	var said []string
	p, err := Start(t.Context(), Config{
		HTTP: "127.0.0.1:0", Journal: folder,
		Warn: func(text string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, text)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, folder, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(said, "\n")
	}
}

// TestCaptureLost: telemetry that arrives but is not in any journal is counted.
func TestCaptureLost(t *testing.T) {
	p, _, warnings := lossy(t)
	for _, id := range []string{"5b8efff798038103d269b633813fc60c", "", ""} {
		if status := post(t, "http://"+p.HTTP+"/v1/traces", spanJSON(id)); status != http.StatusOK {
			t.Errorf("trace %q: status %d", id, status)
		}
	}
	if status := post(t, "http://"+p.HTTP+"/v1/traces", "{"); status != http.StatusBadRequest {
		t.Errorf("half a request: status %d", status)
	}
	if status := post(t, "http://"+p.HTTP+"/", spanJSON("5b8efff798038103d269b633813fc60c")); status != http.StatusNotFound {
		t.Errorf("an address without a path: status %d", status)
	}
	invalid := strings.Replace(spanJSON("5b8efff798038103d269b633813fc60d"), `"attributes":[`, `"attributes":[{"key":"mooncake.row","value":{"stringValue":"x"}},`, 1)
	if status := post(t, "http://"+p.HTTP+"/v1/traces", invalid); status != http.StatusOK {
		t.Errorf("a row that is no number: status %d", status)
	}
	reply := strings.ReplaceAll(logJSON("2"), "gen_ai.user.message", "gen_ai.choice")
	for _, body := range []string{logJSON("1"), logJSON(""), reply} { // the second names no span
		if status := post(t, "http://"+p.HTTP+"/v1/logs", body); status != http.StatusOK {
			t.Errorf("logs: status %d", status)
		}
	}
	if status := post(t, "http://"+p.HTTP+"/v1/metrics", metricJSON); status != http.StatusOK {
		t.Errorf("metrics: status %d", status)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []mooncake.Dropped{
		{What: "OTLP requests", Reason: "refused by the receiver: malformed", Count: 1},
		{What: "OTLP requests", Reason: "refused by the receiver: not served", Count: 1},
		{What: "log records", Reason: "a prompt without the ids of its span", Count: 1},
		{What: "replies", Reason: "without prompt", Count: 1},
		{What: "spans", Reason: "no trace id", Count: 2},
		{What: "values", Reason: "mooncake.row is not what the convention says", Count: 1},
	}
	if diff := cmp.Diff(want, p.Lost()); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
	if n := p.Counts().Points; n != 2 {
		t.Errorf("%d points of metrics, want 2", n)
	}
	if text := warnings(); text != "" {
		t.Errorf("warnings: %s", text)
	}
}

// TestCaptureRefuses: spans that cannot be written are refused, counted, and reported once, in words that fit a capture.
func TestCaptureRefuses(t *testing.T) {
	p, folder, warnings := lossy(t)
	if err := os.RemoveAll(folder); err != nil {
		t.Skipf("a journal that is open cannot be removed here: %v", err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // no journal can be made there
		t.Fatal(err)
	}
	for range 2 {
		if status := post(t, "http://"+p.HTTP+"/v1/traces", spanJSON("5b8efff798038103d269b633813fc60c")); status != http.StatusServiceUnavailable {
			t.Errorf("status %d, want %d", status, http.StatusServiceUnavailable)
		}
	}
	_ = p.Stop(t.Context()) // which cannot seal a journal that is gone
	lost := p.Lost()
	if len(lost) == 0 || lost[len(lost)-1].What != "spans" || lost[len(lost)-1].Count != 2 || !strings.HasPrefix(lost[len(lost)-1].Reason, "refused") {
		t.Errorf("lost %v, want 2 spans refused", lost)
	}
	if s := p.Counts().String(); !strings.Contains(s, "REFUSED 2") {
		t.Errorf("live line %q", s)
	}
	text := warnings()
	if strings.Count(text, "spans are refused until it can") != 1 || strings.Contains(text, "retry_on_failure") {
		t.Errorf("warnings:\n%s", text)
	}
}
