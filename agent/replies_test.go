// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/internal/testpipe"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// The lengths of conversations: of the first prompt, of each reply, and of what each turn adds.
const (
	firstTurn, replyTokens, nextTurn = 301, 40, 61
	fineBlock                        = 16
)

// conversations returns three conversations of three turns each: three first turns, three second ones, three third ones.
func conversations(t *testing.T) (lines []string) {
	t.Helper()
	next, nextFine := 0, 0
	ids, ranges := make([][]int, 3), make([][][2]int, 3)
	for turn := range 3 {
		length := firstTurn + turn*(replyTokens+nextTurn)
		before := length - replyTokens - nextTurn
		for c := range 3 {
			// Whole blocks of the turn before stay, the partial last one does not.
			keep, left := 0, 0
			if turn > 0 {
				keep, left = before/512, before/fineBlock
			}
			ids[c] = slices.Clone(ids[c][:keep])
			for len(ids[c]) < (length+511)/512 {
				ids[c] = append(ids[c], next)
				next++
			}
			var own [][2]int
			have := 0
			for _, r := range ranges[c] {
				if n := min(r[1], left-have); n > 0 {
					own, have = append(own, [2]int{r[0], n}), have+n
				}
			}
			n := (length+fineBlock-1)/fineBlock - have
			ranges[c] = append(own, [2]int{nextFine, n})
			nextFine += n
			row := map[string]any{"timestamp": len(lines), "input_length": length, "output_length": replyTokens, "hash_ids": ids[c], "hash_ranges": ranges[c]}
			var replies [][3]int
			for k := range turn {
				replies = append(replies, [3]int{3 * (turn - k), firstTurn + k*(replyTokens+nextTurn), replyTokens})
			}
			if replies != nil {
				row["replies"] = replies
			}
			b, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(b))
		}
	}
	return lines
}

// replay replays lines to the engine in virtual time, as fast as possible, and returns the report, the records and the spans.
func (e *talker) replay(t *testing.T, cfg Config, lines []string) (*report.Report, []result, tracetest.SpanStubs) {
	t.Helper()
	dir := t.TempDir()
	cfg.Trace.Name = filepath.Join(dir, "trace.jsonl")
	if err := os.WriteFile(cfg.Trace.Name, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(lines[0], "hash_ranges") {
		cfg.Trace.FineBlockSize = fineBlock
	}
	spans := &keepSpans{InMemoryExporter: tracetest.NewInMemoryExporter()}
	cfg.Telemetry.SpanExporter = spans
	cfg.Target.URL, cfg.Out, cfg.RunID = "http://engine", filepath.Join(dir, "out"), "run"
	var rep *report.Report
	synctest.Test(t, func(t *testing.T) {
		network := testpipe.New()
		cfg.DialContext, cfg.Waiter = network.Dial, schedule.NewSleeper
		server := &http.Server{Handler: e.reset(), ReadHeaderTimeout: time.Minute}
		defer network.Serve(server)()
		var err error
		if rep, err = Run(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	})
	r := replayed{report: rep}
	r.read(t, cfg.Out)
	return rep, r.results, spans.GetSpans()
}

// thinking returns the rows with timestamps that leave enough time between turns for a reply and for its check.
func thinking(lines []string) []string {
	var out []string
	for i, line := range lines {
		var row map[string]any
		_ = json.Unmarshal([]byte(line), &row)
		row["timestamp"] = i / 3 * 400
		b, _ := json.Marshal(row)
		out = append(out, string(b))
	}
	return out
}

// TestRepliesAreCarried: each later turn continues the previous turn and its live reply, to the token, for every kind of prompt. The
// engine has cached what is predicted, and every prompt has as many tokens as its row says.
func TestRepliesAreCarried(t *testing.T) {
	for _, tt := range []struct {
		name   string
		prompt Prompt
		block  int
	}{
		{"chat", Prompt{}, 16},
		{"chat, whole replies", Prompt{NoStream: true}, 16},
		{"chat, an engine with blocks of one token", Prompt{}, 1},
		{"words", Prompt{Endpoint: prompt.Completions, Form: prompt.Words}, 16},
		{"token ids", Prompt{Endpoint: prompt.Completions}, 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &talker{block: tt.block}
			rep, results, spans := e.replay(t, Config{Prompt: tt.prompt}, thinking(conversations(t)))
			for row := range int64(9) {
				want := firstTurn + row/3*(replyTokens+nextTurn)
				if n := int64(len(e.prompts[row])); n != want || results[row].Result.Prompt != "equal" {
					t.Errorf("row %d: %d tokens, want %d; %s", row, n, want, results[row].Result.Prompt)
				}
				if row < 3 {
					continue
				}
				before := append(slices.Clone(e.prompts[row-3]), e.replies[row-3]...)
				if got := e.prompts[row][:len(before)]; !slices.Equal(got, before) {
					t.Errorf("row %d does not continue row %d and its reply: %s", row, row-3, cmp.Diff(before, got))
				}
				res, hit := results[row].Result, (int64(len(before))-1)/int64(tt.block)*int64(tt.block)
				if res.Predicted == nil || *res.Predicted != hit || res.Usage.Cached != hit && tt.block > 1 || res.Usage.Cached < hit {
					t.Errorf("row %d: %d cached, predicted %v, want %d", row, res.Usage.Cached, res.Predicted, hit)
				}
			}
			want := measure.Replies{Needed: 9, Carried: 9, CarriedTokens: 9 * replyTokens, Invented: []measure.Reason{}}
			if diff := cmp.Diff(want, rep.Figures().Replies); diff != "" {
				t.Errorf("replies (-want +got):\n%s", diff)
			}
			checkReplySpans(t, spans)
			var table strings.Builder
			if err := rep.Table(&table, report.Width, false); err != nil || !strings.Contains(table.String(), "9 replies in later prompts, 9 of them live (360 tokens, 100 %)") {
				t.Errorf("%v\n%s", err, &table)
			}
			if got := rep.Figures().Cache.Block; got != int64(tt.block) {
				t.Errorf("blocks of %d, the engine's are %d", got, tt.block)
			}
		})
	}
}

// checkReplySpans checks the span of the last row.
func checkReplySpans(t *testing.T, spans tracetest.SpanStubs) {
	t.Helper()
	for _, s := range spans {
		got := map[string]any{}
		for _, kv := range s.Attributes {
			got[string(kv.Key)] = kv.Value.AsInterface()
		}
		if got[semconv.Row] != int64(8) {
			continue
		}
		for key, want := range map[string]any{
			semconv.Replies: []int64{6, 301, 40, 3, 402, 40}, semconv.FineBlockSize: int64(fineBlock),
			semconv.RepliesCarried: int64(80), semconv.RepliesInvented: int64(0),
		} {
			if diff := cmp.Diff(want, got[key]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		var n int64
		ranges, _ := got[semconv.HashRanges].([]int64)
		for i, v := range ranges {
			n += v * int64(i%2)
		}
		if n != (503+fineBlock-1)/fineBlock {
			t.Errorf("%s has %d ids: %v", semconv.HashRanges, n, ranges)
		}
		return
	}
	t.Error("the last row has no span")
}

// TestRepliesAreInvented: a reply that cannot be carried is replaced with as many invented words, the same ones in all later rows, and
// counted by the reason.
func TestRepliesAreInvented(t *testing.T) {
	first := func(row int64) bool { return row == 0 }
	tokenIDs := Prompt{Endpoint: prompt.Completions}
	for _, tt := range []struct {
		name string
		cfg  Config
		e    *talker
		want string
		n    int64 // invented replies; two later rows contain the reply to row 0
	}{
		{"an engine that cannot count", Config{}, &talker{silent: true}, carry.Unchecked, 9},
		{"the mode never", Config{Prompt: Prompt{Carry: carry.Never}}, &talker{}, carry.Off, 9},
		{"a known overhead", Config{Prompt: Prompt{Overhead: 6}}, &talker{}, carry.Off, 9},
		{"a text with another number of tokens", Config{}, &talker{odd: first}, carry.Text, 2},
		{"a reply that is too short", Config{}, &talker{shorten: first}, carry.Length, 2},
		{"a request that failed", Config{}, &talker{fail: first}, carry.Failed, 2},
		{"token ids that the engine does not give", Config{Prompt: tokenIDs}, &talker{plain: true, silent: true}, carry.Unchecked, 9},
		{"no memory for replies", Config{Prompt: Prompt{CarryBytes: 1}}, &talker{}, carry.Evicted, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := tt.e
			rate := 1.0
			tt.cfg.MaxErrorRate = &rate
			rep, results, _ := e.replay(t, tt.cfg, thinking(conversations(t)))
			f := rep.Figures().Replies
			if len(f.Invented) != 1 || f.Invented[0].Reason != tt.want || f.Invented[0].Count != tt.n || f.Carried != 9-tt.n || f.InventedTokens != replyTokens*tt.n {
				t.Errorf("%+v, want %d × %s", f, tt.n, tt.want)
			}
			for row := range int64(9) {
				if e.fail != nil && row == 0 {
					continue
				}
				if results[row].Result.Prompt != "equal" {
					t.Errorf("row %d: prompt %s", row, results[row].Result.Prompt)
				}
			}
			if second, third := e.prompts[3], e.prompts[6]; tt.want != carry.Off && tt.want != carry.Evicted && !slices.Equal(second, third[:len(second)]) {
				t.Errorf("the third turn does not continue the second: %s", cmp.Diff(second, third[:len(second)]))
			}
		})
	}
}

// TestRepliesOfSessions: turns that wait for the turn before, under a cap, carry its reply.
func TestRepliesOfSessions(t *testing.T) {
	var lines []string
	for i, line := range conversations(t) {
		var row map[string]any
		_ = json.Unmarshal([]byte(line), &row)
		row["session_id"] = fmt.Sprint("s", i%3)
		if i >= 3 {
			delete(row, "timestamp")
			row["delay"] = 300
		}
		b, _ := json.Marshal(row)
		lines = append(lines, string(b))
	}
	for _, p := range []Prompt{{}, {Endpoint: prompt.Completions}} {
		e := &talker{}
		rep, results, _ := e.replay(t, Config{Prompt: p, Trace: Trace{Sessions: mooncake.SessionFull}, Schedule: Schedule{Concurrency: 2, Warmup: 2}}, lines)
		if f := rep.Figures().Replies; f.Carried != 9 || f.Needed != 9 {
			t.Errorf("%+v", f)
		}
		for i, r := range results {
			if r.Result.Prompt != "equal" {
				t.Errorf("row %d: prompt %s", i, r.Result.Prompt)
			}
		}
	}
}

// TestCarriedUnchecked: [carry.Always] carries text that cannot be checked.
func TestCarriedUnchecked(t *testing.T) {
	e := &talker{silent: true}
	rep, _, _ := e.replay(t, Config{Prompt: Prompt{Carry: carry.Always}}, thinking(conversations(t)))
	if f := rep.Figures().Replies; f.Carried != 9 {
		t.Errorf("%+v", f)
	}
}

// TestRepliesNeverDelay: a row whose reply is still incomplete is sent at its scheduled time, with invented words.
func TestRepliesNeverDelay(t *testing.T) {
	e := &talker{hold: func(row int64) {
		if row == 0 {
			time.Sleep(time.Second)
		}
	}}
	lines := conversations(t)
	two := []string{lines[0], strings.Replace(strings.Replace(lines[3], `"replies":[[3,`, `"replies":[[1,`, 1), `"timestamp":3`, `"timestamp":200`, 1)}
	rep, results, _ := e.replay(t, Config{}, two)
	f := rep.Figures().Replies
	if f.Needed != 1 || f.Carried != 0 || len(f.Invented) != 1 || f.Invented[0].Reason != carry.Late {
		t.Errorf("%+v", f)
	}
	if r := results[1].Result; r.Prompt != "equal" || r.Lateness != 0 {
		t.Errorf("prompt %s, %g ms late", r.Prompt, r.Lateness)
	}
}

// TestRepliesOfOtherShards: a reply that another process received is counted as such.
func TestRepliesOfOtherShards(t *testing.T) {
	e := &talker{}
	rep, _, _ := e.replay(t, Config{Trace: Trace{Shard: 1, Shards: 2}}, thinking(conversations(t)))
	f := rep.Figures().Replies // rows 3, 5 and 7: replies of 0, 2, and of 1 and 4
	if f.Needed != 4 || f.Carried != 1 || len(f.Invented) != 1 || f.Invented[0].Reason != carry.Shard || f.Invented[0].Count != 3 {
		t.Errorf("%+v", f)
	}
}

// TestRowsWithoutReplies: a trace without replies is replayed as usual: without additional queries or fields.
func TestRowsWithoutReplies(t *testing.T) {
	e := &talker{}
	rep, _, _ := e.replay(t, Config{Prompt: Prompt{Endpoint: prompt.Completions}}, []string{
		`{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [0, 1]}`,
		`{"timestamp": 1, "input_length": 700, "output_length": 2, "hash_ids": [0, 2]}`,
	})
	if e.paths["/tokenize"] != 0 || strings.Contains(e.bodies[0], "return_token_ids") || rep.Figures().Replies.Needed != 0 {
		t.Errorf("%v, body %s", e.paths, e.bodies[0])
	}
}
