// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// The loop on engines that we did not write: an application in Python talks to the engine through the official client with a real
// instrumentation library; `moonloop capture` listens with its defaults; the trace is replayed to the same engine after its cache was
// emptied. The engine itself reports what it cached.

// realEngine is a running engine.
type realEngine struct {
	name, url string
	block     int64 // tokens of a block of its cache
	// empty drops what is cached; hits reads how many prompt tokens the cache has served so far. Both use the engine's own API.
	empty func(t *testing.T)
	hits  func(t *testing.T) int64
	// conversations is the number of the application's conversations, atOnce the number of concurrent ones.
	conversations, atOnce int
	app                   []string // further arguments of the application
}

// bounds are the limits of a replay's difference from production.
type bounds struct {
	points  float64 // between the hit rates; 0 means no bound: the figures are only recorded
	beyond  bool    // the replay must be further away than points says
	near    float64 // share of the requests whose hits differ from production's by at most a block of the engine, or 16 tokens if that is more
	perMean float64 // maximum of the mean difference of a request's hits, in tokens; 0 means no bound
}

// variant is a way to replay a captured trace.
type variant struct {
	name string
	args []string // of moonloop replay
	bounds
}

// loopBounds returns two variants. One has the promise: a replay is within this many points of production, and this many tokens a request
// on average. The other shows that the test can fail: a replay without the replies that production's engine had in its cache is further
// away.
func loopBounds(points float64) []variant {
	return []variant{
		{name: "replay", bounds: bounds{points: points, near: 0.9, perMean: 4}},
		{name: "replies not carried", args: []string{"--carry-replies=never"}, bounds: bounds{points: points, beyond: true}},
	}
}

// replaySpeeds slow replays down: if the engine takes longer for a reply than in production, because the machine is busy, the next turn is
// sent without that reply, since a row never waits. Such a replay is repeated more slowly.
var replaySpeeds = []string{"0.8", "0.4", "0.2"}

// seeds returns those in MOONLOOP_SEEDS, separated by commas, or draws five.
func seeds(t *testing.T) []string {
	t.Helper()
	if list := os.Getenv("MOONLOOP_SEEDS"); list != "" {
		return strings.Split(list, ",")
	}
	var drawn []string
	for range 5 {
		drawn = append(drawn, strconv.Itoa(rand.IntN(1_000_000)))
	}
	t.Logf("seeds drawn; to repeat: SEEDS=%s", strings.Join(drawn, ","))
	return drawn
}

// served is a request as the engine counted it, and as the application knows it.
type served struct {
	Conversation, Turn  int
	Began, Ended        float64 // seconds
	Input, Output       int64
	Cached              *int64
	Back                bool // its reply tokenises back to the tokens that were generated
	before              *served
	replayed, predicted int64 // cached tokens of the replay
}

func (s *served) cached() int64 {
	if s.Cached == nil {
		return 0
	}
	return *s.Cached
}

// replyHit returns the share of the previous reply that the engine had cached, of the part in whole blocks; ok is false if no block ends in
// the reply. The last token of a reply was never computed.
func (s *served) replyHit(block int64) (share float64, ok bool) {
	whole := (s.before.Input+s.before.Output-1)/block*block - s.before.Input
	return float64(max(0, s.cached()-s.before.Input)) / float64(whole), whole > 0
}

// captured is a row of the captured trace, and of a replay's results.
type captured struct {
	Input    int64 `json:"input_length"`
	Output   int64 `json:"output_length"`
	Observed struct {
		Cached *int64 `json:"cached_tokens"`
	} `json:"observed"`
	Result struct {
		Outcome   string
		Predicted int64 `json:"predicted_cached_tokens"`
		Usage     struct {
			Cached int64 `json:"cached_tokens"`
		}
	} `json:"result"`
}

// instrumentation returns the name of the library that makes the application's spans.
func instrumentation() string { return cmp.Or(os.Getenv("MOONLOOP_INSTRUMENTATION"), "openinference") }

// production captures the application with one seed and further arguments. It returns the application's requests, in the order in which
// they began, and the names of the trace and of the application's log.
func (e *realEngine) production(t *testing.T, home, dir, seed string, more ...string) (truth []*served, trace, log string) {
	t.Helper()
	mkdir(t, dir)
	moonloop := setting(t, "MOONLOOP_BIN")
	key := []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("a5", 32)}
	receiver := "127.0.0.1:" + testport.Port(t)
	trace, log = filepath.Join(dir, "production.jsonl"), filepath.Join(dir, "app.jsonl")
	capture := start(t, dir, "capture", key, moonloop, "capture", "--out", trace, "--keep-journal", "--progress", "none",
		"--grpc", "127.0.0.1:"+testport.Port(t), "--http", receiver)
	capture.find(t, regexp.MustCompile(`(listening for OTLP over HTTP)`))
	e.empty(t)
	before := e.hits(t)
	app := start(t, dir, "app", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + receiver},
		filepath.Join(home, "client", "bin", "python"), append([]string{
			filepath.Join("vllm", "app.py"), e.url, instrumentation(),
			strconv.Itoa(e.conversations), strconv.Itoa(e.atOnce), seed, log,
		}, slices.Concat(e.app, more)...)...)
	if code := app.wait(t, 15*time.Minute); code != 0 {
		t.Fatalf("the application ended with status %d\n%s", code, app.tail())
	}
	hits := e.hits(t) - before
	capture.stop(t)
	truth = readTruth(t, log)
	var cached int64
	for _, s := range truth {
		cached += s.cached()
	}
	if cached != hits {
		t.Errorf("the engine says that it had %d tokens cached, but its replies add up to %d", hits, cached)
	}
	return truth, trace, log
}

// loop captures the application with one seed, and replays the trace in each variant. It returns lines for a table.
func (e *realEngine) loop(t *testing.T, home, dir, seed string, variants []variant) (table []string) {
	t.Helper()
	truth, trace, log := e.production(t, home, dir, seed)
	told := instrumentation() != "openai-v2" // which leaves out the cached tokens of a chat
	var prompt, cached int64
	for _, s := range truth {
		prompt, cached = prompt+s.Input, cached+s.cached()
	}
	carried := slices.ContainsFunc(variants, func(v variant) bool { return v.beyond })
	share := followed(t, truth, e.block, carried)

	// The captured counts are those of the engine.
	rows := readLines[captured](t, trace)
	if want, got := multiset(truth, func(s *served) captured {
		r := captured{Input: s.Input, Output: s.Output}
		if told {
			r.Observed.Cached = s.Cached
		}
		return r
	}), multiset(rows, func(r captured) captured { return r }); !slices.Equal(want, got) {
		t.Errorf("requests as input/output/cached tokens: the engine counted\n%v\nthe trace has\n%v", want, got)
	}

	rate := func(n int64) float64 { return 100 * float64(n) / float64(prompt) }
	what := fmt.Sprintf("%s, seed %s", e.name, seed)
	table = append(table, fmt.Sprintf("| %s | production, %d requests | %d | %.2f %% | | replies hit: %.0f %% |", what, len(truth), cached, rate(cached), 100*share))
	extra, err := os.ReadFile(log + ".extra")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range variants {
		table = append(table, e.replay(t, dir, trace, what, string(extra), v, truth, told))
	}
	return table
}

// replayed is the content of a replay's summary.
type replayed struct {
	Rows     struct{ Total, Served int }
	Fidelity struct {
		Tokens struct{ Prompt, Output struct{ Equal int } }
		Cache  struct {
			Production struct {
				Production int64 `json:"production_tokens"`
				Replay     int64 `json:"replay_tokens"`
			}
		}
		Replies struct {
			Needed, Carried int
			Invented        []struct {
				Reason string
				Count  int
			}
		}
	}
}

// late counts the positions at which a reply was not there in time.
func (r *replayed) late() int {
	for _, why := range r.Fidelity.Replies.Invented {
		if why.Reason == "late" {
			return why.Count
		}
	}
	return 0
}

// replay replays a trace and compares its hits with production's, request by request.
func (e *realEngine) replay(t *testing.T, dir, trace, what, extra string, v variant, truth []*served, told bool) (line string) {
	t.Helper()
	var prompt, cached int64
	for _, s := range truth {
		prompt, cached = prompt+s.Input, cached+s.cached()
	}
	name := strings.ReplaceAll(v.name, " ", "-")
	out := filepath.Join(dir, "run-"+name)
	var summary replayed
	var counted int64 // by the engine
	for _, speed := range replaySpeeds {
		e.empty(t)
		before := e.hits(t)
		args := append([]string{
			"replay", trace, "--url", e.url, "--model", "tiny", "--out", out, "--force", "--progress", "none",
			"--speedup", speed, "--extra-inputs", extra,
		}, v.args...)
		replay := start(t, dir, "replay-"+name, nil, setting(t, "MOONLOOP_BIN"), args...)
		// 3 means that the machine was too busy to measure times; counts are still valid.
		if code := replay.wait(t, 20*time.Minute); code != 0 && code != 3 {
			t.Fatalf("%s: replay ended with status %d\n%s", v.name, code, replay.tail())
		}
		counted = e.hits(t) - before
		summary = replayed{}
		read(t, filepath.Join(out, "summary.json"), &summary)
		t.Logf("%s, %s at %s of the speed: of %d places of replies %d have the live one, the others are %+v",
			what, v.name, speed, summary.Fidelity.Replies.Needed, summary.Fidelity.Replies.Carried, summary.Fidelity.Replies.Invented)
		if summary.late() == 0 {
			break
		}
	}
	if n := len(truth); summary.Rows.Served != n || summary.Fidelity.Tokens.Prompt.Equal != n || summary.Fidelity.Tokens.Output.Equal != n {
		t.Errorf("%s, %s: %d requests served, %d with the row's prompt tokens, %d with its output tokens; want %d each",
			what, v.name, summary.Rows.Served, summary.Fidelity.Tokens.Prompt.Equal, summary.Fidelity.Tokens.Output.Equal, n)
	}
	match(t, truth, readLines[captured](t, filepath.Join(out, "requests.jsonl")))
	var hits int64
	for _, s := range truth {
		hits += s.replayed
	}
	// The engine also counts the requests by which a replay measures the template: a few tokens.
	if c := summary.Fidelity.Cache.Production; told && (c.Production != cached || c.Replay != hits) || counted < hits || counted > hits+512 {
		t.Errorf("%s, %s: the summary has %d and %d cached tokens of production and replay; the engine counted %d and %d, and said %d with its replies",
			what, v.name, c.Production, c.Replay, cached, counted, hits)
	}
	within, near, sum := max(16, e.block), 0, int64(0)
	for _, s := range truth {
		apart := s.replayed - s.cached()
		sum += apart
		if apart >= -within && apart <= within {
			near++
		}
	}
	points := 100 * float64(hits-cached) / float64(prompt)
	share, mean := float64(near)/float64(len(truth)), float64(sum)/float64(len(truth))
	line = fmt.Sprintf("| | %s | %d | %.2f %% | %+.2f | %.0f %% within %d tokens, mean %+.1f; prefill %+.1f %% |", v.name, hits,
		100*float64(hits)/float64(prompt), points, 100*share, within, mean, 100*(float64(prompt-hits)/float64(prompt-cached)-1))
	t.Logf("%s\n%s", line, e.difference(truth))

	away := math.Abs(points)
	switch {
	case v.points == 0:
	case v.beyond && away <= v.points:
		t.Errorf("%s, %s: the hit rates are %.2f points apart; the test must be able to fail, so want more than %.1f", what, v.name, points, v.points)
	case !v.beyond && away > v.points:
		t.Errorf("%s, %s: the hit rates are %.2f points apart, want at most %.1f", what, v.name, points, v.points)
	}
	if share < v.near {
		t.Errorf("%s, %s: the hits of %.0f %% of the requests are within %d tokens of production's, want %.0f %%", what, v.name, 100*share, within, 100*v.near)
	}
	if v.perMean > 0 && math.Abs(mean) > v.perMean {
		t.Errorf("%s, %s: a request hits %+.1f tokens more than production's on average, want at most %.0f either way", what, v.name, mean, v.perMean)
	}
	return line
}

// readTruth reads the application's log, in the order in which its requests began, and links the turns of conversations.
func readTruth(t *testing.T, log string) []*served {
	t.Helper()
	list := readLines[*served](t, log)
	slices.SortFunc(list, func(a, b *served) int { return cmp.Compare(a.Began, b.Began) })
	last := map[int]*served{}
	for _, s := range list {
		s.before = last[s.Conversation]
		last[s.Conversation] = s
	}
	return list
}

// followed fails, if bounds apply, unless production's follow-up turns hit the previous reply in the cache: otherwise the test would say
// nothing about replies. It returns the share of such turns that did.
func followed(t *testing.T, truth []*served, block int64, carried bool) float64 {
	t.Helper()
	turns, hit, lost := 0, 0, 0
	for _, s := range truth {
		if !s.Back {
			lost++
		}
		if s.before == nil {
			continue
		}
		share, ok := s.replyHit(block)
		if !ok {
			continue
		}
		turns++
		if share >= 0.8 {
			hit++
		}
	}
	if lost > 0 {
		t.Logf("%d of %d replies do not tokenise back to what was generated", lost, len(truth))
	}
	if len(truth) < 75 {
		t.Errorf("void: %d requests, want 75 or more", len(truth))
	}
	share := float64(hit) / float64(max(1, turns))
	if share < 0.5 && carried {
		t.Errorf("void: %d of production's %d follow-up turns hit 80 %% of the reply before, want half of them or more", hit, turns)
	}
	return share
}

// match assigns to each request of production its row in a replay's results: the one with its token counts. If several have the same, they
// are matched in the order of the file, which is that of time.
func match(t *testing.T, truth []*served, rows []captured) {
	t.Helper()
	taken := make([]bool, len(rows))
	for _, s := range truth {
		i := slices.IndexFunc(rows, func(r captured) bool { return r.Input == s.Input && r.Output == s.Output })
		for i >= 0 && taken[i] {
			next := slices.IndexFunc(rows[i+1:], func(r captured) bool { return r.Input == s.Input && r.Output == s.Output })
			if next < 0 {
				i = -1
			} else {
				i += 1 + next
			}
		}
		if i < 0 {
			t.Errorf("no row of %d and %d tokens is left in the replay's results", s.Input, s.Output)
			continue
		}
		taken[i] = true
		s.replayed, s.predicted = rows[i].Result.Usage.Cached, rows[i].Result.Predicted
	}
}

// difference describes how far the replay's hits are from production's, in blocks of the engine, and each request that is off by more than
// one block: where its hit ends in the prompts of production and of the replay, and what the trace promised.
func (e *realEngine) difference(truth []*served) string {
	counts := map[int64]int{}
	var out bytes.Buffer
	for _, s := range truth {
		apart := s.replayed - s.cached()
		counts[int64(math.Round(float64(apart)/float64(e.block)))]++
		if within := max(16, e.block); apart >= -within && apart <= within {
			continue
		}
		fmt.Fprintf(&out, "  conversation %d turn %d: prompt %d, production hit %d (%s), replay %d (%s), predicted %d\n", s.Conversation, s.Turn, s.Input,
			s.cached(), s.place(s.cached()), s.replayed, s.place(s.replayed), s.predicted)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  replay less production in blocks of %d:", e.block)
	for _, n := range slices.Sorted(mapKeys(counts)) {
		fmt.Fprintf(&b, " %+d: %d,", n, counts[n])
	}
	return strings.TrimSuffix(b.String(), ",") + "\n" + out.String()
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// place says in which part of a prompt a number of leading tokens ends.
func (s *served) place(n int64) string {
	switch p := s.before; {
	case n == 0:
		return "nothing"
	case p == nil:
		return "first turn"
	case n < p.Input:
		return fmt.Sprintf("%d before the end of the previous prompt", p.Input-n)
	case n < p.Input+p.Output:
		return fmt.Sprintf("%d of the %d tokens of the reply", n-p.Input, p.Output)
	default:
		return fmt.Sprintf("%d past the reply", n-p.Input-p.Output)
	}
}

// multiset formats requests so that two lists can be compared in any order.
func multiset[T any](list []T, of func(T) captured) (out []string) {
	for _, one := range list {
		r, cached := of(one), "-"
		if r.Observed.Cached != nil {
			cached = strconv.FormatInt(*r.Observed.Cached, 10)
		}
		out = append(out, fmt.Sprintf("%d/%d/%s", r.Input, r.Output, cached))
	}
	slices.Sort(out)
	return out
}

// ready waits until the engine answers; a program that ends first fails the test.
func (e *realEngine) ready(t *testing.T, server *process) {
	t.Helper()
	e.await(t, server, "/health")
}

// await does the same for a server that answers requests for a path when it is ready.
func (e *realEngine) await(t *testing.T, server *process, path string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if _, err := e.ask(t.Context(), http.MethodGet, path); err == nil {
			return
		}
		select {
		case <-server.done:
			t.Fatalf("%s ended with status %d\n%s", e.name, server.code, server.tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not ready\n%s", e.name, server.tail())
		}
	}
}

func (e *realEngine) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, e.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}

// counter reads one of the engine's own metrics.
func (e *realEngine) counter(t *testing.T, name string) int64 {
	t.Helper()
	page, err := e.ask(t.Context(), http.MethodGet, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`(?m)^` + name + `(?:\{[^}]*\})? (\S+)$`).FindSubmatch(page)
	if match == nil {
		t.Fatalf("the engine's metrics have no %s", name)
	}
	v, err := strconv.ParseFloat(string(match[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(v)
}

func read(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// showTable writes the figures of all seeds, as a table for docs/fidelity.md.
func showTable(t *testing.T, lines []string) {
	t.Helper()
	t.Log("\n| | | cached | hit rate | points | |\n|---|---|---|---|---|---|\n" + strings.Join(lines, "\n"))
}
