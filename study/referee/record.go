// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

const maxRecordLine = 64 << 20 // bytes of a line

// Request is an engine's record of one request: a line written by `moonloop simulate --record`. Times are on the engine's own clock; those
// that were not reached are negative.
type Request struct {
	Seq    uint64      `json:"seq"`    // in the order in which headers were received
	Header http.Header `json:"header"` // those that were recorded
	Asked  struct {
		Tokens int64 `json:"max_tokens"` // negative: the request had none
	} `json:"request"`
	Prompt   int64         `json:"prompt_tokens"`
	Output   int64         `json:"output_tokens"` // that the engine wrote
	Headers  time.Duration `json:"headers_ns"`
	Received time.Duration `json:"received_ns"`  // the kernel had the last byte
	BodyRead time.Duration `json:"body_read_ns"` // the engine had read the request
	Ended    time.Duration `json:"ended_ns"`
	Outcome  string        `json:"outcome"` // client_gone: the generator left before the reply had ended; empty: unknown
	Time     time.Time     `json:"time"`    // the wall clock at Headers
	Writes   Writes        `json:"writes"`  // of the reply's body, each timestamped just before the call
}

// Write is one write of a reply's body, and the tokens in it.
type Write struct {
	At     time.Duration
	Tokens int64
}

// Writes are an array of [nanoseconds, tokens] in JSON.
type Writes []Write

// UnmarshalJSON implements [json.Unmarshaler].
func (w *Writes) UnmarshalJSON(text []byte) error {
	var pairs [][2]int64
	if json.Unmarshal(text, &pairs) != nil {
		return errors.New("writes must be an array of [nanoseconds, tokens]")
	}
	*w = make(Writes, len(pairs))
	for i, p := range pairs {
		(*w)[i] = Write{time.Duration(p[0]), p[1]}
	}
	return nil
}

// ReadRecord reads an engine's record. The requests are in the order in which their headers were received.
func ReadRecord(r io.Reader) ([]Request, error) {
	lines := jsonrows.NewLines(bufio.NewReaderSize(r, 64<<10), maxRecordLine)
	var all []Request
	for n := 1; ; n++ {
		line, err := lines.Next()
		switch {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, ErrNoRequests
		case errors.Is(err, io.EOF):
			slices.SortFunc(all, func(a, b Request) int { return cmp.Compare(a.Seq, b.Seq) })
			return all, nil
		case err != nil && !errors.Is(err, jsonrows.ErrLongLine):
			return nil, fmt.Errorf("it cannot be read: %w", err)
		case err == nil && len(bytes.TrimSpace(line)) == 0:
			continue
		}
		one := Request{Headers: -1, Received: -1, BodyRead: -1, Ended: -1}
		one.Asked.Tokens = -1
		if err == nil {
			err = json.Unmarshal(line, &one)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d is not a line of an engine's record: %w; name a file that `moonloop simulate --record` wrote", n, jsonrows.Explain(err))
		case one.Headers < 0:
			return nil, fmt.Errorf("line %d has no headers_ns, so it is not a line of an engine's record: name a file that `moonloop simulate --record` wrote", n)
		case len(all) == MaxRequests:
			return nil, fmt.Errorf("it has more than %d requests: judge a part of it", MaxRequests)
		}
		all = append(all, one)
	}
}

// ErrNoRequests is the error of a record without requests.
var ErrNoRequests = errors.New("the engine saw no request: send some to the URL that it listens on")

// Arrived returns the time at which the request had arrived completely: when the kernel had it, or, if that is unknown, when the engine had
// read it, or at least its headers.
func (r *Request) Arrived() time.Duration {
	switch {
	case r.Received > 0: // records of other programs may lack it
		return r.Received
	case r.BodyRead > 0:
		return r.BodyRead
	}
	return r.Headers
}

// wall converts an instant of the engine's clock to Unix time, in ms.
func (r *Request) wall(at time.Duration) float64 {
	return float64(r.Time.UnixNano()+int64(at-r.Headers)) / 1e6
}

// Written returns the instants, in ms, at which chunks of tokens were written.
func (r *Request) Written() (at []float64) {
	for _, w := range r.Writes {
		if w.Tokens > 0 {
			at = append(at, clock.Millis(w.At))
		}
	}
	return at
}

// TTFT is the engine's own time to the first token, in ms: from the arrival to the first write with a token. NaN if there is none.
func (r *Request) TTFT() float64 { return r.to(0) }

// Latency is the engine's own time to the last token, in ms. NaN if there is none.
func (r *Request) Latency() float64 { return r.to(-1) }

// to returns the time to the i-th write with tokens; a negative i counts from the end.
func (r *Request) to(i int) float64 {
	at := r.Written()
	if len(at) == 0 {
		return math.NaN()
	}
	if i < 0 {
		i += len(at)
	}
	return at[i] - clock.Millis(r.Arrived())
}

// replied is the time of the last write, with or without tokens, in ms. NaN if there is none.
func (r *Request) replied() float64 {
	if len(r.Writes) == 0 {
		return math.NaN()
	}
	return clock.Millis(r.Writes[len(r.Writes)-1].At)
}

// Gaps are the times between consecutive writes with tokens, in ms.
func (r *Request) Gaps() []float64 { return differences(r.Written()) }

// ITL is the mean time per token after the first write, in ms: (last − first)/(tokens after the first write). NaN without any.
func (r *Request) ITL() float64 {
	at, after := r.Written(), int64(0)
	first := true
	for _, w := range r.Writes {
		if w.Tokens > 0 && !first {
			after += w.Tokens
		}
		first = first && w.Tokens <= 0
	}
	if after == 0 {
		return math.NaN()
	}
	return (at[len(at)-1] - at[0]) / float64(after)
}

// requestID is the header in which most generators name a request.
const requestID = "X-Request-Id"

// number returns the number at the end of a header's value, if it is the whole value or follows a separator; -1 otherwise.
func number(value string) int64 {
	digits := value[strings.LastIndexFunc(value, func(r rune) bool { return r < '0' || r > '9' })+1:]
	if rest := strings.TrimSuffix(value, digits); digits == "" || len(digits) > 9 || rest != "" && !strings.ContainsAny(rest[len(rest)-1:], "-_:./# ") {
		return -1
	}
	n, _ := strconv.ParseInt(digits, 10, 64) // at most nine digits
	return n
}
