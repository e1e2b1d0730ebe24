// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/internal/simulator"
	"github.com/moonloop/moonloop/mooncake"
)

// bodies returns the request bodies that the engine got for the rows of the trace, in order.
func (r replayed) bodies() (list []string) {
	for _, rec := range r.sent {
		if rec != nil {
			list = append(list, string(rec.Body))
		}
	}
	return list
}

// TestSavedPrompts: a replay of a saved file sends the same bytes as the first replay: words, token ids, texts, messages, bodies, extras
// of several lines, and the live replies in the later turns of sessions.
func TestSavedPrompts(t *testing.T) {
	mixed := []string{
		`{"timestamp": 0, "input_length": 1100, "output_length": 2, "hash_ids": [1, 2, 3]}`,
		`{"timestamp": 10, "input_length": 600, "output_length": 2, "hash_ids": [1, 4], "extra": {"temperature": 0.5}}`,
		`{"timestamp": 20, "text_input": "a\ttext with \"quotes\" \u00e9 \u2028", "output_length": 3}`,
		`{"timestamp": 30, "messages": [{"role":"user",  "content":"spaced"}], "output_length": 3}`,
		`{"timestamp": 40, "payload": {"model": "m",  "messages": [{"role": "user", "content": "mine"}], "stream": true,"max_tokens":2}}`,
	}
	sessions := []string{
		`{"timestamp": 0, "session_id": "s", "input_length": 300, "output_length": 4}`,
		`{"delay": 5, "session_id": "s", "input_length": 40, "output_length": 4}`,
		`{"delay": 5, "session_id": "s", "input_length": 40, "output_length": 4}`,
	}
	for name, test := range map[string]struct {
		cfg   Config
		lines []string
	}{
		"chat":                {Config{Prompt: Prompt{Extra: json.RawMessage("{\"user\": \"me\",\n \"metadata\": {\n\"a\": 1}}")}}, mixed},
		"token ids":           {Config{Prompt: ids}, rows(40, 1)},
		"no stream":           {Config{Prompt: Prompt{NoStream: true}}, rows(3, 1)},
		"new turns":           {Config{Trace: Trace{Sessions: mooncake.SessionDelta}}, sessions},
		"closed loop":         {Config{Schedule: Schedule{FileOrder: true, Concurrency: 7}}, rows(40, 1)},
		"a limit and a shard": {Config{Trace: Trace{MaxRows: 9, Shard: 1, Shards: 2}}, rows(40, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t, simulator.Config{})
			file := filepath.Join(t.TempDir(), "saved.jsonl.zst")
			test.cfg.Target.Model, test.cfg.SavePrompts = "m", file
			first := e.replay(t, test.cfg, test.lines...)
			if first.err != nil {
				t.Fatal(first.err)
			}
			want := first.bodies()
			if s := first.report.Saved; len(want) == 0 || s.Rows != int64(len(want)) || s.Bytes != int64(len(strings.Join(want, ""))) || s.Lost != 0 || s.Disordered != 0 {
				t.Errorf("%d bodies were sent, and the report on the saved ones is %+v", len(want), s)
			}
			for _, name := range []string{file, mooncake.MetaName(file)} {
				if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: %v, %v", name, info, err)
				}
			}
			// The saved file is the trace of a second replay, which has different settings, except for the endpoint.
			trace, err := mooncake.Open(t.Context(), file, mooncake.OpenOptions{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = trace.Close() }()
			var again []string
			for {
				row, err := trace.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				again = append(again, string(mooncake.AppendRow(nil, row)))
			}
			cfg := Config{
				Target: Target{Model: "other"}, Prompt: Prompt{Endpoint: test.cfg.Prompt.Endpoint, Seed: 9, OutputCap: 1},
				Schedule: Schedule{FileOrder: test.cfg.Schedule.FileOrder},
			}
			second := e.replay(t, cfg, again...)
			if second.err != nil {
				t.Fatal(second.err)
			}
			if diff := cmp.Diff(want, second.bodies()); diff != "" {
				t.Errorf("the bodies differ:\n%s", diff)
			}
		})
	}
}

// TestSavedPromptsAreNotReplaced: existing files, and the trace itself even with force, stay unchanged, and nothing is sent.
func TestSavedPromptsAreNotReplaced(t *testing.T) {
	e := newEngine(t, simulator.Config{})
	trace := traceFile(t, rows(2, 1)...)
	for name, test := range map[string]struct {
		force bool
		file  string
		want  func(error) bool
	}{
		"existing file":  {false, traceFile(t, "mine"), func(err error) bool { return errors.Is(err, fs.ErrExist) }},
		"the trace":      {true, trace, func(err error) bool { return err != nil && strings.Contains(err.Error(), "a file of the trace") }},
		"missing folder": {true, filepath.Join(t.TempDir(), "no", "x.jsonl"), func(err error) bool { return errors.Is(err, fs.ErrNotExist) }},
	} {
		before, _ := os.ReadFile(test.file)
		_, err := Run(t.Context(), Config{
			Trace: Trace{Name: trace}, Target: Target{URL: e.url, Model: "m"}, Prompt: ids, SavePrompts: test.file, Force: test.force,
		})
		if after, _ := os.ReadFile(test.file); !test.want(err) || !bytes.Equal(before, after) || len(e.Records()) > 0 {
			t.Errorf("%s: %v, %d requests", name, err, len(e.Records()))
		}
	}
}

// TestUnsavedIsCounted: no request waits for a disk that hangs, bodies beyond the queue are counted, and the order is kept.
func TestUnsavedIsCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "saved.jsonl")
	s, err := openSaved(Config{SavePrompts: file})
	if err != nil {
		t.Fatal(err)
	}
	body := func(n int64) send.Body {
		text := fmt.Sprintf(`{"prompt":%d}`, n)
		return send.Body{Size: int64(len(text)), Open: func() io.Reader { return strings.NewReader(text) }}
	}
	const more = 10
	order := make([]int64, maxUnsaved+more)
	for i := range order {
		order[i] = int64(i)
	}
	slices.Reverse(order[:1000])
	for _, i := range order { // nobody writes yet
		s.add(&measure.Record{Index: i, Row: &mooncake.Row{InputLength: mooncake.Some(int64(5))}}, body(i))
	}
	s.add(&measure.Record{Index: -1, Row: &mooncake.Row{}}, body(0)) // a warm-up
	b, err := prompt.NewBuilder(prompt.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.start(plan{requests: b})
	said, err := s.finish(mooncake.Meta{Tool: "moonloop"})
	if err != nil || said.Rows != maxUnsaved || said.Lost != more || said.Disordered != 0 {
		t.Fatalf("%+v, %v", said, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for line := range strings.Lines(string(text)) {
		var row struct{ Payload struct{ Prompt int } }
		if err := json.Unmarshal([]byte(line), &row); err != nil || row.Payload.Prompt != i {
			t.Fatalf("line %d: %s, %v", i, line, err)
		}
		i++
	}
	side, err := os.ReadFile(mooncake.MetaName(file))
	if err != nil || !strings.Contains(string(side), `"not saved"`) {
		t.Errorf("sidecar %s, %v", side, err)
	}
	// Bodies that the reader of traces would refuse are not written. They count, too, while others find the queue full.
	s, err = openSaved(Config{SavePrompts: file, Force: true})
	if err != nil {
		t.Fatal(err)
	}
	long := body(1)
	long.Size = maxSavedBody + 1
	s.start(plan{requests: b})
	for i := range int64(1000) {
		s.add(&measure.Record{Index: i, Row: &mooncake.Row{Payload: []byte("{}")}}, long)
	}
	if said, err := s.finish(mooncake.Meta{}); err == nil || said.Lost != 1000 {
		t.Errorf("%+v, %v", said, err)
	}
}
