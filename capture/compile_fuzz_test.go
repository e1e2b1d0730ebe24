// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture/journal"
)

// FuzzCompile compiles arbitrary records, framed as a journal with valid checksums, next to a small journal of all kinds of records that
// is cut in two and damaged, in both orders, in memory and on disk.
func FuzzCompile(f *testing.F) {
	whole := journalOf(traffic(f, 6)...)
	const most = 1 << 10 // of the input: minimising takes time proportional to its square
	pack := func(records ...journal.Record) (b []byte) {
		for _, r := range records {
			if p := journal.AppendRecord(nil, r); len(p) < 256 && len(b) < most/2 {
				b = append(append(b, byte(len(p))), p...)
			}
		}
		return b
	}
	f.Add(uint16(100), uint16(500), byte(1), []byte{})
	f.Add(uint16(3001), uint16(700), byte(255), pack(everyField(f)...))
	f.Add(uint16(1500), uint16(0), byte(0), pack(traffic(f, 8)...))
	f.Add(uint16(8), uint16(0), byte(0), pack(
		call(1, 1, 0, 0, tokens(700, 1), func(r *journal.Inference) {
			r.Prompt = journal.Prompt{Identity: journal.Text, Chain: chain(f, longText(400))}
		}),
		call(2, 1, 0, 1, noTokens), &journal.Content{Span: ref(2, 2), Parent: sid(1), Start: 5, Prompt: journal.Prompt{Identity: journal.Text, Chain: chain(f, longText(300))}},
		&journal.Content{Span: ref(2, 3), Parent: sid(1), Start: 4, Prompt: journal.Prompt{Identity: journal.Text, Chain: chain(f, longText(150))}},
		call(3, 1, 0, 2, engine(1, 2), inSession(4)), call(3, 2, 0, 3, inSession(4)),
	))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, cut, flip uint16, with byte, payloads []byte) {
		b := bytes.Clone(whole)
		b[len(header)+int(flip)%(len(b)-len(header))] ^= with
		n := len(header) + int(cut)%(len(b)-len(header))
		parts := [][]byte{b[:n], append([]byte(header), b[n:]...), []byte(header)}
		for payloads = payloads[:min(len(payloads), most)]; len(payloads) > 0; {
			n := min(1+int(payloads[0]), len(payloads))
			parts[2] = appendFrame(parts[2], payloads[1:n])
			payloads = payloads[n:]
		}
		o := Options{TempDir: dir, MissingTokens: MissingEstimate}
		m, res := compileBytes(t, o, parts...)
		if cut%8 == 0 {
			o.Memory = 1 << 10 // on disk
		}
		slices.Reverse(parts)
		swapped, again := compileBytes(t, o, parts...)
		if !maps.EqualFunc(m, swapped, bytes.Equal) {
			equal(t, "other order", m, swapped)
		}
		equal(t, "counts", res.Inferences+res.Contents+res.Links, again.Inferences+again.Contents+again.Links)
		for name := range m {
			if !strings.HasSuffix(name, " meta") {
				checkTrace(t, name, m.rows(t, name), m.meta(t, name))
			}
		}
	})
}

// FuzzDeal deals records to journals in any order, some of them to several, and compiles these to the same bytes as one journal with all
// of them. Then one of the journals is cut: the result is that of the records outside the part cut off.
func FuzzDeal(f *testing.F) {
	records := traffic(f, 10)
	frames := make([][]byte, len(records))
	for i, r := range records {
		frames[i] = appendFrame(nil, journal.AppendRecord(nil, r))
	}
	dir := f.TempDir()
	want, _ := compileBytes(f, Options{TempDir: dir}, journalOf(records...))

	f.Add([]byte{}, uint16(0))
	f.Add([]byte{7, 0, 200, 1, 3, 2, 130, 3, 9, 4, 255}, uint16(900))
	f.Add([]byte{255, 254, 253, 252, 251, 250, 249, 248, 247, 246, 245, 244, 243, 242}, uint16(40_000))
	f.Fuzz(func(t *testing.T, deal []byte, cut uint16) {
		order := make([]int, len(records))
		for i := range order {
			order[i] = i
		}
		for i, b := range deal {
			j, k := i%len(order), int(b)%len(order)
			order[j], order[k] = order[k], order[j]
		}
		b := func(i int) byte {
			if len(deal) == 0 {
				return 0
			}
			return deal[i%len(deal)]
		}
		const most = 4
		var dealt [most][]int
		for i, r := range order {
			to := int(b(i)) % most
			dealt[to] = append(dealt[to], r)
			if b(i) >= 128 { // delivered twice
				also := int(b(i)/4) % most
				dealt[also] = append(dealt[also], r)
			}
		}
		journals := make([][]byte, most)
		for i, list := range dealt {
			journals[i] = []byte(header)
			for _, r := range list {
				journals[i] = append(journals[i], frames[r]...)
			}
		}
		o := Options{TempDir: dir}
		if cut%4 == 0 {
			o.Memory = 1 << 10 // on disk
		}
		if got, _ := compileBytes(t, o, journals...); !maps.EqualFunc(want, got, bytes.Equal) {
			equal(t, "dealt otherwise", want, got)
		}

		first := journals[0][:len(header)+int(cut)%(len(journals[0])-len(header)+1)]
		var left []journal.Record
		torn := len(first) - len(header) // what is left of a record
		for _, r := range dealt[0] {
			if torn < len(frames[r])-1 { // the last zero may be missing
				break
			}
			left = append(left, records[r])
			torn = max(0, torn-len(frames[r]))
		}
		for _, list := range dealt[1:] {
			for _, r := range list {
				left = append(left, records[r])
			}
		}
		journals[0] = first
		got, res := compileBytes(t, o, journals...)
		rest, _ := compileBytes(t, o, journalOf(left...))
		for _, m := range []memory{rest, got} { // the sidecars also count what is torn
			maps.DeleteFunc(m, func(name string, _ []byte) bool { return strings.HasSuffix(name, " meta") })
		}
		if !maps.EqualFunc(rest, got, bytes.Equal) {
			equal(t, "cut", rest, got)
		}
		equal(t, "torn by the cut", journal.Torn{Records: min(int64(torn), 1), Bytes: int64(torn)}, res.Torn)
	})
}
