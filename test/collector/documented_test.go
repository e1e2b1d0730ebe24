// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestDocumented runs the configuration at the repository's root, and the one with our processor, unchanged except for their ports: what
// arrives over gRPC and HTTP is in journals and traces, the Collector's own figures agree, and no file has a word of a prompt.
func TestDocumented(t *testing.T) {
	t.Parallel()
	for _, config := range []string{"otelcol-config.yaml", "examples/capture/processor.yaml"} {
		t.Run(filepath.Base(config), func(t *testing.T) {
			t.Parallel()
			testDocumented(t, config)
		})
	}
}

func testDocumented(t *testing.T, config string) {
	t.Helper()
	dir := t.TempDir()
	otelcol := configure(t, dir, settings{config: config})
	p := otelcol.start(t)
	const requests = 10
	l := production(t, requests, 4096)
	now := time.Now()
	if err := dial(t, otelcol.address).export(t.Context(), l.next(1, now)); err != nil {
		t.Fatal(err)
	}
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+otelcol.http+"/v1/traces",
		bytes.NewReader(l.next(1+requests, now)))
	if err != nil {
		t.Fatal(err)
	}
	post.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(post)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("OTLP over HTTP: %s", response.Status)
	}
	otelcol.drain(t)
	sent := regexp.MustCompile(`(?m)^otelcol_exporter_sent_spans_total\{[^}]*exporter="mooncake"[^}]*\} 20$`)
	for deadline := time.Now().Add(time.Minute); !sent.MatchString(otelcol.scrape(t)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no metric says that 20 spans were written:\n%s", otelcol.scrape(t))
		}
	}
	p.stop(t)

	got := compile(t, dir)
	for n := range uint64(2 * requests) {
		if rows := got.rows[spanOf(n+1)]; rows != 1 {
			t.Errorf("request %d is %d rows", n+1, rows)
		}
	}
	searched := 0
	err = filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		searched++
		for _, word := range []string{"quick brown", "lazy dog", strings.Repeat("#", 4)} {
			if bytes.Contains(content, []byte(word)) {
				t.Errorf("%s holds %q of the prompts", filepath.Base(name), word)
			}
		}
		if info, _ := entry.Info(); strings.HasSuffix(name, ".journal") && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", filepath.Base(name), info.Mode())
		}
		return err
	})
	if err != nil || searched < 3 { // journal, queue, log
		t.Errorf("%d files searched: %v", searched, err)
	}
}

// TestChain sends raw spans through the sidecar's and the gateway's configuration: the gateway writes what the sidecar has annotated,
// once.
func TestChain(t *testing.T) {
	t.Parallel()
	near, far := t.TempDir(), t.TempDir()
	gateway := configure(t, far, settings{config: "examples/capture/gateway.yaml"})
	sidecar := configure(t, near, settings{config: "examples/capture/sidecar.yaml"})
	sidecar.environment = append(sidecar.environment, "MOONLOOP_GATEWAY="+gateway.address)
	last, first := gateway.start(t), sidecar.start(t)
	l := production(t, 10, 4096)
	if err := dial(t, sidecar.address).export(t.Context(), l.next(1, time.Now())); err != nil {
		t.Fatal(err)
	}
	first.stop(t)
	gateway.drain(t)
	last.stop(t)
	got := compile(t, far)
	if len(got.rows) != 10 || got.rows[spanOf(1)] != 1 {
		t.Errorf("%d rows: %v", len(got.rows), got.rows)
	}
	for _, trace := range got.result.Traces {
		if n := trace.Meta.Identity["text"]; n != 10 {
			t.Errorf("%d requests of 10 were annotated: %v", n, trace.Meta.Identity)
		}
	}
	if entries, err := filepath.Glob(filepath.Join(near, "*", "*")); err != nil || len(entries) > 0 {
		t.Errorf("the sidecar wrote %v (%v)", entries, err)
	}
}
