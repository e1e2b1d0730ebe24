// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/internal/demo"
	"github.com/moonloop/moonloop/internal/simulator"
)

// This file tests whether a replay hits the prefix cache as often as production did, on simulated engines whose caches work like those of
// real engines: blocks of 16 tokens or single tokens, replies kept, tokens that are not words, nothing aligned to anything. test/acceptance
// tests the same on real engines.

// planTalks makes conversations that share a system prompt and have long replies, so that most of what a turn hits in the cache comes from
// its own conversation. A reply has leastReply tokens, or up to 499 more. The requests name no session, like those of most clients.
func planTalks(conversations int, apart time.Duration, leastReply int, seed uint64) (plan []demo.Conversation) {
	p := demo.NewProse(seed)
	system := p.System(310 + p.IntN(100))
	for i := range conversations {
		c := demo.Conversation{Start: time.Duration(i) * apart, System: system}
		for range 4 {
			c.Turns = append(c.Turns, demo.Turn{
				Think: time.Duration(120+p.IntN(160)) * time.Millisecond, Question: p.Question(p.Words(120, 0.8)), Reply: leastReply + p.IntN(500),
			})
		}
		plan = append(plan, c)
	}
	return plan
}

// compared is a request of production and of its replay.
type compared struct {
	Input    int64 `json:"input_length"`
	Observed struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"observed"`
	Result struct {
		Prompt    string `json:"prompt_agreement"`
		Output    string `json:"output_agreement"`
		Predicted int64  `json:"predicted_cached_tokens"`
		Usage     struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"usage"`
	} `json:"result"`
}

func TestLoopOnRealCaches(t *testing.T) {
	t.Parallel()
	with := func(c simulator.Config, change func(*simulator.Config)) simulator.Config {
		change(&c)
		return c
	}
	blocks := func(n int) simulator.Config {
		return with(simulator.VLLM(), func(c *simulator.Config) { c.Cache.BlockSize = n })
	}
	for _, test := range []struct {
		name   string
		config simulator.Config
		within float64 // points between the hit rates
		// reorders: production's turns miss the previous reply, because the template moved the system text after it.
		reorders bool
	}{
		{"vLLM, blocks of 16", blocks(16), 1, false},
		{"vLLM, blocks of 128", blocks(128), 1, false},
		{"llama.cpp", simulator.LlamaCPP(), 2, false},
		{"vLLM, system text last", with(blocks(16), func(c *simulator.Config) {
			c.Template = &simulator.Template{PerMessage: 5, PerPrompt: 5, SystemLast: true}
		}), 2, true},
	} {
		t.Run(strings.ReplaceAll(test.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			test.config.TokensPerChunk = 16
			seed := rand.Uint64N(1_000_000)
			t.Logf("seed %d", seed)
			l := &realLoop{folder: t.TempDir(), config: test.config, block: int64(test.config.Cache.BlockSize)}
			l.capture(t, seed)
			if hit, turns := l.followed(); hit*2 < turns && !test.reorders {
				t.Fatalf("nothing was tested: %d of production's %d follow-up turns hit 80 %% of the reply before", hit, turns)
			}
			l.replay(t, "replay", test.within)
			if test.reorders { // the cache of such an engine does not keep replies
				return
			}
			if without := l.replay(t, "without replies", 0, "--carry-replies=never", "--speedup=2"); math.Abs(without) <= test.within {
				t.Errorf("the hit rates are %+.2f points apart without the replies: the test could not fail", without)
			}
		})
	}
}

// realLoop is one production and its replays.
type realLoop struct {
	folder string
	config simulator.Config
	block  int64
	truth  []*simulator.Record // of production, in the order of arrival

	conversations int      // 0: the default of capture
	args          []string // of the capture
}

// engine starts an engine with an empty cache.
func (l *realLoop) engine(t *testing.T) (e *simulator.Engine, url string, stop func()) {
	t.Helper()
	e, err := simulator.New(l.config)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(e)
	return e, s.URL, func() {
		s.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (l *realLoop) capture(t *testing.T, seed uint64) {
	t.Helper()
	c := startCapture(t, l.folder, l.args...)
	e, url, stop := l.engine(t)
	defer stop()
	spans, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(c.grpc), otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans, sdktrace.WithMaxExportBatchSize(32)))
	// Replies shorter than three blocks would be hidden by the end of a block.
	plan := planTalks(cmp.Or(l.conversations, 20), 120*time.Millisecond, max(100, 3*int(l.block)), seed)
	visits := [][]demo.Conversation{plan}
	if l.config.Cache.Slots > 0 {
		// One after the other: which of several conversations overwrites another one's slot depends on milliseconds.
		plan = planTalks(7, 0, 100, seed)
		visits = slices.Collect(slices.Chunk(plan, 1))
	}
	app := demo.Application{Engine: url, Tracer: provider.Tracer("test")}
	var sent demo.Sent
	for _, conversations := range visits {
		sent = app.Run(t.Context(), conversations)
	}
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sent.Failed > 0 || sent.Requests != int64(demo.Turns(plan)) {
		t.Fatalf("%d of %d requests failed: %v", sent.Failed, sent.Requests, sent.Err)
	}
	if out, status := c.end(t, os.Interrupt); status != exitOK {
		t.Fatalf("capture: exit status %d\n%s%s", status, out, &c.stderr)
	}
	l.truth = e.Records()
}

// followed counts the turns after the first one of each conversation, and how many of them hit at least four fifths of the previous reply.
func (l *realLoop) followed() (hit, turns int) {
	for i, r := range l.truth {
		if len(r.Request.Messages) < 4 {
			continue
		}
		turns++
		// The previous turn: the request whose messages are the beginning of these.
		for _, before := range slices.Backward(l.truth[:i]) {
			n := len(before.Request.Messages)
			if n != len(r.Request.Messages)-2 || !slices.Equal(before.Request.Messages, r.Request.Messages[:n]) {
				continue
			}
			if got := r.CachedTokens - before.PromptTokens; 5*got >= 4*before.OutputTokens {
				hit++
			}
			break
		}
	}
	return hit, turns
}

// send replays the captured trace against an engine with an empty cache, and returns the folder with the results, and how this machine, if it
// was busy, changed what the engine saw: "" if it did not.
func (l *realLoop) send(t *testing.T, name string, args ...string) (out, busy string) {
	t.Helper()
	e, url, stop := l.engine(t)
	defer stop()
	out = filepath.Join(l.folder, strings.ReplaceAll(name, " ", "-"))
	var stdout, stderr bytes.Buffer
	status := run(context.WithoutCancel(t.Context()), append([]string{
		"replay", filepath.Join(l.folder, "prod.jsonl"), "--url", url, "--out", out, "--force", "--progress", "none",
	}, args...), strings.NewReader(""), &stdout, &stderr)
	if status != exitOK && status != exitInvalid { // a machine too busy to measure times counts tokens as well as any other
		t.Fatalf("%s: exit status %d\n%s%s", name, status, &stdout, &stderr)
	}
	content, err := os.ReadFile(filepath.Join(out, "summary.json"))
	if err != nil {
		t.Fatal(err)
	}
	var summary struct {
		Fidelity struct{ Replies measure.Replies }
	}
	if err := json.Unmarshal(content, &summary); err != nil {
		t.Fatal(err)
	}
	for _, why := range summary.Fidelity.Replies.Invented {
		if why.Reason == carry.Late {
			return out, fmt.Sprintf("%d replies were not there in time", why.Count)
		}
	}
	return out, l.disturbed(e.Records())
}

// disturbed says in what the requests of a replay met the engine differently than those of production: "" if in nothing that matters to a
// cache.
func (l *realLoop) disturbed(records []*simulator.Record) string {
	for i, r := range records {
		switch {
		case i < len(l.truth) && r.PromptTokens != l.truth[i].PromptTokens:
			return fmt.Sprintf("request %d came out of turn", i+1)
		case i > 0 && l.config.Cache.Slots > 0 && r.Headers < records[i-1].Ended:
			return fmt.Sprintf("request %d came before the one before it had ended", i+1)
		}
	}
	return ""
}

// replay replays the captured trace and returns by how many points its hit rate is above production's. With a bound, the hits of each request
// are compared with production's, too; a busy machine, on which requests came too late or in another order, tries again more slowly.
func (l *realLoop) replay(t *testing.T, name string, within float64, args ...string) (points float64) {
	t.Helper()
	if within == 0 {
		out, _ := l.send(t, name, args...)
		points, _ = l.compare(t, name, out, within)
		return points
	}
	var wrong []string
	for _, speed := range []string{"1", "0.5", "0.2", "0.1"} {
		out, busy := l.send(t, name, append(args, "--speedup", speed)...)
		if points, wrong = l.compare(t, name, out, within); len(wrong) == 0 || busy == "" {
			break
		}
		t.Logf("%s: at %s of the speed, %s: this machine is busy: %s", name, speed, busy, wrong)
	}
	for _, w := range wrong {
		t.Errorf("%s: %s", name, w)
	}
	return points
}

// compare compares the hits of a replay in the folder out with production's, and returns by how many points its hit rate is above, and, with a
// bound, what is wrong.
func (l *realLoop) compare(t *testing.T, name, out string, within float64) (points float64, wrong []string) {
	t.Helper()
	var prompt, production, replayed int64
	apart := map[int64]int{} // in blocks
	near, rows := 0, 0
	content, err := os.ReadFile(filepath.Join(out, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var r compared
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		if r.Result.Prompt != "equal" || r.Result.Output != "equal" {
			t.Errorf("%s: row %d has other tokens than production: %+v", name, rows, r)
		}
		cached := r.Result.Usage.Cached
		prompt, production, replayed = prompt+r.Input, production+r.Observed.Cached, replayed+cached
		apart[int64(math.Round(float64(cached-r.Observed.Cached)/float64(max(l.block, 16))))]++
		if d := cached - r.Observed.Cached; max(d, -d) <= max(l.block, 16) {
			near++
		}
		rows++
	}
	if rows != len(l.truth) || rows == 0 {
		t.Fatalf("%s: %d rows of %d requests", name, rows, len(l.truth))
	}
	points = 100 * float64(replayed-production) / float64(prompt)
	mean := float64(replayed-production) / float64(rows)
	t.Logf("%s: %d requests, %d prompt tokens, %d cached in production (%.2f %%), %d in the replay (%+.2f points, %+.1f tokens a request, %d within a block); replay less production in blocks: %v",
		name, rows, prompt, production, 100*float64(production)/float64(prompt), replayed, points, mean, near, apart)
	if within == 0 {
		return points, nil
	}
	if math.Abs(points) > within {
		wrong = append(wrong, fmt.Sprintf("the hit rates are %+.2f points apart, want at most %.0f", points, within))
	}
	if 10*near < 9*rows {
		wrong = append(wrong, fmt.Sprintf("%d of %d requests hit as many tokens as in production, give or take a block", near, rows))
	}
	if math.Abs(mean) > 4 && l.block == 16 { // with coarse blocks one request in forty decides; with slots, chance does
		wrong = append(wrong, fmt.Sprintf("a request hits %+.1f tokens more than in production on average", mean))
	}
	return points, wrong
}
