// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/internal/jsonrows"
)

// Export is a generator's own record of its requests.
type Export struct {
	Tool   string // that wrote it
	Claims []Claim
	wall   bool   // starts are Unix time, else counted from any zero
	first  string // where the tool's time to first token ends, if that is not the first token
}

// Claim is a generator's record of one request, in ms. Unknown values are NaN.
type Claim struct {
	ID       string  // the value of the request's X-Request-Id
	Number   int     // of the request, in the generator's own order, from 0; -1 if it has none
	Start    float64 // when the request was sent
	TTFT     float64
	FromWire float64 // the same, counted from the last byte of the request, if the generator has it
	ITL      float64 // mean gap
	Latency  float64 // to the last token
	Gaps     []float64
	Tokens   int64 // of the reply; -1 if unknown
	Failed   bool
}

func newClaim() Claim {
	nan := math.NaN()
	return Claim{Number: -1, Start: nan, TTFT: nan, FromWire: nan, ITL: nan, Latency: nan, Tokens: -1}
}

// The limits of an export, in bytes: of the whole file, and of a line of CSV, in which vegeta has the reply.
const (
	maxExport = 4 << 30
	maxLine   = 64 << 20
)

var errTooManyClaims = fmt.Errorf("it has more than %d requests: judge a part of it", MaxRequests)

// exportForms lists the supported files, for messages.
const exportForms = "requests.jsonl of moonloop, profile_export.jsonl of AIPerf, the JSON of GuideLLM, of vllm bench serve --save-detailed and of " +
	"inference-perf's per-request metrics, the CSV or JSON of k6 --out and of vegeta encode, the CSV of oha, or lines of JSON with ttft_ms"

// ReadExport reads the file of any supported generator about its requests.
func ReadExport(r io.Reader) (*Export, error) {
	in := bufio.NewReaderSize(&bounded{r: r, left: maxExport}, 1<<20)
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = in.Discard(3) // it was peeked at
	}
	head, err := in.Peek(512)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	var e *Export
	switch text := strings.TrimLeft(string(head), " \t\r\n"); {
	case bytes.IndexByte(head, 0) >= 0:
		return nil, errors.New("it is a binary file: want " + exportForms)
	case text == "":
		return nil, errors.New("it is empty: perhaps the generator has not ended, or wrote its results to another file")
	case text[0] == '{' || text[0] == '[':
		e, err = readJSON(in, text[0] == '[')
	default:
		e, err = readCSV(&bounded{r: in, left: maxExport, line: maxLine})
	}
	if err != nil {
		return nil, err
	}
	if len(e.Claims) == 0 {
		return nil, fmt.Errorf("%s reports no request in it", e.Tool)
	}
	for i := range e.Claims { // numbers may be near the largest float
		c := &e.Claims[i]
		for _, v := range []*float64{&c.Start, &c.TTFT, &c.FromWire, &c.ITL, &c.Latency} {
			if math.Abs(*v) > longest {
				*v = math.NaN()
			}
		}
		if slices.ContainsFunc(c.Gaps, func(v float64) bool { return math.Abs(v) > longest }) {
			c.Gaps = nil
		}
	}
	return e, nil
}

// longest is the maximum valid time, in ms: 30,000 years.
const longest = 1e15

// bounded returns an error after this many bytes, or, if lines are limited, after a longer line.
type bounded struct {
	r          io.Reader
	left, line int64
	column     int64 // bytes of the line so far
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("it has more than %d bytes: give the generator's file of the run alone", int64(maxExport))
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if end := bytes.LastIndexByte(p[:n], '\n'); end >= 0 {
		b.column = int64(n - end - 1)
	} else {
		b.column += int64(n)
	}
	if b.line > 0 && b.column > b.line {
		return 0, fmt.Errorf("a line has more than %d bytes", b.line)
	}
	return n, err
}

// form is a generator's form of JSON: a value has the form if it has these fields.
type form struct {
	tool, first string
	fields      []string
	wall        bool
	claims      func(value []byte, e *Export) error // adds the claims in a value
}

var forms = []form{
	{tool: "moonloop", fields: []string{"result"}, claims: claimMoonloop},
	{tool: "AIPerf", fields: []string{"metadata", "metrics"}, wall: true, claims: claimAIPerf},
	{tool: "GuideLLM", fields: []string{"benchmarks"}, wall: true, claims: claimGuideLLM},
	{tool: "vllm bench", fields: []string{"input_lens", "ttfts"}, claims: claimVLLM},
	{tool: "inference-perf", fields: []string{"start_time", "end_time", "info"}, claims: claimInferencePerf},
	{tool: "k6", fields: []string{"metric", "data", "type"}, wall: true, first: firstByte},
	{tool: "vegeta", fields: []string{"attack", "seq", "latency"}, wall: true, claims: claimVegeta},
	{tool: "lines of JSON", fields: []string{"ttft_ms"}, claims: claimPlain},
}

// firstByte is the event that ends the wait of an HTTP client.
const firstByte = "the first byte of the reply, which an engine may send before the first token"

// readJSON reads consecutive values, or the elements of an array. The first one shows the form.
func readJSON(in io.Reader, array bool) (*Export, error) {
	d := json.NewDecoder(in)
	if array {
		if _, err := d.Token(); err != nil {
			return nil, fmt.Errorf("it is not JSON: %w", err)
		}
	}
	var of *form
	var e *Export
	k6 := newK6()
	for n := 1; array && d.More() || !array; n++ {
		var value json.RawMessage
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) && !array {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("value %d is not JSON: %w; perhaps the generator has not ended", n, err)
		}
		if of == nil {
			if of = formOf(value); of == nil {
				return nil, fmt.Errorf("its form is not known: want %s", exportForms)
			}
			e = &Export{Tool: of.tool, wall: of.wall, first: of.first}
		}
		if of.claims == nil {
			err = k6.point(value)
		} else {
			err = of.claims(value, e)
		}
		if err == nil && len(e.Claims)+len(k6.claims) > MaxRequests {
			err = errTooManyClaims
		}
		if err != nil {
			return nil, fmt.Errorf("value %d, of %s: %w", n, of.tool, jsonrows.Explain(err))
		}
	}
	if e == nil {
		return nil, errors.New("it is an empty array: the generator reports no request")
	}
	e.Claims = append(e.Claims, k6.claims...)
	return e, nil
}

func formOf(value []byte) *form {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil {
		return nil
	}
	for i := range forms {
		all := true
		for _, name := range forms[i].fields {
			_, has := fields[name]
			all = all && has
		}
		if all {
			return &forms[i]
		}
	}
	return nil
}

// or returns a number times a factor, or NaN if the number is absent.
func or(v *float64, times float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v * times
}

func claimMoonloop(value []byte, e *Export) error {
	var l struct {
		Result struct {
			Outcome string
			Row     int
			Start   *float64
			Wire    *float64
			First   *float64
			TTFT    *float64  `json:"ttft_ms"`
			Latency *float64  `json:"latency_ms"`
			ITL     *float64  `json:"itl_ms"`
			Gaps    []float64 `json:"gaps_ms"`
			Usage   struct {
				Completion *int64 `json:"completion_tokens"`
			}
		}
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return err
	}
	r, c := &l.Result, newClaim()
	if r.Outcome == "skipped" { // it was not sent
		return nil
	}
	c.Number, c.Start, c.TTFT, c.ITL, c.Latency, c.Gaps = r.Row, or(r.Start, 1), or(r.TTFT, 1), or(r.ITL, 1), or(r.Latency, 1), r.Gaps
	c.FromWire, c.Failed = or(r.First, 1)-or(r.Wire, 1), r.Outcome != "served"
	if r.Usage.Completion != nil {
		c.Tokens = *r.Usage.Completion
	}
	e.Claims = append(e.Claims, c)
	return nil
}

func claimAIPerf(value []byte, e *Export) error {
	type figure struct{ Value *float64 }
	var l struct {
		Metadata struct {
			ID    string   `json:"x_request_id"`
			Start *float64 `json:"request_start_ns"`
		}
		Metrics struct {
			TTFT    figure                    `json:"time_to_first_token"`
			ITL     figure                    `json:"inter_token_latency"`
			Latency figure                    `json:"request_latency"`
			Output  figure                    `json:"output_sequence_length"`
			Gaps    struct{ Value []float64 } `json:"inter_chunk_latency"`
		}
		Error any
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return err
	}
	c := newClaim()
	c.ID, c.Start, c.Failed = l.Metadata.ID, or(l.Metadata.Start, 1e-6), l.Error != nil
	c.TTFT, c.ITL, c.Latency, c.Gaps = or(l.Metrics.TTFT.Value, 1), or(l.Metrics.ITL.Value, 1), or(l.Metrics.Latency.Value, 1), l.Metrics.Gaps.Value
	if n := l.Metrics.Output.Value; n != nil {
		c.Tokens = int64(*n)
	}
	e.Claims = append(e.Claims, c)
	return nil
}

func claimGuideLLM(value []byte, e *Export) error {
	type request struct {
		Start   *float64 `json:"request_start_time"`
		TTFT    *float64 `json:"time_to_first_token_ms"`
		ITL     *float64 `json:"inter_token_latency_ms"`
		Latency *float64 `json:"request_latency"`
		Output  *float64 `json:"output_tokens"`
	}
	var file struct {
		Benchmarks []struct {
			Requests struct{ Successful, Incomplete, Errored []request }
		}
	}
	if err := json.Unmarshal(value, &file); err != nil {
		return err
	}
	for _, b := range file.Benchmarks {
		for failed, list := range [][]request{b.Requests.Successful, b.Requests.Incomplete, b.Requests.Errored} {
			for _, q := range list {
				c := newClaim()
				c.Start, c.TTFT, c.ITL, c.Latency, c.Failed = or(q.Start, 1e3), or(q.TTFT, 1), or(q.ITL, 1), or(q.Latency, 1e3), failed > 0
				if q.Output != nil {
					c.Tokens = int64(*q.Output)
				}
				e.Claims = append(e.Claims, c)
			}
		}
	}
	return nil
}

// claimVLLM reads columns: element i of each is of request i.
func claimVLLM(value []byte, e *Export) error {
	var file struct {
		Output    []int64     `json:"output_lens"`
		TTFT      []float64   `json:"ttfts"`
		Gaps      [][]float64 `json:"itls"`
		Starts    []float64   `json:"start_times"`
		Latencies []float64   `json:"latencies"`
		Errors    []string    `json:"errors"`
	}
	if err := json.Unmarshal(value, &file); err != nil {
		return err
	}
	n := len(file.TTFT)
	if len(file.Output) != n || len(file.Gaps) != n || len(file.Starts) > 0 && len(file.Starts) != n || len(file.Errors) > 0 && len(file.Errors) != n || len(file.Latencies) > 0 && len(file.Latencies) != n {
		return errors.New("its lists have other numbers of requests than ttfts: the file may be cut off or damaged")
	}
	for i := range n {
		c := newClaim()
		c.Number, c.TTFT, c.Tokens = i, 1e3*file.TTFT[i], file.Output[i]
		if len(file.Starts) > 0 {
			c.Start = 1e3 * file.Starts[i]
		}
		c.Failed = len(file.Errors) > 0 && file.Errors[i] != ""
		sum := 0.0
		for _, gap := range file.Gaps[i] {
			c.Gaps, sum = append(c.Gaps, 1e3*gap), sum+1e3*gap
		}
		c.Latency = c.TTFT + sum
		if len(file.Latencies) > 0 {
			c.Latency = 1e3 * file.Latencies[i]
		}
		if c.Tokens > 1 {
			c.ITL = (c.Latency - c.TTFT) / float64(c.Tokens-1) // its time per output token
		}
		e.Claims = append(e.Claims, c)
	}
	return nil
}

func claimInferencePerf(value []byte, e *Export) error {
	type reply struct {
		Output *float64  `json:"output_tokens"`
		Times  []float64 `json:"output_token_times"`
		Chunks []float64 `json:"chunk_times"`
	}
	var q struct {
		Start, End float64
		StartTime  *float64 `json:"start_time"`
		Info       struct {
			reply
			Metrics reply `json:"response_metrics"`
		}
		Error any
	}
	if err := json.Unmarshal(value, &q); err != nil {
		return err
	}
	c := newClaim()
	c.Start, c.Failed = or(q.StartTime, 1e3), q.Error != nil
	for _, r := range []reply{q.Info.Metrics, q.Info.reply} {
		times := r.Times
		if len(times) == 0 {
			times = r.Chunks
		}
		if r.Output != nil && c.Tokens < 0 {
			c.Tokens = int64(*r.Output)
		}
		if len(times) == 0 || !math.IsNaN(c.TTFT) {
			continue
		}
		for i := range times {
			times[i] *= 1e3
		}
		last := times[len(times)-1]
		c.TTFT, c.Latency, c.Gaps = times[0]-c.Start, last-c.Start, differences(times)
		if n := len(times) - 1; n > 0 {
			c.ITL = (last - times[0]) / float64(n)
		}
	}
	e.Claims = append(e.Claims, c)
	return nil
}

// claimPlain reads a simple form for any generator: lines with moonloop's own names.
func claimPlain(value []byte, e *Export) error {
	l := struct {
		ID      string    `json:"request_id"`
		Row     int       `json:"row"`
		Start   *float64  `json:"start_ms"`
		TTFT    *float64  `json:"ttft_ms"`
		ITL     *float64  `json:"itl_ms"`
		Latency *float64  `json:"latency_ms"`
		Gaps    []float64 `json:"gaps_ms"`
		Tokens  int64     `json:"output_tokens"`
		Failed  bool      `json:"failed"`
	}{Row: -1, Tokens: -1}
	if err := json.Unmarshal(value, &l); err != nil {
		return err
	}
	c := newClaim()
	c.ID, c.Number, c.Start, c.TTFT, c.ITL = l.ID, l.Row, or(l.Start, 1), or(l.TTFT, 1), or(l.ITL, 1)
	c.Latency, c.Gaps, c.Tokens, c.Failed = or(l.Latency, 1), l.Gaps, l.Tokens, l.Failed
	e.Claims = append(e.Claims, c)
	return nil
}
