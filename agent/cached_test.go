// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report"
)

// TestMoreCachedThanPrompt: an engine cannot have cached more of a prompt than the prompt has. A reply that reports more cached tokens is
// counted, but no figure uses its number.
func TestMoreCachedThanPrompt(t *testing.T) {
	served := 0
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost { // the list of models
			http.NotFound(w, r)
			return
		}
		if r.Header.Get("X-Request-Id") == "" { // the request that finds out the vocabulary
			http.NotFound(w, r)
			return
		}
		cached := []int{600, 601, 100_000}[served]
		served++
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"length\"}]}\n\n"+
			"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":600,\"completion_tokens\":1,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\ndata: [DONE]\n\n", cached)
	}))
	defer engine.Close()
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	row := `{"input_length": 600, "output_length": 1, "hash_ids": [0, 1]}` + "\n"
	if err := os.WriteFile(trace, []byte(strings.Repeat(row, 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	rep, err := Run(t.Context(), Config{
		Trace: Trace{Name: trace}, Target: Target{URL: engine.URL, Model: "m"}, Prompt: Prompt{Endpoint: ids.Endpoint},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := rep.Figures()
	cached, _ := f.Stat(measure.TotalCached)
	if c := f.Cache; f.Rows.Served != 3 || c.Reported != 1 || c.Refused != 2 || cached.Avg != 600 {
		t.Errorf("%d served, %d with cached tokens, %d refused, %g cached; want 3, 1, 2, 600", f.Rows.Served, c.Reported, c.Refused, cached.Avg)
	}
	var table strings.Builder
	if err := rep.Table(&table, report.Width, false); err != nil || !strings.Contains(table.String(), "2 replies report more cached tokens than their prompt has") {
		t.Errorf("the report does not mention it: %v\n%s", err, &table)
	}
}
