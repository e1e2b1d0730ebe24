// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// This file reads the exports of load generators for the web, which do not know tokens: vegeta, k6 and oha.

func claimVegeta(value []byte, e *Export) error {
	var l struct {
		Seq       int
		Code      int
		Timestamp time.Time
		Latency   float64 // ns
		Error     string
	}
	if err := json.Unmarshal(value, &l); err != nil {
		return err
	}
	return e.vegeta(l.Seq, l.Code, l.Timestamp.UnixNano(), l.Latency, l.Error)
}

func (e *Export) vegeta(seq, code int, at int64, latency float64, failure string) error {
	if seq < 0 || seq > MaxRequests {
		return fmt.Errorf("%d is not the number of a request", seq)
	}
	c := newClaim()
	c.Number, c.Start, c.Latency, c.Failed = seq, float64(at)/1e6, latency/1e6, failure != "" || code >= 400
	e.Claims = append(e.Claims, c)
	return nil
}

// readCSV reads k6's and oha's columns, which have names, or vegeta's, which have none: the Unix time in ns, the status, the latency in
// ns, ... the error in the sixth, the number in the ninth.
func readCSV(in io.Reader) (*Export, error) {
	rows := csv.NewReader(in)
	rows.FieldsPerRecord, rows.ReuseRecord = -1, true
	e := &Export{Tool: "vegeta", wall: true}
	k6 := newK6()
	for n := 1; ; n++ {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			e.Claims = append(e.Claims, k6.claims...)
			return e, nil
		case err != nil:
			return nil, fmt.Errorf("line %d is neither JSON nor CSV: %w; want %s", n, err, exportForms)
		case n == 1 && len(row) > 2 && row[0] == "metric_name" && row[1] == "timestamp":
			e.Tool, e.first = "k6", firstByte
		case n == 1 && len(row) > 2 && row[0] == "request-start":
			e.Tool, e.first, e.wall = "oha", firstByte, false
		case e.Tool == "k6" && len(row) < 3, e.Tool == "oha" && len(row) < 7:
			return nil, fmt.Errorf("line %d, of %s, has %d columns: the file may be cut off", n, e.Tool, len(row))
		case e.Tool == "k6":
			err = k6.csv(row)
		case e.Tool == "oha":
			err = e.ohaRow(row)
		default:
			err = e.vegetaRow(row)
		}
		if err == nil && len(e.Claims)+len(k6.claims) > MaxRequests {
			err = errTooManyClaims
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// ohaRow adds a request of oha. The columns are the start, counted from oha's start; the times taken by the DNS lookup and by the
// connection, to the first byte, and in all, in seconds; the bytes; and the status. With --latency-correction, all times except the first
// count from when the request was due.
func (e *Export) ohaRow(row []string) error {
	start, errStart := strconv.ParseFloat(row[0], 64)
	first, errFirst := strconv.ParseFloat(row[3], 64)
	whole, errWhole := strconv.ParseFloat(row[4], 64)
	code, errCode := strconv.Atoi(row[6])
	if err := errors.Join(errStart, errFirst, errWhole, errCode); err != nil {
		return fmt.Errorf("does not have oha's times and status: %w", err)
	}
	c := newClaim()
	c.Start, c.TTFT, c.Latency, c.Failed = 1e3*start, 1e3*first, 1e3*whole, code >= 400
	e.Claims = append(e.Claims, c)
	return nil
}

func (e *Export) vegetaRow(row []string) error {
	unknown := fmt.Errorf("its form is not known: want %s", exportForms)
	if len(row) < 9 {
		return unknown
	}
	at, errAt := strconv.ParseInt(row[0], 10, 64)
	code, errCode := strconv.Atoi(row[1])
	latency, errLatency := strconv.ParseFloat(row[2], 64)
	seq, errSeq := strconv.Atoi(row[8])
	if errors.Join(errAt, errCode, errLatency, errSeq) != nil {
		return unknown
	}
	return e.vegeta(seq, code, at, latency, row[5])
}

// k6 reads k6's lines: one for each metric of each request. The requests have the same order in each metric. The time of a line is that of
// the request's end.
type k6 struct {
	claims []Claim
	n      map[string]int // lines of each metric so far
}

func newK6() *k6 { return &k6{n: map[string]int{}} }

// point reads a line of k6's JSON. Lines that describe a metric are of another type.
func (k *k6) point(value []byte) error {
	var l struct {
		Type, Metric string
		Data         struct {
			Time  time.Time
			Value float64
			Tags  struct {
				Expected string `json:"expected_response"`
			}
		}
	}
	// In a line that describes a metric, fields of these names have other types.
	if err := json.Unmarshal(value, &l); err != nil || l.Type != "Point" {
		if l.Type == "Metric" {
			return nil
		}
		return errors.Join(err, fmt.Errorf("a line of type %q", l.Type))
	}
	k.add(l.Metric, float64(l.Data.Time.UnixNano())/1e6, l.Data.Value, l.Data.Tags.Expected == "false")
	return nil
}

// csv reads a line of k6's CSV. The time is in s, ms, µs or ns (K6_CSV_TIME_FORMAT), which the size of the number shows, or as in RFC 3339.
// A time in s (the default) or in ms is too coarse to show which request came first.
func (k *k6) csv(row []string) error {
	at, err := strconv.ParseFloat(row[1], 64)
	value, errValue := strconv.ParseFloat(row[2], 64)
	if err != nil {
		var t time.Time
		if t, err = time.Parse(time.RFC3339Nano, row[1]); err == nil {
			at = float64(t.UnixNano())
		}
	}
	if err := errors.Join(err, errValue); err != nil {
		return fmt.Errorf("does not have k6's time and value: %w", err)
	}
	switch {
	case at < 1e14: // s or ms
		at = math.NaN()
	case at < 1e17:
		at *= 1e3
	}
	k.add(row[0], at/1e6, value, false)
	return nil
}

func (k *k6) add(metric string, at, value float64, failed bool) {
	switch metric {
	case "http_req_duration", "http_req_waiting", "http_req_failed":
	default:
		return
	}
	i := k.n[metric]
	k.n[metric]++
	if i == len(k.claims) {
		k.claims = append(k.claims, newClaim())
	}
	if i > len(k.claims) {
		return
	}
	c := &k.claims[i]
	c.Failed = c.Failed || failed
	switch metric {
	case "http_req_duration":
		c.Latency, c.Start = value, at-value
	case "http_req_waiting":
		c.TTFT = value
	case "http_req_failed":
		c.Failed = c.Failed || value != 0
	}
}
