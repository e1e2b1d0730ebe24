// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import "time"

// pace follows the rate of requests, because waiting for many short replies costs less if they are read in batches; see MaxUnread. The zero
// value is the pace of a run that has not begun.
type pace struct {
	begun bool
	last  time.Duration // scheduled time of the last request
	mean  time.Duration // of the gaps between requests, mostly between the last paceWeight of them
}

const (
	paceWeight = 16
	// firstPace is the mean with which a run begins, so that it is not fast before it has sent some requests.
	firstPace = time.Second
)

// add adds a request with the given scheduled time.
func (p *pace) add(at time.Duration) {
	if !p.begun {
		p.begun, p.mean = true, firstPace
	} else {
		p.mean += (max(0, at-p.last) - p.mean) / paceWeight
	}
	p.last = at
}

// fast reports whether at least about one reply can be expected in MaxUnread.
func (p *pace) fast() bool { return p.begun && p.mean <= MaxUnread }
