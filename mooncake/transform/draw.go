// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/moonloop/moonloop/internal/heap"
)

// This file puts the conversations of a trace into another order. The times at which conversations begin stay the same, but a different
// conversation begins at each.

// Draw says which conversation begins at the time of another one.
type Draw string

// The ways to draw.
const (
	DrawNone    Draw = ""
	DrawShuffle Draw = "shuffle" // each conversation begins once
	DrawRandom  Draw = "random"  // any conversation: some occur several times and others never
)

// dialog is a conversation: the rows of a session with those of its agents, or a row without a session.
type dialog struct {
	first, last uint32
	begin       float64 // position of its first row in time, ms
	drawn       uint32  // how often it was drawn
}

// drawing has all rows of a trace, which are in a file, and the conversation of each.
type drawing struct {
	spool *spool
	talks []dialog
	rows  column[drawnRow]
	slots []uint32 // for each conversation, in order, the index of the one that begins at its time
}

// drawnRow is the position of a row in the file, and the next row of its conversation.
type drawnRow struct {
	at   int64
	key  float64
	size uint32
	next uint32 // none: it is the last one
}

// turnDue is the next row of a conversation that has begun.
type turnDue struct {
	key   float64
	order uint64 // order at the same time: by conversation, then by row
	row   uint32
	shift float64
	again uint32 // how often the conversation had occurred before
}

func (a turnDue) before(b turnDue) bool { return a.key < b.key || a.key == b.key && a.order < b.order }

// read takes all rows.
func (d *drawing) read(in step) error {
	talks := map[string]uint32{}
	at := int64(0)
	for {
		it, err := in()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if it.seq >= maxIndexed {
			return fmt.Errorf("draw: the conversations of more than %d rows cannot be put into another order; transform the trace in parts", uint32(maxIndexed))
		}
		if err := d.spool.append(it); err != nil {
			return err
		}
		size := len(d.spool.buf)
		at += int64(len(binary.AppendUvarint(nil, uint64(size))))
		row := uint32(d.rows.n)                                                   //nolint:gosec // bounded by maxIndexed
		d.rows.add(drawnRow{at: at, key: it.key, size: uint32(size), next: none}) //nolint:gosec // of a row
		at += int64(size)
		name := conversation(it.SessionID)
		if talk, known := talks[name]; known && name != "" {
			d.rows.at(d.talks[talk].last).next = row
			d.talks[talk].last = row
			continue
		}
		if name != "" {
			talks[name] = uint32(len(d.talks)) //nolint:gosec // no more than rows
		}
		d.talks = append(d.talks, dialog{first: row, last: row, begin: it.key})
	}
	return d.spool.failed(d.spool.out.Flush())
}

// draw decides which conversation begins when.
func (d *drawing) draw(how Draw, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0x64726177)) //nolint:gosec // no secret
	n := uint32(len(d.talks))                         //nolint:gosec // no more than rows
	d.slots = make([]uint32, n)
	for i := range d.slots {
		d.slots[i] = uint32(i)
		if how == DrawRandom {
			d.slots[i] = random.Uint32N(n)
		}
	}
	if how == DrawShuffle {
		random.Shuffle(len(d.slots), func(i, j int) { d.slots[i], d.slots[j] = d.slots[j], d.slots[i] })
	}
}

// row reads a row once more.
func (d *drawing) row(of *drawnRow) (*item, error) {
	s := d.spool
	if cap(s.buf) < int(of.size) {
		s.buf = make([]byte, of.size)
	}
	s.buf = s.buf[:of.size]
	_, err := s.file.ReadAt(s.buf, of.at)
	it := s.slab.item()
	if err = cmp.Or(err, unpack(it, s.buf, &s.ids)); err != nil {
		return nil, s.failed(err)
	}
	it.session = sessionOf(it.Row)
	return it, nil
}

// again returns the rows of the conversations in their new order, by time. A conversation that is drawn again gets sessions of its own; its
// prompts are the same.
func (d *drawing) again() step {
	under := heap.New(turnDue.before)
	slot, seq := 0, 0
	return func() (*item, error) {
		for slot < len(d.slots) && (under.Len() == 0 || d.talks[slot].begin <= under.First().key) {
			t := &d.talks[d.slots[slot]]
			under.Push(turnDue{d.talks[slot].begin, uint64(slot) << 32, t.first, d.talks[slot].begin - t.begin, t.drawn}) //nolint:gosec // not negative
			t.drawn++
			slot++
		}
		if under.Len() == 0 {
			return nil, io.EOF
		}
		due := under.Pop()
		of := d.rows.at(due.row)
		it, err := d.row(of)
		if err != nil {
			return nil, err
		}
		if of.next != none {
			next := due
			next.row, next.key, next.order = of.next, max(due.key, d.rows.at(of.next).key+due.shift), due.order+1
			under.Push(next)
		}
		it.setTime(tidy(due.key))
		if it.seq, it.again = seq, due.again; due.again > 0 {
			suffix := fmt.Sprintf("~draw%d", due.again+1)
			it.SessionID, it.RequestID, it.WaitFor = renamed(it.SessionID, suffix), renamed(it.RequestID, suffix), renamedAll(it.WaitFor, suffix)
			it.session = sessionOf(it.Row)
		}
		seq++
		return it, nil
	}
}

// drawn returns the rows of a trace with its conversations in another order. It reads the trace when the first row is requested.
func (s *Stream) drawn(in step) step {
	var rows step
	return func() (it *item, err error) {
		if rows == nil {
			d := new(drawing)
			if d.spool, err = newSpool(s.c.TempDir); err != nil {
				return nil, err
			}
			s.drawing = d
			if err := d.read(in); err != nil {
				return nil, err
			}
			d.draw(s.c.Draw, s.c.Seed)
			rows = d.again()
		}
		return rows()
	}
}
