// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/clock"
)

// readEvents returns the data of all events, and how the stream ended.
func readEvents(r io.Reader, bound int) (got []string, end error) {
	var e events
	e.reset(&arrivals{body: r, flight: &flight{clk: clock.New(), http2: true}, limit: 1 << 30}, bound)
	for {
		ev, err := e.next()
		if err != nil {
			return got, err
		}
		s := string(ev.data)
		if ev.isError {
			s = "!" + s
		}
		got = append(got, s)
	}
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
	}{
		{"one blank after the colon is taken off", "data: a\n\ndata:b\n\ndata:  c\n\n", []string{"a", "b", " c"}},
		{"lines of one event are joined", "data: a\ndata\ndata: b\n\n", []string{"a\n\nb"}},
		{"an event without data is ignored", "event: error\n\nid: 1\n\ndata: a\n\n", []string{"a"}},
		{"the type of an event", "event: error\ndata: a\n\ndata: b\n\n", []string{"!a", "b"}},
		{"mixed line ends", "data: a\r\n\r\ndata: b\r\rdata: c\n\ndata: d\r\n\n", []string{"a", "b", "c", "d"}},
		{"byte order mark at the start only", "\ufeffdata: a\n\n\ufeffdata: b\n\n", []string{"a"}},
		{"undelimited last event", "data: a\n\ndata: b", []string{"a", "b"}},
		{"undelimited, with a line end", "data: a\n", []string{"a"}},
		{"empty data", "data:\n\ndata\n\n", []string{"", ""}},
		{"other fields", "datas: x\n data: x\nx\n:data: x\ndata: a\n\n", []string{"a"}},
		{"nothing", "", nil},
		{"blank lines", "\n\n\r\n\r", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
				got, err := readEvents(r, 1<<20)
				if !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestCRDoesNotWait: a line that ends in CR is complete without the next byte.
func TestCRDoesNotWait(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	go func() { _, _ = io.WriteString(w, "data: a\r\r") }()
	var e events
	e.reset(&arrivals{body: r, flight: &flight{clk: clock.New(), http2: true}, limit: 100}, 100)
	ev, err := e.next()
	if err != nil || string(ev.data) != "a" {
		t.Errorf("%q, %v", ev.data, err)
	}
}

func TestEventsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"a line within the bound", "data: " + long + "\n\n", io.EOF},
		{"a line past the bound", "data: " + long + long + "\n\n", errLineTooLong},
		{"lines of one event past the bound", strings.Repeat("data: x\n", 60_000), errLineTooLong},
		{"a comment past the bound", ":" + long + long, errLineTooLong},
	} {
		if _, err := readEvents(strings.NewReader(c.in), 90_000); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}
