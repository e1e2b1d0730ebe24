// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"errors"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/moonloop/moonloop/agent/measure"
)

// record is the part of a line of requests.jsonl that a page needs. Times and durations are in ms; times are on the run's clock. A nil time
// was not reached; a nil count is not known.
type record struct {
	Session  string    `json:"session_id"`
	Input    int64     `json:"input_length"`
	Output   int64     `json:"output_length"`
	Model    string    `json:"model"`
	Observed *observed `json:"observed"`

	Result outcome `json:"result"`
}

// observed is what production reported of a request.
type observed struct {
	Cached *int64 `json:"cached_tokens"`
}

// outcome is the result of a request.
type outcome struct {
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
	Row     int64  `json:"row"`
	Turn    int    `json:"turn"`
	Model   string `json:"request_model"`

	Intended   *float64  `json:"intended"`
	Dispatched *float64  `json:"dispatched"`
	Admitted   *float64  `json:"admitted"`
	Start      *float64  `json:"start"`
	Wire       *float64  `json:"wire"`
	First      *float64  `json:"first"`
	Last       *float64  `json:"last"`
	End        *float64  `json:"end"`
	Lateness   *float64  `json:"lateness_ms"`
	Gaps       []float64 `json:"gaps_ms"`
	Tokens     []float64 `json:"chunk_tokens"`
	Whole      bool      `json:"whole"`
	Embedding  bool      `json:"embedding"`

	Usage     *usage `json:"usage"`
	Predicted *int64 `json:"predicted_cached_tokens"`
	Sized     *int64 `json:"prompt_tokens_sent"`
	TraceID   string `json:"trace_id"`

	Attempts int `json:"attempts"`
	Resent   int `json:"resent"`
	Choices  int `json:"choices"` // if there are several, whose tokens are counted together
}

// lastToken returns the time of the last token, which is the end of a reply that came whole: the end of a request latency.
func (o *outcome) lastToken() *float64 { return cmp.Or(o.Last, o.End) }

// usage has the engine's counts.
type usage struct {
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	Cached     *int64 `json:"cached_tokens"`
}

func (r *record) served() bool { return r.Result.Outcome == measure.Served.String() }

// once reports whether the request was served, and was sent only once. As in the summary, latencies are those of such requests: those of
// a request that was sent again include its failed attempts.
func (r *record) once() bool { return r.served() && r.Result.Attempts <= 1 && r.Result.Resent == 0 }

func (r *record) failed() bool { return r.Result.Outcome == measure.Failed.String() }

// model returns the requested model.
func (r *record) model() string {
	if r.Result.Model != "" {
		return r.Result.Model
	}
	return r.Model
}

// prompt returns the number of prompt tokens as the summary counts them: the engine's count, else the tokens in the body, else the row's.
func (r *record) prompt() int64 {
	var counted *int64
	if u := r.Result.Usage; u != nil {
		counted = u.Prompt
	}
	return *cmp.Or(counted, r.Result.Sized, &r.Input)
}

// reply returns the number of output tokens as the summary counts them: the engine's count, else the sum of the chunks' counts, else the
// number of chunks. It is not known of a reply that was not a stream and has no count.
func (r *record) reply() (n int64, known bool) {
	x := &r.Result
	switch u := x.Usage; {
	case u != nil && u.Completion != nil:
		return *u.Completion, true
	case x.Embedding: // nothing was generated
		return 0, true
	case x.Whole:
		return 0, false
	case x.First == nil:
		return 0, true
	case len(x.Tokens) == 0:
		return int64(len(x.Gaps)) + 1, true
	}
	sum := 0.0
	for _, n := range x.Tokens {
		sum += n
	}
	return int64(sum), true
}

// choice returns the number of output tokens of the first choice, whose times are known, as the summary counts them: engines count the tokens of
// all choices together, but chunks are only those of the first one.
func (r *record) choice() int64 {
	x := &r.Result
	n, _ := r.reply()
	if u := x.Usage; u != nil && u.Completion != nil || len(x.Tokens) > 0 {
		n /= int64(max(1, x.Choices))
	}
	return n
}

// cached returns the number of prompt tokens that the engine reported as cached.
func (r *record) cached() (int64, bool) {
	if u := r.Result.Usage; u != nil && u.Cached != nil {
		return *u.Cached, true
	}
	return 0, false
}

// ttft returns the time from the start of a request that was served at the first attempt to its first token, in ms.
func (r *record) ttft() (float64, bool) {
	ms, known := between(r.Result.Start, r.Result.First)
	return ms, known && r.once()
}

// itl returns the mean time between two output tokens of a request that was served at the first attempt, in ms: from the first to the last
// one, divided by their number minus one. A reply of one chunk has none, because its decode time is unknown, not 0.
func (r *record) itl() (float64, bool) {
	decode, known := between(r.Result.First, r.Result.Last)
	after := float64(r.choice() - 1)
	return decode / max(after, 1), known && after >= 1 && len(r.Result.Gaps) > 0 && r.once()
}

// between returns the duration between two times, 0 if they are out of order, and whether both were reached.
func between(from, to *float64) (float64, bool) {
	if from == nil || to == nil || !finite(*from) || !finite(*to) {
		return 0, false
	}
	return max(*to-*from, 0), true
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) && math.Abs(v) < 1e15 }

// errNoRecords is the error for a file without records.
var errNoRecords = errors.New("has no records of requests: no request of the run has ended; name the folder of another run")

// lenient accepts any text in rows, as the reader of traces does. Skipping the search for duplicate names is also faster.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// parseRecord reads a line of any form.
func parseRecord(line []byte) (*record, error) {
	rec := new(record)
	if err := json.Unmarshal(line, rec, lenient); err != nil {
		return nil, err
	}
	return rec, nil
}
