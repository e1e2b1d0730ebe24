// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// The words of an answer are promises about how often it is right. These tests check them on two engines whose prefill costs differ by 5
// %, in virtual time, with the recorded noise of a real machine.

// request is a row of the trace for an engine with an infinite prefix cache.
type request struct {
	due      float64 // ms
	uncached float64 // tokens
}

// engine is the latency model of `moonloop simulate --prefill-lane serial`: a prefill takes a fixed time, plus a time for each token, in
// ms.
type engine struct{ prefill, perToken float64 }

// requests reads the example. At its own speed some prefills wait for others; at twice the speed the engine is full, and 5 % more cost
// make its users wait 40 % longer.
func requests(t *testing.T) (list []request) {
	t.Helper()
	f, err := os.Open("../examples/demo.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	cache := stats.NewPredictor(stats.PredictorOptions{BlockSize: 512})
	for r := mooncake.NewReader(f, mooncake.ReaderOptions{}); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		hit, _ := cache.Predict(row)
		list = append(list, request{row.Timestamp.V, float64(row.InputLength.V - hit.Whole)})
	}
	if len(list) != 300 {
		t.Fatalf("%d rows", len(list))
	}
	return list
}

// replay returns the time to first token of each request, in ms, for a replay that begins at an instant of the noise, and when it ended; n
// = nil means no noise. Noise delays each dispatch and each arrival by as much as a timer was late then, and a prefill progresses at the
// recorded rate of work.
func (e engine) replay(list []request, n *noise, begin float64) (ttft []float64, end float64) {
	tick := float64(noiseTick.Milliseconds())
	late := func(ms float64) float64 {
		if n == nil {
			return ms
		}
		return ms + n.late[int((begin+ms)/tick)%len(n.late)]/1000
	}
	work := func(from, lasts float64) float64 { // returns when work ends that begins at an instant, and takes this many ms without noise
		if n == nil {
			return from + lasts
		}
		for i := int((begin + from) / tick); ; i++ {
			slower := n.work[i%len(n.work)]
			next := max(float64(i+1)*tick-begin, from)
			if from+lasts*slower <= next {
				return from + lasts*slower
			}
			lasts -= (next - from) / slower
			from = next
		}
	}
	free := 0.0
	for _, r := range list {
		sent := late(r.due)
		free = work(max(sent, free), e.prefill+e.perToken*r.uncached)
		ttft = append(ttft, late(free)-sent)
	}
	return ttft, begin + free
}

// TestDecideCoverage: of 100 comparisons of ten rounds, the planted 5 % is found with its sign, and the interval covers the truth, in at
// least 90; equal engines differ in at most 10. The test also shows the result of treating rows as independent.
func TestDecideCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works: the race detector would find nothing")
	}
	list, n := requests(t), readNoise(t)
	length := float64(len(n.late)) * float64(noiseTick.Milliseconds())
	fast := engine{20, 0.02}
	p50 := func(ttft []float64) float64 { return median(ttft) }
	count := func(ratio float64) (right, wrong, covered, pooledWrong int) {
		slow := engine{ratio * fast.prefill, ratio * fast.perToken}
		clean, _ := fast.replay(list, nil, 0)
		slower, _ := slow.replay(list, nil, 0)
		truth := p50(slower) / p50(clean)
		for seed := range uint64(100) {
			random := rand.New(rand.NewPCG(seed, 7))
			clock := random.Float64() * length
			var a, b, pooled []float64
			for range 10 {
				var x, y []float64
				if random.IntN(2) == 0 {
					x, clock = fast.replay(list, &n, clock)
					y, clock = slow.replay(list, &n, clock)
				} else {
					y, clock = slow.replay(list, &n, clock)
					x, clock = fast.replay(list, &n, clock)
				}
				a, b = append(a, p50(x)), append(b, p50(y))
				for i := range x {
					pooled = append(pooled, math.Log(y[i]/x[i]))
				}
			}
			d, err := Decide(a, b, 0.005, seed)
			if err != nil {
				t.Fatal(err)
			}
			differs := d.P <= level && (d.Low > 1 || d.High < 1)
			switch {
			case differs && d.Ratio > 1 == (truth > 1) && truth != 1:
				right++
			case differs:
				wrong++
			}
			if d.Low <= truth && truth <= d.High {
				covered++
			}
			mean, half := stat.Mean(pooled, nil), halfWidth(stat.StdDev(pooled, nil), len(pooled), level)
			if math.Abs(mean) > half && ratio == 1 {
				pooledWrong++
			}
		}
		t.Logf("%v times the cost: truth %.4f; of 100, %d find it, %d find what is not there, %d intervals cover it; pooled rows find what is not there in %d",
			ratio, truth, right, wrong, covered, pooledWrong)
		return right, wrong, covered, pooledWrong
	}
	if right, wrong, covered, _ := count(1.05); right < 90 || wrong > 0 || covered < 90 {
		t.Errorf("5 %% slower: of 100, %d find it, %d err, %d intervals cover it; want at least 90, 0, at least 90", right, wrong, covered)
	}
	_, wrong, covered, pooled := count(1)
	if wrong > 10 || covered < 90 {
		t.Errorf("equal: of 100, %d differ, %d intervals cover 1; want at most 10, at least 90", wrong, covered)
	}
	if pooled <= 10 {
		t.Errorf("equal: pooled rows differ in only %d of 100: pooled rows would suffice, and nothing requires pairs of runs", pooled)
	}
}
