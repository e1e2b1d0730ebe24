// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"time"
)

// arrivals reads a reply's body and records when its bytes arrived. It asks the connection for the time of its last read, once per Read
// that returned bytes. These bytes are from that read, because the connection is not read again before they have been returned.
type arrivals struct {
	body   io.Reader
	flight *flight
	limit  int64 // bytes
	total  int64
	last   arrival // arrival of the bytes of the last Read that returned any
}

// Read implements io.Reader.
func (a *arrivals) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if n == 0 {
		return 0, err
	}
	if got, ok := a.flight.last(); ok {
		a.last = got
	} else if a.flight.http2 || a.last.number == 0 {
		a.last = arrival{at: int64(a.flight.clk.Now()), number: a.last.number + 1}
	}
	if a.total == 0 && a.flight.guard.limits.first == 0 {
		a.flight.guard.enter(stageStream)
	}
	a.flight.guard.alive(time.Duration(a.last.at))
	if a.total += int64(n); a.total > a.limit {
		return n, errReplyTooLong
	}
	return n, err
}

// upload is the request's body for net/http. It has a known length and is not an io.Seeker, because go-retryablehttp would rewind one
// reader shared by two attempts.
//
// A request is also held back here: when net/http reads the body, it has a connection and has written the headers, which the connection
// has not sent yet.
type upload struct {
	io.Reader
	done   <-chan struct{} // the exchange is over
	flight *flight
	size   int64
	begun  bool
}

// Len returns the size of the whole body.
func (u *upload) Len() int { return int(u.size) }

// Read implements io.Reader. The first call waits at the gate. After that it lets the connection send the headers, together with the body.
func (u *upload) Read(p []byte) (int, error) {
	if !u.begun {
		if err := u.flight.gate.await(u.done); err != nil {
			return 0, err
		}
		u.flight.uncork()
		u.begun = true
	}
	n, err := u.Reader.Read(p)
	u.flight.uploaded.Add(int64(n))
	u.flight.guard.alive(u.flight.clk.Now())
	return n, err
}
