// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package collect_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/collect"
)

// A program captures the telemetry of an application, and makes a trace of it.
func Example() {
	folder, err := os.MkdirTemp("", "collect-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	journal := filepath.Join(folder, "journal")

	ctx := context.Background()
	c, err := collect.Start(ctx, collect.Config{
		HTTP:    "127.0.0.1:0",
		Journal: journal,
		Warn:    func(text string) { log.Print(text) },
	})
	if err != nil {
		log.Fatal(err)
	}
	send("http://" + c.HTTP + "/v1/traces") // as OTEL_EXPORTER_OTLP_ENDPOINT makes an application do
	if err := c.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Counts())

	sources, err := collect.Journals(journal)
	if err != nil {
		log.Fatal(err)
	}
	result, err := capture.Compile(ctx, capture.Options{}, capture.Files(filepath.Join(folder, "trace.jsonl")), sources...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Traces[0].Meta.Rows, "row")
	// Output:
	// spans 1 · requests 1 · 1 without prompt
	// 1 row
}

func send(url string) {
	const spans = `{"resourceSpans": [{"scopeSpans": [{"spans": [{
		"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "chat m", "kind": 3,
		"startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000001000000000", "attributes": [
			{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
			{"key": "gen_ai.usage.input_tokens", "value": {"intValue": "1200"}},
			{"key": "gen_ai.usage.output_tokens", "value": {"intValue": "30"}}
		]}]}]}]}`
	resp, err := http.Post(url, "application/json", strings.NewReader(spans))
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}
