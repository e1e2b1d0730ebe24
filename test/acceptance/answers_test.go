// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/moonloop/moonloop/study"
)

// The answers of compare, search and twin, on real programs: simulators in separate processes, and vLLM. Package study tests the rates of
// the statistics behind them, in virtual time.

// TestAcceptanceCompare asks ten times which of two simulators is slower, and ten times the same for equal ones. The slower one takes 5 %
// longer for each prefill.
func TestAcceptanceCompare(t *testing.T) {
	dir, moonloop := artefacts(t), setting(t, "MOONLOOP_BIN")
	const repetitions, rounds, slowdown = 10, 8, 1.05
	trace := filepath.Join("..", "..", "examples", "demo.jsonl")
	engine := func(name, prefill, perToken string) string {
		folder := filepath.Join(dir, name)
		mkdir(t, folder)
		return startSimulator(t, folder, "--model", "simulated", "--prefill", prefill, "--prefill-per-token", perToken, "--decode", "5ms")
	}
	a, slower, same := engine("engine-a", "20ms", "20us"), engine("engine-slower", "21ms", "21us"), engine("engine-same", "20ms", "20us")

	ask := func(t *testing.T, folder, b string) comparison {
		t.Helper()
		mkdir(t, folder)
		replay := func(url string) string {
			return fmt.Sprintf("%s replay %s --url %s --model simulated --speedup 60 --seed {seed} --out {out} --progress none", moonloop, trace, url)
		}
		p := start(t, folder, "compare", nil, moonloop, "compare", "--json", "--rounds", strconv.Itoa(rounds), "--out", filepath.Join(folder, "rounds"),
			"--run", replay(a), "--run", replay(b))
		if code := p.wait(t, 20*time.Minute); code == 2 {
			t.Fatalf("compare ended with status %d\n%s", code, p.tail())
		}
		var c comparison
		read(t, p.out, &c)
		note(t, filepath.Base(folder), c.String())
		t.Logf("%s: %s", filepath.Base(folder), c)
		return c
	}

	var signs, covered, told, open int
	for i := range repetitions {
		folder := filepath.Join(dir, fmt.Sprintf("slower-%d", i+1))
		c := ask(t, folder, slower)
		truth := prefillTruth(t, filepath.Join(folder, "rounds", "a"), rounds, slowdown)
		if c.Answer == string(study.Slower) {
			signs++
		}
		note(t, filepath.Base(folder)+", truth", fmt.Sprintf("%.4f", truth))
		if r := c.Metrics[0]; r.Low != nil && *r.Low <= truth && truth <= *r.High {
			covered++
		}
		switch c := ask(t, filepath.Join(dir, fmt.Sprintf("equal-%d", i+1)), same); c.Answer {
		case string(study.Slower), string(study.Faster):
			told++
		case string(study.CannotTell):
			open++
		}
	}
	note(t, "equal ones: cannot tell", open)
	// Ten intervals of 95 % miss the truth three times or more in 1 % of all cases.
	judge(t, "slower one found", signs, "≥ 9 of 10", signs >= repetitions-1)
	judge(t, "interval covers the truth", covered, "≥ 8 of 10", covered >= repetitions-2)
	judge(t, "equal ones told apart", told, "≤ 1", told <= 1)
}

// prefillTruth returns the ratio of median times to first token for an engine whose prefill takes this many times as long as that of A,
// computed from A's runs: the simulator's formula gives the prefill's part of A's time, and the rest, the machine's, does not change.
func prefillTruth(t *testing.T, runs string, rounds int, slowdown float64) float64 {
	t.Helper()
	var prefill, whole []float64
	for i := range rounds {
		for _, row := range readLines[struct {
			Input  float64 `json:"input_length"`
			Result struct {
				TTFT  float64 `json:"ttft_ms"`
				Usage struct {
					Cached float64 `json:"cached_tokens"`
				}
			}
		}](t, filepath.Join(runs, strconv.Itoa(i+1), "requests.jsonl")) {
			prefill = append(prefill, 20+0.020*(row.Input-row.Result.Usage.Cached))
			whole = append(whole, row.Result.TTFT)
		}
	}
	slices.Sort(prefill)
	slices.Sort(whole)
	return 1 + (slowdown-1)*prefill[len(prefill)/2]/whole[len(whole)/2]
}

// comparison is the part of the output of `moonloop compare --json` that is checked.
type comparison struct {
	Answer  string
	Metrics []struct {
		Metric   string
		Pairs    int
		Ratio, P *float64
		Low      *float64 `json:"ratio_low"`
		High     *float64 `json:"ratio_high"`
	}
}

func (c comparison) String() string {
	r := c.Metrics[0]
	if r.Low == nil {
		return fmt.Sprintf("%s (%d pairs)", c.Answer, r.Pairs)
	}
	return fmt.Sprintf("%s: %.4f (%.4f to %.4f), %d pairs", c.Answer, *r.Ratio, *r.Low, *r.High, r.Pairs)
}

// TestAcceptanceSearchVLLM searches for the capacity of a vLLM several times, each with its own seed, and therefore with other sessions and
// other words.
func TestAcceptanceSearchVLLM(t *testing.T) {
	home, dir := setting(t, "MOONLOOP_VLLM"), artefacts(t)
	moonloop := setting(t, "MOONLOOP_BIN")
	const searches = 3
	engine := startVLLM(t, home, dir, "vLLM, blocks of 32", 32)
	trace := filepath.Join(dir, "trace.jsonl")
	generate := start(t, dir, "generate", nil, moonloop, "generate", "--rows", "400", "--rate", "10", "--think", "2,0.5", "--system-prompt", "700",
		"--user", "300,0.9,3000", "--output", "30,0.5,80", "--max-input", "6000", "--seed", "3", "--block-size", "32", "--out", trace)
	if code := generate.wait(t, time.Minute); code != 0 {
		t.Fatalf("generate ended with status %d\n%s", code, generate.tail())
	}
	// A new engine is slow at first, because it compiles. An engine in production has compiled long ago, so a replay comes first.
	warm := start(t, dir, "warm-up", nil, moonloop, "replay", trace, "--url", engine.url, "--model", "tiny", "--speedup", "2", "--progress", "none")
	if code := warm.wait(t, 10*time.Minute); code != 0 && code != 3 {
		t.Fatalf("the warm-up replay ended with status %d\n%s", code, warm.tail())
	}
	var found []float64
	for i := range searches {
		engine.empty(t)
		p := start(t, dir, fmt.Sprintf("search-%d", i+1), nil, moonloop, "search", trace, "--objective", searchObjective, "--json",
			"--precision", "0.1", "--seed", strconv.Itoa(1000*(i+1)), "--out", filepath.Join(dir, fmt.Sprintf("capacity-%d", i+1)),
			"--", "--url", engine.url, "--model", "tiny")
		if code := p.wait(t, 60*time.Minute); code != 0 {
			t.Fatalf("search ended with status %d\n%s", code, p.tail())
		}
		var c struct {
			Answer string
			Load   float64 `json:"capacity"`
			Low    float64 `json:"capacity_low"`
			High   float64 `json:"capacity_high"`
			First  string  `json:"gave_way_first"`
			Probes []struct{ Evidence bool }
		}
		read(t, p.out, &c)
		note(t, fmt.Sprintf("search %d", i+1), fmt.Sprintf("%s: %.3f (%.3f to %.3f), %d probes, %s", c.Answer, c.Load, c.Low, c.High, len(c.Probes), c.First))
		t.Logf("search %d: %s: %.3f (%.3f to %.3f), %d probes, gave way first: %s", i+1, c.Answer, c.Load, c.Low, c.High, len(c.Probes), c.First)
		found = append(found, c.Load)
	}
	// Each capacity found is within 10 % of their median.
	slices.Sort(found)
	middle := found[len(found)/2]
	apart := max(middle-found[0], found[len(found)-1]-middle) / middle
	below(t, "furthest from the median", apart, 0.10)
}

const searchObjective = "ttft.p95<250ms"

// TestAcceptanceTwinVLLM replays an application's requests on the engine that served them, and on one that is slower because it processes
// one request at a time.
func TestAcceptanceTwinVLLM(t *testing.T) {
	home, dir := setting(t, "MOONLOOP_VLLM"), artefacts(t)
	engine := startVLLM(t, home, dir, "vLLM, blocks of 32", 32)
	engine.conversations = 30 // a verdict needs more than a hundred requests
	_, trace, log := engine.production(t, home, filepath.Join(dir, "production"), seeds(t)[0])
	same := engine.twin(t, filepath.Join(dir, "same"), trace, log)
	for _, c := range same.Checks {
		note(t, "the same engine: "+c.Name, twinLine(c))
	}
	note(t, "the same engine", same.Answer)

	mkdir(t, filepath.Join(dir, "slow"))
	slow := startVLLM(t, home, filepath.Join(dir, "slow"), "vLLM, one request at a time", 32, "--max-num-seqs", "1")
	other := slow.twin(t, filepath.Join(dir, "slower"), trace, log)
	for _, c := range other.Checks {
		note(t, "the slower engine: "+c.Name, twinLine(c))
		if want := study.OutsideTolerance; c.Name == "duration.p50" && (c.Outcome != want || c.Difference < 0) {
			t.Errorf("the slower engine: %s is %s by %+.0f %%, want it to be slower, and %s", c.Name, c.Outcome, 100*c.Difference, want)
		}
	}
	if other.Answer != study.OutsideTolerance {
		t.Errorf("the slower engine: %s, want %s", other.Answer, study.OutsideTolerance)
	}
	if same.Answer == study.OutsideTolerance {
		t.Errorf("the same engine: %s", same.Answer)
	}
}

func twinLine(c study.Check) string {
	value := func(v *float64) float64 {
		if v == nil {
			return math.NaN()
		}
		return *v
	}
	return fmt.Sprintf("%.4g, %.4g: %+.3g (%+.3g to %+.3g), %s", value(c.Production), value(c.Replay), c.Difference, c.Low, c.High, c.Outcome)
}

// twin replays a captured trace at its own times on an empty cache, and asks how it differs from production.
func (e *realEngine) twin(t *testing.T, dir, trace, log string) (w study.Twin) {
	t.Helper()
	moonloop := setting(t, "MOONLOOP_BIN")
	mkdir(t, dir)
	e.empty(t)
	out := filepath.Join(dir, "run")
	extra, err := os.ReadFile(log + ".extra")
	if err != nil {
		t.Fatal(err)
	}
	replay := start(t, dir, "replay", nil, moonloop, "replay", trace, "--url", e.url, "--model", "tiny", "--out", out, "--progress", "none",
		"--extra-inputs", string(extra))
	if code := replay.wait(t, 20*time.Minute); code != 0 && code != 3 {
		t.Fatalf("replay ended with status %d\n%s", code, replay.tail())
	}
	p := start(t, dir, "twin", nil, moonloop, "twin", out, "--json", "--html", filepath.Join(dir, "twin.html"))
	if code := p.wait(t, time.Minute); code == 2 {
		t.Fatalf("twin ended with status %d\n%s", code, p.tail())
	}
	read(t, p.out, &w)
	t.Logf("%s: %s %s", filepath.Base(dir), w.Answer, w.Why)
	for _, c := range w.Checks {
		t.Logf("%s: %s: %s", filepath.Base(dir), c.Name, twinLine(c))
	}
	return w
}
