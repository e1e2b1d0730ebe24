// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/moonloop/moonloop/study/referee"
	"golang.org/x/sys/unix"
)

// adoptable is the maximum cost of another reader, as a share of net/http's, that would justify the reader's code.
const adoptable = 2.0 / 3

// compareReaders compares ways to read streams, without the agent's other work. All record the kernel's timestamp and their own timestamp
// of each token.
func compareReaders(ctx context.Context, b *bench) error {
	netHTTP := floor{label: "net/http", reader: "http", stamps: true}
	others := []client{
		floor{label: "bare connections, a goroutine each", reader: "conn", stamps: true},
		floor{label: "one loop, epoll, at once", reader: "epoll", stamps: true},
		floor{label: "one loop, epoll, each ms", reader: "batches", stamps: true},
	}
	ring, forbidden := newRing()
	if forbidden == nil {
		forbidden = unix.Close(ring.fd)
		others = append(others, floor{label: "one loop, io_uring", reader: "uring", stamps: true})
	}
	agent := &moonloop{label: "moonloop, for comparison"}
	for _, n := range b.streamsOf(100, 1000, 5000) {
		w := work{streams: n, tokens: b.tokens(), gap: usualGap}
		if n > 2000 { // an engine on one core writes at most 50,000 tokens/s, and cannot accept so many streams at once
			w.gap, w.tokens = 5*usualGap, max(20, 3*b.tokens()/10)
		}
		w.within = max(b.lasts/3, time.Duration(n)*400*time.Microsecond)
		t := b.table(fmt.Sprintf("Readers: %d streams of %.0f tokens/s", w.streams, 1/w.gap.Seconds()),
			"Clients that do nothing but read, with the same scanner of events, `recvmsg` with the kernel's stamp, and clock. `CPU µs/token`: while all\n"+
				"streams are open, so connecting and sending are excluded. `of net/http`: in the same round. `gap error`: by kernel stamps, and by the reader's\n"+
				"own, taken after the read. `waited`: from the kernel's stamp until the reader had the token. `together`: tokens that came with the previous one.")
		if forbidden != nil {
			t.note("io_uring is left out: %v.", forbidden)
		}
		round := 0.0 // CPU of net/http in this round
		b.turns(ctx, t, append([]client{netHTTP}, append(others, agent)...), func(c client, n int) error {
			o, err := b.streamOnce(ctx, c, w, "readers", n)
			if err != nil {
				return err
			}
			if c == client(netHTTP) {
				round = o.steady
			}
			r := o.report
			cells := slices.Concat([]cell{num("CPU µs/token", o.steady), num("of net/http", o.steady/round)},
				errorsOf("gap error ms", r.gapErrors), errorsOf("after the read ms", r.readErrors), []cell{
					num("waited ms p50", referee.Percentile(r.waited, 0.5)), num("waited ms p99", referee.Percentile(r.waited, 0.99)),
					num("together %", 100*r.coalesced), num("RSS MiB", o.rss), num("engine core %", o.engine),
				})
			t.add(c.name(), cells...)
			b.say("  %4d × %-36s %s µs/token, %s of net/http, gap error p99 %s ms (%.0f s)", w.streams, c.name(), figure(o.steady), figure(o.steady/round),
				figure(referee.Percentile(r.gapErrors, 0.99)), o.took.Seconds())
			return nil
		})
		for _, c := range others {
			share := t.median(c.name(), "of net/http")
			t.ask(c.name()+": at most ⅔ of net/http's CPU per token, so that it would be worth its code", share <= adoptable, share)
		}
	}
	return nil
}
