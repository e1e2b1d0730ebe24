// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// This file makes the journals of a day, as several Collectors would write them: the same bytes each time, in a few µs for a request.

// shape is a kind of traffic.
type shape struct {
	name string
	// Of 16 conversations, this many have text, and this many have only lengths. The others have ids of blocks of 512 tokens.
	texts, lengths  uint64
	systems         uint64 // number of system prompts, of which each conversation has one
	system          int64  // tokens of each
	asked, replied  int64  // maximum tokens of a turn; the minimum is 50
	turns           uint64 // maximum; each turn but the first has a probability of 4/5
	pause           time.Duration
	links           uint64 // of 16 conversations, this many have their session from a span above each request, which is a separate record
	runs            uint64 // of these, this many are one OTel trace below one span, which lasts as long as the conversation
	ending          string // of the trace's file
	responses       bool   // requests have response ids
	prefixesAreMade bool   // the maker knows what an infinite cache has of the prompts
}

var shapes = map[string]shape{
	// Prompts of 3,900 tokens on average, with each way to know what they share.
	"day": {name: "day", texts: 4, lengths: 1, systems: 20, system: 4 * madeBlock, asked: 550, replied: 800, turns: 12, pause: 4 * time.Minute, links: 16, responses: true, ending: ".jsonl"},
	// Short prompts without response ids, so that a hundred million fit on a disk.
	"compact": {name: "compact", systems: 1000, system: madeBlock, asked: 300, replied: 300, turns: 8, pause: 2 * time.Minute, links: 2, runs: 1, ending: ".jsonl.zst", prefixesAreMade: true},
}

const (
	madeBlock   = 512
	madeBytes   = 4 // for each token of text
	madeBatch   = 1 << 20
	madeMakers  = 2
	madeBegin   = 1_790_000_000 * int64(time.Second)
	madeDayLong = 24 * int64(time.Hour)
	// journals of each maker; the records of a conversation are in all of them
	madeJournals = 4
)

func (s *shape) String() string {
	text := fmt.Sprintf("%s: conversations of up to %d turns, at most %s apart; each turn adds 50 to %d tokens and a reply of 50 to %d, after one of %d system prompts of %d",
		s.name, s.turns, s.pause, s.asked, s.replied, s.systems, s.system)
	text += fmt.Sprintf("; of 16, %d have text in cells of %d bytes, %d lengths alone, %d block ids of %d tokens", s.texts, blockhash.CellSize, s.lengths, 16-s.texts-s.lengths, madeBlock)
	if s.responses {
		text += "; response ids"
	} else {
		text += "; no response ids"
	}
	return text + fmt.Sprintf("; %d have their session from a span above each request, %d of these in one OTel trace over all turns; records in no order, in %d journals; trace *%s",
		s.links, s.runs, madeMakers*madeJournals, s.ending)
}

// made counts what was made.
type made struct {
	rows, prompt, output int64 // requests, tokens
	hit                  int64 // tokens of the prompts that an infinite cache has, in blocks; known if the shape says so
	bytes                int64 // of journals
}

// makeDay writes the journals of a day with this many requests.
func makeDay(t *testing.T, dir string, s *shape, rows int64) (all made) {
	t.Helper()
	makers := make([]*maker, madeMakers)
	var group sync.WaitGroup
	for i := range makers {
		m := &maker{shape: s, rng: rand.New(rand.NewPCG(17, uint64(i))), most: rows * int64(i+1) / madeMakers, met: make([]bool, s.systems)}
		m.most -= rows * int64(i) / madeMakers
		makers[i] = m
		group.Go(func() { m.err = m.make(dir, uint64(i)) })
	}
	group.Wait()
	met := make([]bool, s.systems)
	for _, m := range makers {
		if m.err != nil {
			t.Fatal(m.err)
		}
		all.rows, all.prompt, all.output = all.rows+m.rows, all.prompt+m.prompt, all.output+m.output
		all.hit, all.bytes = all.hit+m.hit, all.bytes+m.bytes
		for i, is := range m.met {
			if is && !met[i] { // the first request with a system prompt finds nothing of it
				met[i] = true
				all.hit -= s.system / madeBlock * madeBlock
			}
		}
	}
	return all
}

// maker makes some of the conversations.
type maker struct {
	made
	*shape
	rng      *rand.Rand
	most     int64 // requests
	journals [madeJournals]*journal.Writer
	batches  [madeJournals]journal.Batch
	met      []bool // system prompts
	cells    []uint64
	ends     []blockhash.End
	ids      []uint64
	err      error
}

func (m *maker) make(dir string, number uint64) (err error) {
	for i := range m.journals {
		name := filepath.Join(dir, fmt.Sprintf("%d-%d.journal", number, i))
		if m.journals[i], err = journal.OpenWriter(name, journal.WriterOptions{NoSync: true}); err != nil {
			return err
		}
	}
	for talk := 1 + number; m.rows < m.most && err == nil; talk += madeMakers {
		err = m.conversation(talk)
	}
	for i, w := range m.journals {
		err = errors.Join(err, m.flush(i))
		m.bytes += w.Size()
		err = errors.Join(err, w.Close())
	}
	return err
}

// keyed imitates a keyed hash: 64 bits that reveal nothing.
func keyed(kind, of, at uint64) uint64 {
	z := kind<<56 ^ of*0x9e3779b97f4a7c15 ^ at*0xd1342543de82ef95
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

var madeModel, _ = journal.ParseName("70b")

// conversation makes the requests of one conversation.
func (m *maker) conversation(talk uint64) error {
	at, system := madeBegin+m.rng.Int64N(madeDayLong-int64(time.Hour)), m.rng.Uint64N(m.systems)
	m.met[system] = true
	tokens, full, kind := m.system, m.system/madeBlock, talk/madeMakers%16
	session, first := journal.Session(keyed(4, talk, 0)|1), at
	linked, oneTrace := talk/32%16 < m.links, talk/32%16 < m.runs
	m.ends = append(m.ends[:0], blockhash.End{Bytes: m.system * madeBytes, Role: blockhash.RoleSystem, Value: keyed(1, system, uint64(m.system*madeBytes))})
	var last journal.Inference
	for turn := uint64(0); turn < m.turns && m.rows < m.most && (turn == 0 || m.rng.IntN(5) > 0); turn++ {
		asked, replied := 50+m.rng.Int64N(m.asked-50), 50+m.rng.Int64N(m.replied-50)
		tokens += asked
		r := journal.Inference{
			Start: at, End: at + replied*int64(20*time.Millisecond), FirstToken: mooncake.Some(at + tokens*int64(50*time.Microsecond)),
			InputTokens: mooncake.Some(tokens), OutputTokens: mooncake.Some(replied), Model: madeModel,
		}
		r.Span.TraceID, r.Span.SpanID = traceOf(talk, turn), spanOf(talk, 2*turn+1)
		if m.responses {
			binary.BigEndian.PutUint64(r.Response[:], keyed(3, talk, turn))
			binary.BigEndian.PutUint64(r.Response[8:], talk<<8|turn)
		}
		switch {
		case kind < m.texts:
			m.ends = append(m.ends, blockhash.End{Bytes: tokens * madeBytes, Role: blockhash.RoleUser, Value: m.value(talk, system, tokens*madeBytes)})
			r.Prompt = m.text(talk, system, tokens)
			reply := blockhash.End{Bytes: (tokens + replied) * madeBytes, Role: blockhash.RoleAssistant, Value: m.value(talk, system, (tokens+replied)*madeBytes)}
			r.Reply, m.ends = reply, append(m.ends, reply)
		case kind < m.texts+m.lengths:
			r.Identity = journal.None
		default:
			r.Prompt = journal.Prompt{Identity: journal.Engine, BlockSize: madeBlock, Domain: 7, HashIDs: m.blocks(talk, system, tokens)}
			m.hit += full * madeBlock // of the turn before, or of the system's prompt
			full = tokens / madeBlock
		}
		switch {
		case oneTrace:
			r.Span.TraceID, r.Parent = traceOf(talk, 0), spanOf(talk, 0)
		case linked:
			r.Parent = spanOf(talk, 2*turn)
			above := journal.Link{Span: mooncake.SpanRef{TraceID: r.Span.TraceID, SpanID: r.Parent}, Session: session, Start: at, End: r.End}
			if err := m.add(&above, keyed(9, talk, turn)); err != nil {
				return err
			}
		default:
			r.Session = session
		}
		if err := m.add(&r, keyed(8, talk, turn)); err != nil {
			return err
		}
		m.rows, m.prompt, m.output = m.rows+1, m.prompt+tokens, m.output+replied
		tokens += replied
		at = r.End + int64(5*time.Second) + m.rng.Int64N(int64(m.pause))
		last = r
	}
	if !oneTrace {
		return nil
	}
	return m.add(&journal.Link{Span: mooncake.SpanRef{TraceID: last.Span.TraceID, SpanID: last.Parent}, Session: session, Start: first, End: last.End}, keyed(9, talk, 0))
}

// add adds a record to one of the journals.
func (m *maker) add(r journal.Record, to uint64) error {
	i := int(to % madeJournals)
	if err := m.batches[i].Add(r); err != nil || m.batches[i].Size() < madeBatch {
		return err
	}
	return m.flush(i)
}

func (m *maker) flush(i int) error {
	err := m.journals[i].AppendBatch(&m.batches[i])
	m.batches[i].Reset()
	return err
}

func traceOf(talk, turn uint64) (id [16]byte) {
	binary.BigEndian.PutUint64(id[:], keyed(5, talk, turn))
	binary.BigEndian.PutUint64(id[8:], talk<<8|turn)
	return id
}

func spanOf(talk, n uint64) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], talk<<8|n+1)
	return id
}

// value identifies the text of a conversation up to this point.
func (m *maker) value(talk, system uint64, bytes int64) uint64 {
	if bytes <= m.system*madeBytes {
		return keyed(1, system, uint64(bytes))
	}
	return keyed(2, talk, uint64(bytes))
}

func (m *maker) text(talk, system uint64, tokens int64) journal.Prompt {
	bytes := tokens * madeBytes
	m.cells = m.cells[:0]
	for at := int64(blockhash.CellSize); at <= bytes; at += blockhash.CellSize {
		m.cells = append(m.cells, m.value(talk, system, at))
	}
	return journal.Prompt{
		Identity: journal.Text, Domain: 9, Key: 8,
		Chain: blockhash.Chain{Cells: m.cells, Ends: m.ends, Bytes: bytes, Tail: m.value(talk, system, bytes)},
	}
}

func (m *maker) blocks(talk, system uint64, tokens int64) []uint64 {
	m.ids = m.ids[:0]
	for block := range uint64(tokens / madeBlock) { // engines hash full blocks
		if block < uint64(m.system/madeBlock) {
			m.ids = append(m.ids, keyed(6, system, block))
		} else {
			m.ids = append(m.ids, keyed(7, talk, block))
		}
	}
	return m.ids
}
