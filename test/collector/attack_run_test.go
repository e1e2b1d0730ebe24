// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // attacks come compressed, too
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// victim is a Collector under attack, in this process or a separate one.
type victim struct {
	*canaries
	grpc *grpc.ClientConn
	http string
	// counts returns its own counters once everything acknowledged is written, named as in attacks.
	counts func(t *testing.T) map[string]int64
	honest uint64 // requests sent
}

// run makes each attack of the table, and sends an honest request after it.
func (v *victim) run(t *testing.T, f *forge) {
	t.Helper()
	good := production(t, 1, 2048)
	n, before := 0, v.counts(t)
	for _, a := range attacks {
		ok := t.Run(a.name, func(t *testing.T) {
			f.t = t
			requests := int64(0)
			a.send(f, func(body []byte) {
				requests++
				if n++; n%2 == 0 && len(body) < 16<<20 { // below the default limit of HTTP
					v.post(t, a, body)
				} else {
					v.call(t, a, body)
				}
			})
			v.honest++
			if err := v.invoke(t, signalTraces, good.next(v.honest, time.Now())); err != nil {
				t.Fatalf("an honest request afterwards: %v", err)
			}
			after := v.counts(t)
			moved := map[string]int64{}
			for key, n := range after {
				if n -= before[key]; n != 0 {
					moved[key] = n
				}
			}
			moved[inferences]-- // the honest one
			moved[received]--
			moved[identities+"text"]--
			moved[removed+"gen_ai.input.messages"]--
			before = after
			v.account(t, a, moved)
		})
		if !ok && !alive(v) {
			t.Fatal("the Collector no longer answers")
		}
	}
}

func alive(v *victim) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var reply []byte
	return v.grpc.Invoke(ctx, methods[signalTraces], []byte{}, &reply, grpc.ForceCodecV2(asIs{})) == nil
}

// account compares the counters with the attack's expectation, and checks that nothing is lost uncounted.
func (v *victim) account(t *testing.T, a attack, moved map[string]int64) {
	t.Helper()
	for key, want := range a.counted {
		if moved[key] != want {
			t.Errorf("%s: %s moved by %d, want %d", a.reason, key, moved[key], want)
		}
	}
	records := int64(0)
	for key, n := range moved {
		switch {
		case strings.HasPrefix(key, "exporter_records/"), strings.HasPrefix(key, "exporter_dropped_spans/"):
			records += n
		case strings.HasPrefix(key, refused):
			if _, known := a.counted[key]; !known {
				t.Errorf("%s: %s moved by %d", a.reason, key, n)
			}
		}
	}
	if spans := moved[received] + moved[carriers]; records != spans {
		t.Errorf("%s: %d spans came in or were made, %d are records or counted as dropped", a.reason, spans, records)
	}
	if t.Failed() {
		for _, key := range slices.Sorted(maps.Keys(moved)) {
			t.Logf("%s %d", key, moved[key])
		}
	}
}

// methods are those of OTLP over gRPC.
var methods = map[string]string{
	signalTraces:  "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
	signalLogs:    "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
	signalMetrics: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}

func (a *attack) of() string {
	if a.signal == "" {
		return signalTraces
	}
	return a.signal
}

// invoke sends a request over gRPC, with secrets in its headers.
func (v *victim) invoke(t *testing.T, signal string, body []byte) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+v.word("header"), "x-api-key", v.word("header"))
	var reply []byte
	err := v.grpc.Invoke(ctx, methods[signal], body, &reply, grpc.ForceCodecV2(asIs{}))
	v.search(outAnswer, reply)
	if err != nil {
		v.search(outAnswer, []byte(err.Error()))
	}
	return err
}

func (v *victim) call(t *testing.T, a attack, body []byte) {
	t.Helper()
	if err := v.invoke(t, a.of(), body); status.Code(err) != a.code {
		t.Errorf("%s: over gRPC: %v, want %v", a.reason, err, a.code)
	}
}

// post sends a request over HTTP.
func (v *victim) post(t *testing.T, a attack, body []byte) {
	t.Helper()
	want := map[codes.Code]int{codes.OK: 200, codes.InvalidArgument: 400, codes.ResourceExhausted: 413}[a.code]
	if got := v.postAs(t, a.of(), "application/x-protobuf", body); got != want {
		t.Errorf("%s: over HTTP: %d, want %d", a.reason, got, want)
	}
}

func (v *victim) postAs(t *testing.T, signal, kind string, body []byte) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+v.http+"/v1/"+signal, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("Authorization", "Bearer "+v.word("header"))
	request.Header.Set("Cookie", v.word("header"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, _ := io.ReadAll(response.Body) // as much as has arrived
	v.search(outAnswer, answer)
	for _, values := range response.Header {
		v.search(outAnswer, []byte(strings.Join(values, " ")))
	}
	return response.StatusCode
}

// malformed sends a JSON document with a text where OTLP has a list.
func (v *victim) malformed(t *testing.T) {
	t.Helper()
	if got := v.postAs(t, signalTraces, "application/json", []byte(`{"resourceSpans":[{"scopeSpans":"`+v.text("json")+`"}]}`)); got != http.StatusBadRequest {
		t.Errorf("malformed JSON: %d", got)
	}
}

// files searches the files of a folder, and compiles its journals: each honest request is exactly one row, with exact values.
func (v *victim) files(t *testing.T, dir string) {
	t.Helper()
	var journals []capture.Source
	err := filepath.WalkDir(dir, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		switch {
		case strings.HasSuffix(name, ".journal"):
			v.search(outJournal, content)
			journals = append(journals, capture.FileSource(name))
		case strings.Contains(name, "/queue/"):
			v.search(outForwarded, content)
		case strings.HasSuffix(name, ".log"):
			v.search(outLog, content)
		case strings.HasSuffix(name, ".yaml"):
		default:
			v.search(outTrace, content)
			v.search(outTrace, []byte(name))
		}
		return err
	})
	if err != nil || len(journals) == 0 {
		t.Fatalf("%d journals: %v", len(journals), err)
	}
	out := filepath.Join(t.TempDir(), "all.jsonl")
	result, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, capture.Files(out), journals...)
	if err != nil {
		t.Fatal(err)
	}
	if result.DamageCount > 0 {
		t.Errorf("%d places of the journals are damaged", result.DamageCount)
	}
	compiled, err := filepath.Glob(filepath.Join(filepath.Dir(out), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range compiled {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		v.search(outTrace, append(content, filepath.Base(name)...))
	}
	rows := map[mooncake.SpanRef][]*mooncake.Row{}
	content, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	r := mooncake.NewReader(bytes.NewReader(content), mooncake.ReaderOptions{Strict: true, FineBlockSize: capture.FineBlockSize})
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rows[row.OTel] = append(rows[row.OTel], row)
	}
	for n := uint64(1); n <= v.honest; n++ {
		got := rows[spanOf(n)]
		if len(got) != 1 || got[0].InputLength.V != 512 || got[0].OutputLength.V != 200 || len(got[0].HashIDs) != 1 {
			t.Errorf("honest request %d is %s", n, fmt.Sprintf("%+v", got))
		}
	}
}
