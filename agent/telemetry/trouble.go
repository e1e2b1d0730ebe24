// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// trouble is what an export's error says about the next attempt.
type trouble uint8

const (
	none    trouble = iota // all spans were taken
	partly                 // some were taken, and the others are refused for good
	lasting                // the same spans fail again
	large                  // fewer at a time may do
	away                   // nobody is there
	broken                 // somebody was there, and has gone without an answer
	late                   // no answer came in time
	busy                   // the receiver asks to be spared for a while
)

// doubtful reports whether the receiver may have the spans all the same.
func (t trouble) doubtful() bool { return t == broken || t == late }

// troubleOf classifies the error of an exporter. Partial success and size show in its words only: gRPC's ResourceExhausted, HTTP
// 413 (the Collector answers 400) and the exporters' own bound all say so, and ResourceExhausted alone may mean a quota. So does
// what the one of OTLP over HTTP deems worth another attempt.
func troubleOf(err error) trouble {
	if err == nil {
		return none
	}
	text := err.Error()
	timeout, waited := errors.AsType[net.Error](err)
	_, unknown := errors.AsType[*net.DNSError](err)
	op, connected := errors.AsType[*net.OpError](err)
	answer, answered := status.FromError(err)
	switch {
	case refused(err) >= 0:
		return partly
	case says(strings.ToLower(text), "message larger than max", "request entity too large", "request body too large", "request message too large"):
		return large
	case answered:
		return troubleOfStatus(answer)
	case waited && timeout.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return late
	case says(text, "retry-able request failure"):
		return busy
	case unknown, connected && op.Op == "dial":
		return away
	case connected && (op.Op == "read" || op.Op == "write"), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return broken
	}
	return lasting
}

func troubleOfStatus(s *status.Status) trouble {
	text := s.Message()
	switch code := s.Code(); {
	case code == codes.DeadlineExceeded:
		return late
	case code != codes.Unavailable && code != codes.Aborted:
		return lasting
	case code == codes.Aborted:
		return busy
	case says(text, "authentication handshake failed"): // a certificate that does not do
		return lasting
	case says(text, "connection error", "name resolver error"):
		return away
	case says(text, "error reading from server", "transport is closing"):
		return broken
	}
	return busy
}

// partialSuccess matches the OTLP exporters' error for a message that the receiver took in part. Its type is internal
// to them, so the text is all there is.
var partialSuccess = regexp.MustCompile(`(?s)OTLP partial success: .*\((\d+) spans rejected\)`)

// refused returns how many spans the receiver refused of a message that it took; 0 is a mere warning, below 0 it took none.
func refused(err error) int64 {
	if m := partialSuccess.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// says reports whether a text has one of the words.
func says(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}
