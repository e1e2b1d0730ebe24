// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/report/lines"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

const maxRows = 10_000_000 // of one run: about 2 GiB

// row has the fields of a line of requests.jsonl that a study needs: the trace's row, the values observed in production, and the result in
// the replay. Times are in ms; unknown values are NaN, unknown counts -1.
type row struct {
	index              int64
	turn               int
	timestamp          float64
	input, output      int64
	served             bool
	failed             bool // by the engine, or not sent because the engine failed an earlier request
	reason             string
	intended           float64 // since the start of the run
	ttft, latency, itl float64
	cached, uncached   int64 // by the engine's count; uncached by the trace's prediction if the engine reports none
	finish             string
	seenTTFT, seenTime float64 // observed.*
	seenCached         int64
	seenFinish         string
}

// readRows reads the rows of the run in a folder, in the order of the file. The error is fs.ErrNotExist if the folder has none.
func readRows(dir string) ([]row, error) {
	var rows []row
	err := lines.Read(dir, parseRow, func(r row) error {
		if len(rows) == maxRows {
			return fmt.Errorf("%s: the run has more than %d rows", dir, maxRows)
		}
		rows = append(rows, r)
		return nil
	})
	if err == nil && len(rows) == 0 {
		err = fmt.Errorf("%s has no record of a request; name the folder given to `moonloop replay --out`", dir)
	}
	return rows, err
}

func parseRow(line []byte) (row, error) {
	r, _, err := parseLine(line)
	return r, err
}

// observed reports whether production's telemetry has a value for the row.
func (r row) observed() bool { return r.seenTTFT >= 0 || r.seenTime >= 0 || r.seenCached >= 0 }

// parseLine reads a row, and its lateness in ms.
func parseLine(line []byte) (row, float64, error) {
	var l struct {
		Timestamp mooncake.Opt[float64] `json:"timestamp"`
		Input     int64                 `json:"input_length"`
		Output    int64                 `json:"output_length"`
		Observed  struct {
			Cached   mooncake.Opt[int64]   `json:"cached_tokens"`
			TTFT     mooncake.Opt[float64] `json:"ttft_ms"`
			Duration mooncake.Opt[float64] `json:"duration_ms"`
			Finish   string                `json:"finish_reason"`
		} `json:"observed"`
		Result struct {
			Outcome  string                `json:"outcome"`
			Reason   string                `json:"reason"`
			Row      int64                 `json:"row"`
			Turn     int                   `json:"turn"`
			Intended mooncake.Opt[float64] `json:"intended"`
			Lateness mooncake.Opt[float64] `json:"lateness_ms"`
			TTFT     mooncake.Opt[float64] `json:"ttft_ms"`
			Latency  mooncake.Opt[float64] `json:"latency_ms"`
			ITL      mooncake.Opt[float64] `json:"itl_ms"`
			Attempts int                   `json:"attempts"`
			Resent   int                   `json:"resent"`
			Replays  int                   `json:"replays"`
			Finish   string                `json:"finish_reason"`
			Usage    struct {
				Prompt mooncake.Opt[int64] `json:"prompt_tokens"`
				Cached mooncake.Opt[int64] `json:"cached_tokens"`
			} `json:"usage"`
			Predicted mooncake.Opt[int64] `json:"predicted_cached_tokens"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return row{}, 0, err
	}
	x := &l.Result
	if x.Outcome == "" {
		return row{}, 0, lines.ErrNoResult
	}
	r := row{
		index: x.Row, turn: x.Turn, timestamp: l.Timestamp.Or(math.NaN()), input: l.Input, output: l.Output,
		served: x.Outcome == semconv.OutcomeServed, failed: engineFailed(x.Outcome, x.Reason), reason: x.Reason, intended: x.Intended.Or(math.NaN()),
		ttft: math.NaN(), latency: math.NaN(), itl: math.NaN(), cached: x.Usage.Cached.Or(-1), finish: x.Finish,
		seenTTFT: l.Observed.TTFT.Or(math.NaN()), seenTime: l.Observed.Duration.Or(math.NaN()),
		seenCached: l.Observed.Cached.Or(-1), seenFinish: l.Observed.Finish,
	}
	if r.served && x.Attempts <= 1 && x.Resent == 0 && x.Replays == 0 { // as in summary.json
		r.ttft, r.latency, r.itl = x.TTFT.Or(math.NaN()), x.Latency.Or(math.NaN()), x.ITL.Or(math.NaN())
	}
	prompt := x.Usage.Prompt.Or(l.Input)
	r.uncached = max(0, prompt-max(0, x.Usage.Cached.Or(x.Predicted.Or(0))))
	return r, x.Lateness.Or(0), nil
}

// engineFailed reports whether the engine failed a request, or did not answer it in time, or failed a request that this one had to wait for. Rows
// that the replay itself left out, by a limit or an interrupt or on purpose, did not fail.
func engineFailed(outcome, reason string) bool {
	switch outcome {
	case semconv.OutcomeFailed:
		return true
	case semconv.OutcomeCancelled:
		return reason == measure.CancelEnd
	case semconv.OutcomeSkipped:
		return reason == measure.SkipSession || reason == measure.SkipGraph
	}
	return false
}

// rowsDigest returns a digest of the requests of a run and their times; empty if the folder has no readable rows.
func rowsDigest(dir string) string {
	sum := xxhash.New()
	err := lines.Read(dir, func(line []byte) (struct{}, error) {
		row, _, ok := bytes.Cut(line, []byte(`"result": `))
		if !ok {
			return struct{}{}, lines.ErrNoResult
		}
		_, err := sum.Write(row)
		return struct{}{}, err
	}, func(struct{}) error { return nil })
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// value returns a row's contribution to a figure of the summary, or NaN.
func (r *row) value(figure string) float64 {
	switch figure {
	case "time_to_first_token":
		return r.ttft
	case "request_latency":
		return r.latency
	case "inter_token_latency", "time_per_output_token":
		return r.itl
	}
	return math.NaN()
}

// bothRows reads the rows that both runs of a pair served, by index and in the order of A. It returns nil if a run has no rows.
func bothRows(a, b *Run) ([][2]row, error) {
	left, err := readRows(a.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	right, err := readRows(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	at := make(map[int64]int, len(right))
	for i := range right {
		at[right[i].index] = i
	}
	both := make([][2]row, 0, len(left))
	for i := range left {
		if j, ok := at[left[i].index]; ok && left[i].served && right[j].served {
			both = append(both, [2]row{left[i], right[j]})
		}
	}
	return both, nil
}
