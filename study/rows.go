// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package study

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/cespare/xxhash/v2"
)

const (
	requestsFile = "requests.jsonl"

	maxLine = 64 << 20   // bytes of a line of requests.jsonl
	maxRows = 10_000_000 // of one run: some 2 GiB
)

// row is what a study needs of a line of requests.jsonl: the trace's row, what production's telemetry said of it, and what became of
// it in the replay. Times are in ms; what is not known is NaN, or -1 of a count.
type row struct {
	index              int64
	turn               int
	timestamp          float64
	input, output      int64
	served             bool
	reason             string
	intended           float64 // since the start of the run
	ttft, latency, itl float64
	cached, uncached   int64 // by the engine's count; uncached by the trace's prediction where the engine has none
	finish             string
	seenTTFT, seenTime float64 // observed.*
	seenCached         int64
	seenFinish         string
}

// readRows reads the rows of the run in a folder, in the order of the file. It is fs.ErrNotExist if the folder has none.
func readRows(dir string) ([]row, error) {
	name := filepath.Join(dir, requestsFile)
	f, err := os.Open(name) //nolint:gosec // the user's folder
	if err != nil {
		return nil, fmt.Errorf("the rows of a run cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	rows, err := parseRows(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; name the folder given to `moonloop replay --out`", name, err)
	}
	return rows, nil
}

func parseRows(r io.Reader) ([]row, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var rows []row
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		if len(rows) == maxRows {
			return nil, fmt.Errorf("has more than %d rows", maxRows)
		}
		one, err := parseRow(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		rows = append(rows, one)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(rows)+1, err)
	}
	if len(rows) == 0 {
		return nil, errors.New("has no record of a request")
	}
	return rows, nil
}

func parseRow(line []byte) (row, error) {
	r, _, err := parseLine(line)
	return r, err
}

// observed reports whether production's telemetry says something of the row.
func (r row) observed() bool { return r.seenTTFT >= 0 || r.seenTime >= 0 || r.seenCached >= 0 }

// parseLine reads a row, and how late it was sent, in ms.
func parseLine(line []byte) (row, float64, error) {
	var l struct {
		Timestamp *float64 `json:"timestamp"`
		Input     int64    `json:"input_length"`
		Output    int64    `json:"output_length"`
		Observed  struct {
			Cached   *int64   `json:"cached_tokens"`
			TTFT     *float64 `json:"ttft_ms"`
			Duration *float64 `json:"duration_ms"`
			Finish   string   `json:"finish_reason"`
		} `json:"observed"`
		Result struct {
			Outcome  string   `json:"outcome"`
			Reason   string   `json:"reason"`
			Row      int64    `json:"row"`
			Turn     int      `json:"turn"`
			Intended *float64 `json:"intended"`
			Lateness *float64 `json:"lateness_ms"`
			TTFT     *float64 `json:"ttft_ms"`
			Latency  *float64 `json:"latency_ms"`
			ITL      *float64 `json:"itl_ms"`
			Attempts int      `json:"attempts"`
			Resent   int      `json:"resent"`
			Replays  int      `json:"replays"`
			Finish   string   `json:"finish_reason"`
			Usage    struct {
				Prompt *int64 `json:"prompt_tokens"`
				Cached *int64 `json:"cached_tokens"`
			} `json:"usage"`
			Predicted *int64 `json:"predicted_cached_tokens"`
		} `json:"result"`
	}
	if err := json.Unmarshal(line, &l); err != nil {
		return row{}, 0, err
	}
	x := &l.Result
	if x.Outcome == "" {
		return row{}, 0, errors.New("no field result: this is a trace, not the records of a replay")
	}
	r := row{
		index: x.Row, turn: x.Turn, timestamp: or(l.Timestamp, math.NaN()), input: l.Input, output: l.Output,
		served: x.Outcome == "served", reason: x.Reason, intended: or(x.Intended, math.NaN()),
		ttft: math.NaN(), latency: math.NaN(), itl: math.NaN(), cached: or(x.Usage.Cached, -1), finish: x.Finish,
		seenTTFT: or(l.Observed.TTFT, math.NaN()), seenTime: or(l.Observed.Duration, math.NaN()),
		seenCached: or(l.Observed.Cached, -1), seenFinish: l.Observed.Finish,
	}
	if r.served && x.Attempts <= 1 && x.Resent == 0 && x.Replays == 0 { // as in summary.json
		r.ttft, r.latency, r.itl = or(x.TTFT, math.NaN()), or(x.Latency, math.NaN()), or(x.ITL, math.NaN())
	}
	prompt := or(x.Usage.Prompt, l.Input)
	r.uncached = max(0, prompt-max(0, or(x.Usage.Cached, or(x.Predicted, 0))))
	return r, or(x.Lateness, 0), nil
}

// rowsDigest is a digest of what the rows of a run asked for, and when; empty if the folder has no rows that can be read.
func rowsDigest(dir string) string {
	f, err := os.Open(filepath.Join(dir, requestsFile)) //nolint:gosec // the user's folder
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := xxhash.New()
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		row, _, ok := bytes.Cut(lines.Bytes(), []byte(`"result": `))
		if !ok {
			return ""
		}
		_, _ = sum.Write(row) // it cannot fail
	}
	if lines.Err() != nil {
		return ""
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}

// or returns what a pointer leads to, or else something.
func or[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// value returns a row's share in a figure of the summary, or NaN.
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

// bothRows reads the rows of a pair of runs that both served, by index and in the order of A. It is nil if a run has no rows.
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
