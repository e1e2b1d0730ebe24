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

// trouble is what an export's error means for the next attempt.
type trouble uint8

const (
	none    trouble = iota // all spans were accepted
	partly                 // some were accepted, and the others were finally refused
	lasting                // the same spans fail again
	large                  // fewer spans at a time may be accepted
	away                   // the receiver cannot be reached
	broken                 // the receiver was reached, and disconnected without an answer
	late                   // no answer came in time
	busy                   // the receiver asks for a pause
)

// doubtful reports whether the receiver may have the spans although the export failed.
func (t trouble) doubtful() bool { return t == broken || t == late }

// troubleOf classifies the error of an exporter. Only its text shows partial success and size: gRPC's ResourceExhausted, HTTP 413 (the
// Collector answers 400) and the exporters' own limit all mean size, but ResourceExhausted alone may mean a quota. Only the text also shows
// whether the exporter for OTLP over HTTP considers the failure temporary.
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
	case says(text, "authentication handshake failed"): // an unacceptable certificate
		return lasting
	case says(text, "connection error", "name resolver error"):
		return away
	case says(text, "error reading from server", "transport is closing"):
		return broken
	}
	return busy
}

// partialSuccess matches the OTLP exporters' error for a message that the receiver accepted in part. Its type is internal to them, so only
// the text is available.
var partialSuccess = regexp.MustCompile(`(?s)OTLP partial success: .*\((\d+) spans rejected\)`)

// refused returns how many spans of an accepted message the receiver refused; 0 is a mere warning, below 0 means that the error is not
// about an accepted message.
func refused(err error) int64 {
	if m := partialSuccess.FindStringSubmatch(err.Error()); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// says reports whether a text contains one of the words.
func says(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}
