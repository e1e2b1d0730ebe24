// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/internal/splitmix"
)

func TestRecordFacts(t *testing.T) {
	var lines bytes.Buffer
	e, url := serve(t, Config{
		Cache:  Cache{BlockSize: 4},
		Record: Recording{Bodies: true, Blocks: true, Headers: []string{"x-session-id"}, To: &lines},
	})
	body := `{"model":"m","messages":[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"one two"},` +
		`{"type":"text","text":"three"}]},{"role":"assistant","content":null,"tool_calls":[{"a": 1}]}],"temperature":0,"custom":{"a":[1]},` +
		`"tools":[{"type":"function","function":{"name":"f"}}],"max_tokens":9,"max_completion_tokens":2,"min_tokens":2,"ignore_eos":true,"cache_salt":"s"}`
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	resp, _ := post(t, url+"/v1/chat/completions", body, "Traceparent", parent, "X-Session-Id", "abc", "X-Other", "no", "Authorization", "Bearer key")
	r := lastRecord(t, e)
	if resp.Header.Get(HeaderSeq) != "1" || r.Seq != 1 {
		t.Errorf("reply header %q, seq %d", resp.Header.Get(HeaderSeq), r.Seq)
	}
	want := Facts{
		Model: "m", Prompt: PromptMessages, MaxTokens: 2, MinTokens: 2, IgnoreEOS: true, CacheSalt: true, Tools: 1,
		Extra: []string{"temperature", "custom"},
		Messages: []Message{
			{Role: "system", Bytes: len(`"be brief"`), Tokens: 5 + 2},
			{Role: "user", Bytes: len(`[{"type":"text","text":"one two"},{"type":"text","text":"three"}]`), Tokens: 5 + 3},
			{Role: "assistant", Tokens: 5 + 2, ToolCalls: true}, // [{"a": 1}] is two words
		},
	}
	if d := cmp.Diff(want, r.Request); d != "" {
		t.Errorf("facts (-want +got):\n%s", d)
	}
	if r.PromptTokens != 5+1+7+8+7 || len(r.Blocks) != 7 || string(r.Body) != body || r.BytesIn != int64(len(body)) { // the tools are one word
		t.Errorf("%d tokens, %d blocks, %d bytes", r.PromptTokens, len(r.Blocks), r.BytesIn)
	}
	if d := cmp.Diff(Header{"Traceparent": {parent}, "X-Session-Id": {"abc"}}, r.Header); d != "" || !r.Authorized {
		t.Errorf("headers (-want +got):\n%s", d)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(lines.String(), "\n"); n != 1 {
		t.Fatalf("%d lines", n)
	}
	var back Record
	if err := json.Unmarshal(lines.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(*r, back, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); d != "" {
		t.Errorf("written and read back (-want +got):\n%s", d)
	}
}

// The timestamps are in the order of the events, and the tokens of the writes add up.
func TestRecordOrder(t *testing.T) {
	e, url := serve(t, Config{Latency: Latency{Prefill: time.Millisecond, Decode: 100 * time.Microsecond}})
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			_, _, err := tryPost(t, url+"/v1/completions", fmt.Sprintf(`{"model":"m","prompt":[%d],"max_tokens":20,"stream":true}`, i))
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	lastRecord(t, e)
	records := e.Records()
	if len(records) != 20 {
		t.Fatalf("%d records", len(records))
	}
	for i, r := range records {
		if r.Seq != uint64(i)+1 {
			t.Errorf("record %d has number %d", i, r.Seq)
		}
		at, tokens := Never, 0
		for _, next := range []time.Duration{r.ConnAccepted, r.Headers, r.BodyRead, r.Admitted, r.PrefillDone} {
			if next < at {
				t.Errorf("record %d: %v after %v", i, next, at)
			}
			at = next
		}
		for _, w := range r.Writes {
			if w.At < at {
				t.Errorf("record %d: a write at %v after %v", i, w.At, at)
			}
			at = w.At
			tokens += w.Tokens
		}
		if r.Ended < at || tokens != 20 || r.OutputTokens != 20 {
			t.Errorf("record %d: ended %v after %v, %d tokens", i, r.Ended, at, tokens)
		}
	}
}

func TestRecordBounds(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  Recording
		kept    int
		dropped int64
	}{
		{"by number", Recording{Keep: 10}, 10, 2990},
		{"by bytes", Recording{KeepBytes: 20 * 1024}, 20, 2980},
		{"at least the last", Recording{KeepBytes: 1}, 1, 2999},
		{"none", Recording{Keep: -1}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := Config{Record: test.config}.withDefaults()
			l := recordLog{config: config.Record}
			for i := range uint64(3000) {
				l.add(&Record{Seq: i})
			}
			got := l.records()
			dropped, _ := l.counts()
			if len(got) != test.kept || dropped != test.dropped || (test.kept > 0 && got[len(got)-1].Seq != 2999) {
				t.Errorf("kept %d, dropped %d", len(got), dropped)
			}
		})
	}
}

type fullDisk struct{}

var errFullDisk = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFullDisk }

func TestRecordLost(t *testing.T) {
	e, err := New(Config{Record: Recording{To: fullDisk{}}})
	if err != nil {
		t.Fatal(err)
	}
	e.log.add(&Record{})
	e.log.add(&Record{})
	if err := e.Close(); !errors.Is(err, errFullDisk) || !strings.Contains(err.Error(), "2 records") {
		t.Errorf("Close: %v", err)
	}
	if s := e.Stats(); s.RecordsLost != 2 {
		t.Errorf("stats %+v", s)
	}
}

func TestReplyLengths(t *testing.T) {
	for _, test := range []struct {
		name   string
		config Config
		body   string
		tokens int
		finish string
	}{
		{"as asked", Config{}, `"max_tokens":5`, 5, "length"},
		{"the newer name wins", Config{}, `"max_completion_tokens":4,"max_tokens":5`, 4, "length"},
		{"in either order", Config{}, `"max_tokens":5,"max_completion_tokens":4`, 4, "length"},
		{"no limit", Config{DefaultMaxTokens: 6}, `"top_p":1`, 6, "stop"},
		{"no limit, a minimum", Config{DefaultMaxTokens: 6}, `"min_tokens":9`, 9, "stop"},
		{"null is absent", Config{DefaultMaxTokens: 6}, `"max_tokens":null`, 6, "stop"},
		{"ignore_eos prevents an early stop", Config{EarlyStop: 1}, `"max_tokens":50,"ignore_eos":true`, 50, "length"},
		{"a minimum equal to the limit prevents an early stop", Config{EarlyStop: 1}, `"max_tokens":50,"min_tokens":50`, 50, "length"},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, url := serve(t, test.config)
			post(t, url+"/v1/completions", `{"model":"m","prompt":"x",`+test.body+`}`)
			if r := lastRecord(t, e); r.OutputTokens != test.tokens || r.FinishReason != test.finish {
				t.Errorf("%d tokens, %q; want %d, %q", r.OutputTokens, r.FinishReason, test.tokens, test.finish)
			}
		})
	}
}

// Early stops occur at their share, within [min_tokens, max_tokens].
func TestEarlyStop(t *testing.T) {
	config := Config{EarlyStop: 0.4, Seed: 3}
	early := 0
	for i := range uint64(10_000) {
		p := config.plan(&request{facts: Facts{MaxTokens: 100, MinTokens: 20}}, splitmix.Next(i), nil)
		if p.tokens < 20 || p.tokens > 100 || (p.finish == finishStop) != (p.tokens < 100) {
			t.Fatalf("plan %+v", p)
		}
		if p.finish == finishStop {
			early++
		}
	}
	// 1 of 81 lengths is the full one.
	if share := float64(early) / 10_000; share < 0.37 || share > 0.42 {
		t.Errorf("share %v of early stops, want about 0.4·80/81", share)
	}
}

func TestValidateReportsAll(t *testing.T) {
	_, err := New(Config{
		MaxRunning: -1, EarlyStop: 2, Template: &Template{PerPrompt: -1}, RoleChunk: 9, Models: []string{""},
		Record: Recording{Headers: []string{"authorization"}},
		Faults: Faults{Rates: map[Fault]float64{"nonsense": 0.5, "cut": 0.9}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"MaxRunning is -1", "EarlyStop is 2", "Template.PerPrompt", "RoleChunk", "Models", "Authorization", `unknown fault "nonsense"`, "add up to 1.4"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}
