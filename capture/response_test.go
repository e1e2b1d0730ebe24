// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// Producers of spans: two applications, a gateway and an engine.
const (
	appA = 1 + iota
	appB
	gatewayG
	engineE
)

// recorded returns what a producer recorded of a request, in an OTel trace of its own.
func recorded(producer, trace uint64, id string, from, to int64, change ...func(*journal.Inference)) journal.Record {
	return asked(trace, 1, 0, from, to, append(change, response(id), producerOf(producer))...)
}

// TestConstantResponseIDs: a server may give one response id to all requests. No request is lost then, and the spans of one request are
// still one row as far as the telemetry shows it.
func TestConstantResponseIDs(t *testing.T) {
	const constant = "chatcmpl-1"
	rng := rand.New(rand.NewPCG(1, 9))
	many := func(n int, of func(i uint64) []journal.Record) (all []journal.Record) {
		for i := range uint64(n) {
			all = append(all, of(i)...)
		}
		return all
	}
	for _, c := range []struct {
		why                string
		records            []journal.Record
		rows, merged, lost int64
	}{
		{
			"one application, requests overlap, equal token counts",
			many(5, func(i uint64) []journal.Record {
				return []journal.Record{recorded(appA, i+1, constant, int64(10*i), int64(10*i+35))}
			}),
			5, 0, 1,
		},
		{
			"of two requests at a time, the second ends first, and others are apart",
			[]journal.Record{recorded(appA, 1, constant, 0, 100), recorded(appA, 2, constant, 10, 50), recorded(appA, 3, constant, 500, 600)},
			3, 0, 1,
		},
		{
			"requests side by side in one OTel trace, equal token counts",
			many(4, func(i uint64) []journal.Record {
				return []journal.Record{asked(1, 10+i, 0, int64(i), int64(i+100), response(constant), producerOf(appA))}
			}),
			4, 0, 1,
		},
		{
			"an application and an engine, one request at a time",
			many(200, func(i uint64) []journal.Record {
				at := int64(1000 * i)
				return []journal.Record{recorded(appA, 2*i+1, constant, at, at+100), recorded(engineE, 2*i+2, constant, at+5, at+90)}
			}),
			200, 200, 0,
		},
		{
			"an application, a gateway and an engine, sometimes two requests at a time: their spans are kept",
			many(10, func(i uint64) []journal.Record {
				at, n := int64(1000*i), 6*i
				all := []journal.Record{recorded(appA, n+1, constant, at, at+100), recorded(gatewayG, n+2, constant, at+5, at+95), recorded(engineE, n+3, constant, at+6, at+90)}
				if i == 4 {
					all = append(all, recorded(appA, n+4, constant, at+50, at+160), recorded(gatewayG, n+5, constant, at+55, at+155), recorded(engineE, n+6, constant, at+56, at+150))
				}
				return all
			}),
			9 + 6, 18, 1,
		},
		{
			"two applications, sometimes at one time",
			many(30, func(i uint64) (all []journal.Record) {
				if i%3 != 1 {
					all = append(all, recorded(appA, 2*i+1, constant, int64(1000*i), int64(1000*i+100)))
				}
				if i%3 != 2 {
					all = append(all, recorded(appB, 2*i+2, constant, int64(1000*i+10), int64(1000*i+90)))
				}
				return all
			}),
			40, 0, 10,
		},
		{
			"two applications behind one gateway, one request at a time",
			many(30, func(i uint64) []journal.Record {
				at := int64(1000 * i)
				return []journal.Record{recorded(appA+i%2, 2*i+1, constant, at, at+100), recorded(gatewayG, 2*i+2, constant, at+5, at+90)}
			}),
			30, 30, 0,
		},
		{
			"more requests at one time than a request has spans",
			many(200, func(i uint64) []journal.Record {
				return []journal.Record{recorded(appA, i+1, constant, int64(i), int64(i)+rng.Int64N(1000)+300)}
			}),
			200, 0, 0,
		},
		{
			"from more origins than are told apart",
			many(100, func(i uint64) []journal.Record {
				return []journal.Record{recorded(100+i%50, i+1, constant, int64(100*i), int64(100*i+150))}
			}),
			100, 0, 0,
		},
		{
			"each request has an id of its own, and many overlap: application, gateway and engine are one",
			many(100, func(i uint64) []journal.Record {
				at, id := int64(i), fmt.Sprint("r", i)
				return []journal.Record{recorded(appA, 3*i+1, id, at, at+100), recorded(gatewayG, 3*i+2, id, at+5, at+95), recorded(engineE, 3*i+3, id, at+6, at+90)}
			}),
			100, 200, 0,
		},
		{
			"two gateways in a row that call themselves the same",
			[]journal.Record{recorded(gatewayG, 1, "a", 0, 100), recorded(gatewayG, 2, "a", 5, 95), recorded(engineE, 3, "a", 4, 94)},
			1, 2, 0,
		},
		{
			"an engine fails a first attempt",
			[]journal.Record{recorded(appA, 1, "a", 0, 100), recorded(engineE, 2, "a", 5, 40, failed), recorded(engineE, 3, "a", 45, 95)},
			1, 1, 0,
		},
		{
			"a long request of one application, during which another one has two",
			[]journal.Record{recorded(appA, 1, constant, 0, 100), recorded(appB, 2, constant, 5, 40), recorded(appB, 3, constant, 38, 95)},
			3, 0, 1,
		},
		{
			"a gateway answers from its cache, with the same response id",
			[]journal.Record{
				recorded(appA, 1, "a", 0, 100), recorded(gatewayG, 2, "a", 5, 95), recorded(appA, 3, "a", 1000, 1010), recorded(gatewayG, 4, "a", 1001, 1009),
			},
			2, 2, 0,
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			m, res := compileBytes(t, Options{}, journalOf(c.records...))
			p := res.Traces[0]
			equal(t, "rows, spans merged, and those of them by response id", []int64{c.rows, c.merged, c.merged}, []int64{p.Meta.Rows, p.Merged, p.MergedByResponse})
			equal(t, "spans", int64(len(c.records)), p.Spans)
			if c.lost > 0 {
				equal(t, "response ids of different requests", c.lost, dropped(p.Meta.Dropped, lostMixed))
			}
			for round := range 3 {
				dealt := deal(rng, c.records, 3)
				again, res := compileBytes(t, Options{Memory: 1 << 12}, dealt...)
				if round == 2 {
					again, res = inShards(t, Options{}, 3, dealt...)
				}
				equal(t, "merged, in another order", p.MergedByResponse, res.Traces[0].MergedByResponse)
				if !bytes.Equal(m[production], again[production]) {
					t.Errorf("in another order: %s", firstDifference(m[production], again[production]))
				}
			}
		})
	}
}
