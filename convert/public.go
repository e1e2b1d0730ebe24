// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// DefaultLookahead is the default number of rows of each file of a public trace that are read ahead and sorted.
const DefaultLookahead = 1 << 16

// lookaheadBytes is the maximum size of the rows of all files that are read ahead.
const lookaheadBytes = 64 << 20

// Failed says what happens to requests that failed.
type Failed string

// The choices. The zero Failed is FailedDrop.
const (
	FailedDrop Failed = "drop" // they are left out and counted
	FailedKeep Failed = "keep" // they become rows without output
)

// validatePublic returns an error about an option that is invalid, or would have no effect.
func (o *Options) validatePublic() error {
	f := o.Format.spec()
	switch size := o.Compile.BlockSize; {
	case size < 0:
		return fmt.Errorf("block size %d: must be above 0", size)
	case size > 0 && !f.blocks && !o.plain():
		return fmt.Errorf("block size %d: %s traces have no block ids", size, o.Format)
	case size > 0 && f.block > 0 && size%f.block != 0:
		return fmt.Errorf("block size %d: the blocks of %s have %d tokens, and larger ones are made of whole blocks: give a multiple",
			size, o.Format, f.block)
	case o.Prompts == PromptsKeep && o.plain():
		return errors.New("rows of the four fields that every tool knows hold no prompts: choose the full format, or do not keep prompts")
	case o.Lookahead < 0:
		return fmt.Errorf("look-ahead %d: must be above 0", o.Lookahead)
	}
	return o.validateChoice()
}

// validateChoice returns an error if the format does not allow choosing requests in this way.
func (o *Options) validateChoice() error {
	f := o.Format.spec()
	switch {
	case o.Failed != "" && o.Failed != FailedDrop && o.Failed != FailedKeep:
		return fmt.Errorf("failed requests %.20q: want %s or %s", string(o.Failed), FailedDrop, FailedKeep)
	case o.Failed != "" && !f.fails:
		return fmt.Errorf("failed requests: %s traces do not say which requests failed", o.Format)
	case len(o.Models) > 0 && !f.models:
		return fmt.Errorf("models: %s traces do not name the models", o.Format)
	}
	return nil
}

// plain reports whether rows have only the four fields that every tool knows.
func (o *Options) plain() bool { return o.Compile.Format == capture.FormatMooncake }

// convertPublic converts public traces to one trace.
func convertPublic(ctx context.Context, opt Options, sink capture.Sink, files []capture.Source) (result Result, err error) {
	if err := opt.validatePublic(); err != nil {
		return Result{}, err
	}
	opt.Failed, opt.Lookahead = cmp.Or(opt.Failed, FailedDrop), cmp.Or(opt.Lookahead, DefaultLookahead)
	if opt.To != "" {
		sink = opt.encoding(sink)
	}
	out, err := sink(capture.Partition{})
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = out.Close() }() // no effect after Commit
	c := &merger{opt: &opt, out: out, names: namesOf(files)}
	err = c.open(files)
	if err == nil {
		err = c.run(ctx)
	}
	for _, s := range c.streams {
		err = errors.Join(err, s.file.Close())
		result.Lines += s.lines.filled
	}
	if err == nil && c.rows == 0 {
		if err = nothingIn(c.names, "request", opt.Format); len(c.lost) > 0 {
			err = noRows(strings.Join(c.names, ", "), c.lost.list(), "keep some of them with another --models or --failed, or name a file that has others")
		}
	}
	if err != nil {
		return result, err
	}
	meta := c.meta()
	err = out.Commit(meta)
	result.Traces = []capture.TraceResult{{Meta: *meta}}
	return result, err
}

// merger merges the rows of several files into one trace.
type merger struct {
	opt     *Options
	out     capture.TraceWriter
	names   []string
	streams []*stream
	lost    losses

	rows, withPrompt, withIDs, withTurns, withSession, timed int64
	first                                                    int64 // time of the first row
	chats                                                    chats
	ends                                                     map[string]int64 // of sessions: the time of the last reply
	chain                                                    chain
	structure                                                structure
	scopes                                                   scopes
	digester                                                 *mooncake.Digester
	long, short                                              int64 // rows with more ids than blocks, and with fewer
	surplus                                                  int64 // ids of these rows that are ignored
}

func (c *merger) open(files []capture.Source) error {
	f := c.opt.Format.spec()
	for i, file := range files {
		in, err := file.Open()
		if err != nil {
			return err
		}
		c.streams = append(c.streams, &stream{
			lines: newLines(in, file.Name, c.opt.MaxLine, " if the row is real", f.table), file: in, index: i,
			decoder: decoder{spec: f, opt: c.opt, lost: &c.lost, file: i},
			rows:    c.opt.Lookahead, bytes: lookaheadBytes / len(files),
		})
		s := c.streams[i]
		s.tabled = s.lines.cells
		if c.opt.FileSessions {
			s.session = sessionOf(file.Name, files[:i])
		}
	}
	return nil
}

// sessionOf returns a session that is named after a file, and that no earlier file has.
func sessionOf(name string, before []capture.Source) string {
	plain := func(name string) string { return strings.SplitN(path.Base(filepath.ToSlash(name)), ".", 2)[0] }
	is := plain(name)
	if slices.ContainsFunc(before, func(f capture.Source) bool { return plain(f.Name) == is }) {
		is += "-" + strconv.Itoa(len(before))
	}
	return is
}

// run merges the files. The window holds the rows that have been read ahead, so that they can be sorted.
func (c *merger) run(ctx context.Context) error {
	w := heap.New((*request).before)
	for _, s := range c.streams {
		if err := s.fill(w); err != nil {
			return err
		}
	}
	c.chooseBlock(w.All())
	c.digester = mooncake.NewDigester(mooncake.CheckOptions{BlockSize: c.opt.Compile.BlockSize})
	for w.Len() > 0 {
		if c.rows%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		q := w.Pop()
		s := c.streams[q.input]
		err := s.release(q)
		if err == nil {
			err = c.write(q)
		}
		if err == nil {
			err = s.fill(w)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chooseBlock sets the block size of the trace, unless it is given, to that of the first row with ids.
func (c *merger) chooseBlock(rows []*request) {
	size := &c.opt.Compile.BlockSize
	for _, q := range rows {
		if *size == 0 && (q.row.HashIDs != nil || q.shares.Set) {
			*size = q.block
		}
	}
	if *size == 0 {
		*size = c.opt.Format.spec().block
	}
	if *size == 0 && c.opt.plain() {
		*size = mooncake.BlockSize
	}
}

// write completes a row and writes it.
func (c *merger) write(q *request) error {
	if c.rows == 0 {
		c.first = q.at
	}
	row := q.row
	if !q.later {
		c.timed++
		row.Timestamp = mooncake.Some(milliseconds(q.at - c.first))
	}
	if first, ok := c.chats.add(q); ok {
		row.SessionID = strconv.FormatInt(first, 10)
		if len(c.streams) > 1 {
			row.SessionID = strconv.Itoa(q.input+1) + "/" + row.SessionID
		}
	}
	if c.opt.plain() {
		*row = mooncake.Row{Timestamp: row.Timestamp, InputLength: row.InputLength, OutputLength: row.OutputLength, HashIDs: row.HashIDs}
	}
	if row.SessionID != "" {
		c.withSession++
		c.delay(q)
	}
	if err := c.number(q); err != nil {
		return err
	}
	c.rows++
	c.digester.Add(row, c.rows)
	return c.out.Write(row)
}

// delay sets the delay of a turn to the time since the reply before, if that is known.
func (c *merger) delay(q *request) {
	if before, known := c.ends[q.row.SessionID]; known && !q.later && q.at >= before {
		q.row.Delay = mooncake.Some(milliseconds(q.at - before))
	}
	delete(c.ends, q.row.SessionID)
	if q.ends.Set && len(c.ends) < maxChats {
		if c.ends == nil {
			c.ends = map[string]int64{}
		}
		c.ends[q.row.SessionID] = q.ends.V
	}
}

// number replaces the ids of a row by the numbers of its blocks in the trace.
func (c *merger) number(q *request) error {
	row, size := q.row, c.opt.Compile.BlockSize
	switch {
	case row.HashIDs != nil && (size == 0 || size%q.block != 0):
		return &mooncake.RowError{
			File: c.streams[q.input].lines.name, Line: q.line, Rule: fmt.Sprintf("the row's blocks have %d tokens, of which no blocks of %d can be made", q.block, size),
			Advice: "give a block size that is a multiple of those of all rows",
		}
	case row.HashIDs != nil:
		c.withIDs++
		switch blocks := mooncake.BlockCount(row.InputLength.V, q.block); {
		case len(row.HashIDs) > blocks:
			c.long++
			c.surplus += int64(len(row.HashIDs) - blocks)
		case len(row.HashIDs) < blocks:
			c.short++
		}
		scope := scope{q.input, q.scope}
		if c.opt.Format.spec().global {
			scope.input = 0
		}
		row.HashIDs = c.chain.number(c.scopes.of(scope), row.HashIDs, q.block, size, row.InputLength.V)
	case row.Kind() != mooncake.KindLength:
		c.withPrompt++
	case c.opt.plain() || q.shares.Set:
		blocks := mooncake.BlockCount(row.InputLength.V, size)
		if blocks > maxFresh && !c.opt.plain() { // too long for ids: the row has only its lengths
			return nil
		}
		if blocks > maxFresh {
			return &mooncake.RowError{
				File: c.streams[q.input].lines.name, Line: q.line, Field: "input_length", Value: strconv.FormatInt(row.InputLength.V, 10),
				Rule:   fmt.Sprintf("is a prompt of %d blocks, and ids are made for %d at most", blocks, maxFresh),
				Advice: "correct the row, or leave out --format mooncake, which needs ids for every row",
			}
		}
		if q.shares.Set {
			c.withTurns++
			row.HashIDs = c.structure.ids(&c.chain, q, size)
			return nil
		}
		row.HashIDs = c.chain.fresh(blocks)
	}
	return nil
}

// meta returns the sidecar.
func (c *merger) meta() *mooncake.Meta {
	reason := "more than the prompt has blocks"
	if c.long == c.withIDs { // then what rows share has wrong lengths, too
		reason += "; it is so in each row, so the blocks of the file are probably smaller than those of this format"
	}
	c.lost.add("hash ids", reason, c.surplus)
	m := &mooncake.Meta{
		Schema: mooncake.MetaSchema, Tool: c.opt.Compile.Tool, Rows: c.rows, BlockSize: c.opt.Compile.BlockSize,
		TimeUnit: mooncake.UnitName(time.Millisecond), SessionMode: mooncake.SessionNone, Identity: make(map[string]int64),
		Digests: c.digester.Digests(), Trunk: c.digester.Trunk(), Dropped: c.lost.list(),
	}
	f := c.opt.Format.spec()
	switch {
	case c.withSession > 0 && f.delta:
		m.SessionMode = mooncake.SessionDelta
	case c.withSession > 0:
		m.SessionMode = mooncake.SessionFull // requests to an API contain their conversation
	}
	if f.dates {
		m.TimeBase = time.Unix(0, c.first).UTC()
	}
	for identity, n := range map[string]int64{"trace": c.withIDs, "prompt": c.withPrompt, "structure": c.withTurns, "lengths": c.rows - c.withIDs - c.withPrompt - c.withTurns} {
		if n > 0 {
			m.Identity[identity] = n
		}
	}
	parameters := map[string]any{"from": c.opt.Format, "files": c.names}
	if f.fails {
		parameters["failed"] = c.opt.Failed
	}
	if len(c.opt.Models) > 0 {
		parameters["models"] = c.opt.Models
	}
	if c.withIDs+c.withTurns > 0 {
		parameters["block_size"] = c.opt.Compile.BlockSize
	}
	m.Transformations = []mooncake.Transformation{{Name: "convert", Parameters: parameters, Effect: c.effect()}}
	return m
}

// effect describes in one sentence what was done to the rows.
func (c *merger) effect() string {
	var s strings.Builder
	s.WriteString("Timestamps count from the first row")
	if c.timed == 0 {
		s.Reset()
		s.WriteString("Rows have no times")
	} else if !c.opt.Format.spec().dates {
		s.WriteString(", which came " + strconv.FormatFloat(milliseconds(c.first)/1e3, 'f', -1, 64) + " s after the zero of the files")
	}
	if c.withIDs > 0 {
		fmt.Fprintf(&s, "; block ids stand for %d tokens of a prompt and all before them", c.opt.Compile.BlockSize)
	}
	if c.withTurns > 0 {
		fmt.Fprintf(&s, "; block ids of %d tokens are derived from the number of tokens that a turn shares with the one before", c.opt.Compile.BlockSize)
	}
	for _, odd := range []struct {
		n         int64
		one, many string
		text      string
	}{
		{c.chats.cut, "session begins", "sessions begin", "with a request whose parent is not in the files"},
		{c.structure.lost, "turn is", "turns are", "of sessions that could not all be remembered, and share nothing"},
		{c.long, "row", "rows", "had more ids than blocks, so that the last ids are ignored"},
		{c.short, "row", "rows", "had fewer ids than blocks, so that the end of their prompts has none"},
	} {
		who := odd.many
		if odd.n == 1 {
			who = odd.one
		}
		if odd.n > 0 {
			fmt.Fprintf(&s, "; %d %s %s", odd.n, who, odd.text)
		}
	}
	return s.String() + "."
}
