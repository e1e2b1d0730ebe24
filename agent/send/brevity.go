// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"sync/atomic"
	"time"
)

// brevity is what a client learns of how long its server's replies take from their first byte to their last, in replies without gaps that
// are read at once. The kernel joins segments that wait to be read, and keeps the timestamp of the last one. So if a reply is read late, its
// first byte seems to have come with its last one. An exchange is at rest, see [Request], only if that makes no difference: if replies come as a
// whole. A sample of the exchanges is never at rest, so that a change is noticed. The zero value has learned nothing.
type brevity struct {
	score atomic.Int32 // of recent replies
	asked atomic.Uint32
}

const (
	// asWhole is the maximum time from the first byte of a reply that comes as a whole to its last one.
	asWhole = 50 * time.Microsecond
	// readAtOnce is the maximum time from the arrival of a first byte to its reading, if the segments of the reply are to be told apart.
	readAtOnce = 100 * time.Microsecond

	provenScore, maxScore = 16, 32
	longReply             = 8   // so many replies as a whole outweigh a long one
	sampled               = 256 // few, because a sample keeps everything awake from its preparation to its end
)

// lets reports whether the next exchange may be at rest.
func (b *brevity) lets() bool {
	return b.score.Load() >= provenScore && b.asked.Add(1)%sampled != 0
}

// add adds a reply that was read at once.
func (b *brevity) add(took time.Duration) {
	score := b.score.Load()
	if took <= asWhole {
		score = min(score+1, maxScore)
	} else {
		score = max(score-longReply, 0)
	}
	b.score.Store(score) // if two replies end at the same time, it does not matter which one counts
}
