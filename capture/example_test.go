// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// Two journals become one trace: one from the collector of a gateway, which knows the session of each request, and one from the collector of
// an engine, which knows the blocks of each prompt.
func ExampleCompile() {
	folder, err := os.MkdirTemp("", "compile-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()

	start := time.Date(2026, 11, 21, 17, 5, 0, 0, time.UTC)
	var gateway, engine []journal.Record
	for turn := range 2 {
		trace, client, server := [16]byte{byte(turn + 1)}, journal.SpanID{1}, journal.SpanID{2}
		at := start.Add(time.Duration(turn) * 5 * time.Second).UnixNano()
		gateway = append(gateway, &journal.Inference{
			Span: mooncake.SpanRef{TraceID: trace, SpanID: client}, Start: at, End: at + 2e9, Session: journal.SessionOf("a conversation"),
		})
		engine = append(engine, &journal.Inference{
			Span: mooncake.SpanRef{TraceID: trace, SpanID: server}, Parent: client, Start: at + 1e6, End: at + 2e9,
			InputTokens: mooncake.Some(int64(1000 + 512*turn)), OutputTokens: mooncake.Some[int64](40),
			Prompt: journal.Prompt{Identity: journal.Engine, HashIDs: []uint64{7001, 7002, 7003}[:2+turn], BlockSize: 512, Domain: 1},
		})
	}
	var sources []capture.Source
	for name, records := range map[string][]journal.Record{"gateway.journal": gateway, "engine.journal": engine} {
		name = filepath.Join(folder, name)
		w, err := journal.OpenWriter(name, journal.WriterOptions{})
		if err != nil {
			log.Fatal(err)
		}
		if err := w.Append(records...); err != nil {
			log.Fatal(err)
		}
		if err := w.Close(); err != nil {
			log.Fatal(err)
		}
		sources = append(sources, capture.FileSource(name))
	}

	ctx, out := context.Background(), filepath.Join(folder, "trace.jsonl")
	result, err := capture.Compile(ctx, capture.Options{}, capture.Files(out), sources...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Traces[0].Meta.Rows, "rows of", result.Inferences, "spans")
	trace, err := mooncake.Open(ctx, out, mooncake.OpenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer trace.Close()
	for {
		row, err := trace.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("after %v ms in session %s: %d tokens in blocks %v, %d out\n",
			row.Timestamp.V, row.SessionID, row.InputLength.V, row.HashIDs, row.OutputLength.V)
	}
	// Output:
	// 2 rows of 4 spans
	// after 0 ms in session 3e95da55bf3751ab: 1000 tokens in blocks [0 1], 40 out
	// after 5000 ms in session 3e95da55bf3751ab: 1512 tokens in blocks [0 1 2], 40 out
}
