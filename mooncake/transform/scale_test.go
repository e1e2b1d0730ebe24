// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

var publicTrace = filepath.Join("..", "..", "..", "shared", "data", "conversation_trace.jsonl")

// public returns the public conversation trace.
func public(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(publicTrace)
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("the public trace is not there: see CONTRIBUTING.md")
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// source returns a trace of JSON lines.
func source(data []byte, fine int) Source {
	return Source{Name: "test", Open: func() (Rows, error) {
		return mooncake.NewReader(bytes.NewReader(data), mooncake.ReaderOptions{Name: "test", FineBlockSize: fine}), nil
	}}
}

// transformed runs a transformation, and returns the rows, their analysis and the report.
func transformed(t testing.TB, c Config, sources ...Source) ([]*mooncake.Row, *stats.Analysis, Report) {
	t.Helper()
	s, err := Open(c, sources...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var file bytes.Buffer
	if err := s.Each(t.Context(), mooncake.NewWriter(&file).Write); err != nil {
		t.Fatal(err)
	}
	opt := stats.AnalyzeOptions{BlockSize: s.BlockSize(), FineBlockSize: s.FineBlockSize()}
	a := stats.NewAnalyzer(opt)
	r := mooncake.NewReader(&file, mooncake.ReaderOptions{Strict: true, BlockSize: opt.BlockSize, FineBlockSize: opt.FineBlockSize})
	var rows []*mooncake.Row
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		a.Add(row, r.Line())
		rows = append(rows, row)
	}
	return rows, a.Analysis(), s.Report()
}

// curve counts rows per minute.
func curve(rows []*mooncake.Row) (minutes []float64) {
	for _, row := range rows {
		m := int(row.Timestamp.V / minute)
		for len(minutes) <= m {
			minutes = append(minutes, 0)
		}
		minutes[m]++
	}
	return minutes
}

// scaling is a scaled trace, by the figures of its sidecar and by its rows.
type scaling struct {
	hits, gapCV, randomCV float64
	times                 []float64
	curve                 []float64
}

// scale runs a transformation without reading the result again.
func scale(t testing.TB, c Config, data []byte) (out scaling) {
	t.Helper()
	s, err := Open(c, source(data, 0))
	if err != nil {
		t.Error(err)
		return out
	}
	defer s.Close()
	var rows []*mooncake.Row
	for row, err := s.Next(); !errors.Is(err, io.EOF); row, err = s.Next() {
		if err != nil {
			t.Error(err)
			return out
		}
		rows, out.times = append(rows, row), append(out.times, row.Timestamp.V)
	}
	after := s.Report().Steps[0].After
	out.hits, out.gapCV, out.randomCV, out.curve = after.TokenHits, after.GapCV, after.RandomCV, curve(rows)
	return out
}

// repeated returns how often a test repeats a calculation with another input; with -short, as under the race detector, only a few times.
func repeated(times, few int) int {
	if testing.Short() {
		return few
	}
	return times
}

// TestScaleNamesTheLargestCluster: if a cluster is larger than the part to keep or to leave out, the result has another size than
// requested, and the report says why.
func TestScaleNamesTheLargestCluster(t *testing.T) {
	var trace bytes.Buffer
	for i := range 100 {
		session := "a"
		if i%10 == 0 {
			session = strconv.Itoa(i)
		}
		fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 512, "output_length": 1, "hash_ids": [%d], "session_id": %q}`+"\n", i, i, session)
	}
	for factor, named := range map[float64]bool{0.05: true, 0.3: true, 0.6: true, 1.5: true, 2: false} {
		_, _, report := transformed(t, Config{Scale: factor}, source(trace.Bytes(), 0))
		if effect := report.Steps[0].Effect; strings.Contains(effect, "(the largest cluster has 90 rows, and is never divided)") != named {
			t.Errorf("%v: %s", factor, effect)
		}
	}
	even := bytes.ReplaceAll(trace.Bytes(), []byte(`, "session_id": "a"`), nil)
	if _, _, report := transformed(t, Config{Scale: 0.3}, source(even, 0)); strings.Contains(report.Steps[0].Effect, "cluster") {
		t.Error(report.Steps[0].Effect)
	}
}

// TestScalePublicTrace checks the promises of scaling on the public trace.
func TestScalePublicTrace(t *testing.T) {
	data := public(t)
	rows, was, _ := transformed(t, Config{}, source(data, 0))
	full, truth := curve(rows), hitRate(was)
	cases := []struct {
		factor float64
		seeds  int
	}{{0.1, repeated(40, 4)}, {0.5, 1}, {2.5, 1}, {4, 2}}
	for _, c := range cases[:repeated(len(cases), 1)] {
		all := make([]scaling, c.seeds)
		var each sync.WaitGroup
		var next atomic.Int64
		for range runtime.GOMAXPROCS(0) {
			each.Go(func() {
				for seed := next.Add(1) - 1; seed < int64(c.seeds); seed = next.Add(1) - 1 {
					all[seed] = scale(t, Config{Scale: c.factor, Seed: uint64(seed)}, data)
				}
			})
		}
		each.Wait()
		var off, most, worst, mean, n float64
		for seed, got := range all {
			d := 100 * math.Abs(got.hits-truth)
			off += d / float64(c.seeds)
			most = max(most, d)
			for m, got := range got.curve {
				if full[m] < 10 {
					continue
				}
				e := math.Abs(got/(c.factor*full[m]) - 1)
				worst = max(worst, e)
				mean += e
				n++
			}
			if seed > 1 {
				continue
			}
			// The reported figures are those of the rows: the gap CV, and that of random arrivals.
			if d := math.Abs(got.gapCV/coefficient(got.times) - 1); d > 1e-6 {
				t.Errorf("×%g: gap CV %.4f, and the rows' is %.4f", c.factor, got.gapCV, coefficient(got.times))
			}
			random := coefficient(randomTimes(got.times, 3000))
			if d := math.Abs(got.randomCV/random - 1); d > 0.05 {
				t.Errorf("×%g: gap CV of random arrivals %.3f, want %.3f as in a simulation", c.factor, got.randomCV, random)
			}
			t.Logf("×%g: gap CV %.3f, of random arrivals %.3f", c.factor, got.gapCV, got.randomCV)
		}
		t.Logf("×%g, %d seeds: hit rate off by %.3f points on average, %.3f at most; minutes off by %.1f %% on average, %.1f %% at most", c.factor, c.seeds, off, most, 100*mean/n, 100*worst)
		if off > 2 || worst > 0.1 {
			t.Errorf("×%g: hit rate off by %.3f points on average, a minute by %.1f %%", c.factor, off, 100*worst)
		}
		if _, a, _ := transformed(t, Config{Scale: c.factor}, source(data, 0)); len(a.Violations) > 0 || math.Abs(hitRate(a)-all[0].hits) > 1e-9 {
			t.Errorf("×%g: %v; hit rate %v, reported %v", c.factor, a.Violations, hitRate(a), all[0].hits)
		}
	}

	// The purpose of all this: a random tenth of the rows loses most of what they shared.
	var lost float64
	for seed := range uint64(5) {
		random, kept := rand.New(rand.NewPCG(seed, 0)), []*mooncake.Row(nil)
		for _, row := range rows {
			if random.Float64() < 0.1 {
				kept = append(kept, row)
			}
		}
		lost += 100 * (truth - hitsOf(kept)) / 5
	}
	t.Logf("a tenth at random: hit rate off by %.1f points", lost)
	if lost < 20 {
		t.Errorf("a tenth at random loses %.1f points: the trace shows little", lost)
	}
}

// coefficient returns the coefficient of variation of the gaps between ascending times.
func coefficient(times []float64) float64 {
	n, span, squares := float64(len(times)-1), times[len(times)-1]-times[0], 0.
	for i := range times[1:] {
		squares += (times[i+1] - times[i] - span/n) * (times[i+1] - times[i] - span/n)
	}
	return math.Sqrt(squares/n) / (span / n)
}

// randomTimes returns as many random times in the same span, by a clock with this tick.
func randomTimes(times []float64, tick float64) []float64 {
	random, out := rand.New(rand.NewPCG(1, 2)), make([]float64, len(times))
	for i := range out {
		out[i] = tick * math.Floor(random.Float64()*(times[len(times)-1]-times[0])/tick)
	}
	slices.Sort(out)
	return out
}

// hitsOf returns the share of the tokens of rows that an infinite cache has.
func hitsOf(rows []*mooncake.Row) float64 {
	seen := map[uint64]bool{}
	var hit, all int64
	for _, row := range rows {
		had := int64(0)
		for _, id := range row.HashIDs {
			if seen[id] {
				had++
			}
			seen[id] = true
		}
		hit, all = hit+min(had*mooncake.BlockSize, row.InputLength.V), all+row.InputLength.V
	}
	return float64(hit) / float64(all)
}

// TestTimeScaleKeepsTheSequence: the requests are the same, in the same order, at other times, on the public trace and on a generated one.
func TestTimeScaleKeepsTheSequence(t *testing.T) {
	if testing.Short() {
		t.Skip("another trace, no other goroutines: not under the race detector")
	}
	traces := map[string][]byte{"made": talks(t, 3, 400)}
	if data, err := os.ReadFile(publicTrace); err == nil {
		traces["public"] = data
	}
	for name, data := range traces {
		digests := func(c Config) mooncake.Digests {
			rows, _, _ := transformed(t, c, source(data, 0))
			d := mooncake.NewDigester(mooncake.CheckOptions{})
			for i, row := range rows {
				d.Add(row, int64(i+1))
			}
			return d.Digests()
		}
		was, now := digests(Config{}), digests(Config{TimeScale: 0.5})
		if was.Seq == "" || was.Seq != now.Seq || was.Tree != now.Tree || was.Arrival == now.Arrival {
			t.Errorf("%s: %+v, then %+v", name, was, now)
		}
		t.Logf("%s: seq_digest %s, then %s", name, was.Seq, now.Seq)
	}
}

func hitRate(a *stats.Analysis) float64 {
	c := a.Caches[len(a.Caches)-1]
	return float64(c.HitTokens) / float64(c.InputTokens)
}

// TestScaleKeepsGraphs: a sample has all rows of a graph or none, although they belong to several sessions and share only the trunk.
func TestScaleKeepsGraphs(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 600, "output_length": 2, "hash_ids": [0, %d], "session_id": "s%d", "request_id": "p%d", "wait_for": []}`+"\n", 1000*i, 2*i+1, i, i)
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": 600, "output_length": 2, "hash_ids": [0, %d], "session_id": "s%d/a", "request_id": "c%d", "wait_for": ["p%d"]}`+"\n", 1000*i+100, 2*i+2, i, i, i)
	}
	for _, factor := range []float64{0.5, 1.5} {
		_, a, _ := transformed(t, Config{Scale: factor}, source([]byte(b.String()), 0))
		if want := int64(200 * factor); a.Graphs.Unknown != 0 || a.Graphs.Graphs != want || a.Graphs.Edges != want {
			t.Errorf("scale %g: %+v, want %d whole graphs", factor, a.Graphs, want)
		}
	}
}
