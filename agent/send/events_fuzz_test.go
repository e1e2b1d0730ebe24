// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzEvents: the events are those of the grammar, whatever the sizes of the reads, and whether or not the end comes with the last read. A
// stream that is cut off yields the events that were complete before the cut, and no others.
func FuzzEvents(f *testing.F) {
	for _, in := range []string{
		"data: a\n\nevent: error\r\ndata: b\r\r", "\ufeffdata:a\ndata\n\n: c\n\nid:1\n", "data: a\r", "\r\n\r\n\r", "data:\n\ndata\n\n\ufeffdata: x\n\n", "event:error\n\ndata: a",
		": ping - 2025-06-01 10:00:00\n\n" + "data: " + roleOnly + "\n\n" + "data: " + chunkA + "\n\ndata: " + finish + "\n\ndata: " + usage + "\n\ndata: [DONE]\n\n",
		"id: 1\r\nevent: message\r\ndata: {\r\ndata: \"a\":1}\r\n\r\nretry: 10\r\n\r\n", "event: error\ndata: {\"message\":\"x\"}\n\n" + "data:" + strings.Repeat("x", 5000) + "\n\n",
	} {
		f.Add([]byte(in), []byte{1, 0, 200, 3})
		f.Add([]byte(in), []byte{200, 3}) // cut off late
	}
	f.Fuzz(func(t *testing.T, in, sizes []byte) {
		const bound = 1 << 16
		if len(in) > bound/4 {
			return
		}
		want, _, _ := eventsOf(string(in), bound)
		for _, eager := range []bool{false, true} {
			got, end := readEvents(&pieces{in: in, sizes: sizes, eager: eager, end: io.EOF}, bound)
			if !errors.Is(end, io.EOF) {
				t.Fatalf("ends with %v", end)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("reads of %v bytes (-grammar +read):\n%s", sizes, diff)
			}
		}
		broken := errors.New("broken")
		cut := len(in)
		if len(sizes) > 0 {
			cut = int(sizes[0]) * len(in) / 256
		}
		got, end := readEvents(&pieces{in: in[:cut], sizes: sizes, end: broken}, bound)
		if !errors.Is(end, broken) {
			t.Fatalf("a stream that broke off ends with %v", end)
		}
		before, complete, _ := eventsOf(string(in[:cut]), bound)
		if want := before[:complete]; !slices.Equal(want, got) {
			t.Fatalf("broken off after %d bytes (-grammar +read):\n%s", cut, cmp.Diff(want, got))
		}
		// The bound holds, and the events before the line or the event that is too long still count.
		const low = 64
		want, _, wantEnd := eventsOf(string(in), low)
		if got, end := readEvents(&pieces{in: in, sizes: sizes, end: io.EOF}, low); !slices.Equal(want, got) || !errors.Is(end, wantEnd) {
			t.Fatalf("within %d bytes, ends with %v, want %v (-grammar +read):\n%s", low, end, wantEnd, cmp.Diff(want, got))
		}
	})
}

// eventsOf reads a whole stream according to the HTML standard (section 9.2.6), with two exceptions: an event that the end of the stream
// leaves undelimited counts, and blanks around a type are allowed. complete is the number of events that are delimited. The end is io.EOF,
// or errLineTooLong for a line that does not fit into the buffer, or an event with more data than the bound.
func eventsOf(stream string, bound int) (all []string, complete int, end error) {
	stream = strings.ReplaceAll(strings.ReplaceAll(stream, "\r\n", "\n"), "\r", "\n")
	var data []string
	kind, size := "", 0
	dispatch := func() {
		if data != nil {
			e := strings.Join(data, "\n")
			if strings.TrimSpace(kind) == "error" {
				e = "!" + e
			}
			all = append(all, e)
		}
		data, kind, size = nil, "", 0
	}
	for first, ended := true, true; ended; first = false {
		var line string
		line, stream, ended = strings.Cut(stream, "\n")
		if len(line) >= max(bound, lineBuffer) {
			return all, len(all), errLineTooLong
		}
		if first {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if ended {
				dispatch()
			}
		case name == "data":
			data = append(data, value)
			if size += len(value) + 1; size-1 > bound { // with a line end between two lines
				return all, len(all), errLineTooLong
			}
		case name == "event":
			kind = value
		}
	}
	complete = len(all)
	dispatch()
	return all, complete, io.EOF
}

// pieces returns bytes in reads of the given sizes, which repeat; 0 is an empty read. If it is eager, it returns the end with the last bytes.
type pieces struct {
	in    []byte
	sizes []byte
	next  int
	empty int
	eager bool
	end   error
}

func (r *pieces) Read(p []byte) (int, error) {
	size := len(p)
	if len(r.sizes) > 0 {
		size = min(size, int(r.sizes[r.next%len(r.sizes)]))
		r.next++
	}
	if size == 0 && len(p) > 0 && len(r.in) > 0 {
		if r.empty++; r.empty%50 != 0 { // after a hundred empty reads in a row, bufio.Scanner rightly reports io.ErrNoProgress
			return 0, nil
		}
		size = 1
	}
	n := copy(p[:size], r.in)
	r.in = r.in[n:]
	if len(r.in) == 0 && (r.eager || n == 0) {
		return n, r.end
	}
	return n, nil
}

// TestPieces: the reader that splits the streams returns all bytes.
func TestPieces(t *testing.T) {
	for _, sizes := range [][]byte{nil, {0}, {1}, {0, 3, 255}} {
		for _, eager := range []bool{false, true} {
			in := bytes.Repeat([]byte("0123456789"), 30)
			got, err := io.ReadAll(&pieces{in: in, sizes: sizes, eager: eager, end: io.EOF})
			if err != nil || !bytes.Equal(got, in) {
				t.Errorf("reads of %v bytes, eager %t: %d bytes of %d, %v", sizes, eager, len(got), len(in), err)
			}
		}
	}
}
