// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package foreign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// DefaultLookahead is the number of rows of a file among which order is made.
const DefaultLookahead = 1 << 16

// lookaheadBytes bounds the rows of all files that wait for their turn.
const lookaheadBytes = 64 << 20

// Failed says what becomes of requests that failed.
type Failed string

// What can become of them. The zero Failed is FailedDrop.
const (
	FailedDrop Failed = "drop" // they are counted
	FailedKeep Failed = "keep" // they are rows with no output
)

// Options says what to convert and how. Only Format must be given.
type Options struct {
	Format Format
	// BlockSize is the number of tokens for a block id of the trace, a multiple of the format's. 0 is the format's own: 16 for
	// Bailian. The other formats have no ids but with Plain; then 0 is [mooncake.BlockSize].
	BlockSize int
	// Failed is for BurstGPT, where requests without response tokens failed.
	Failed Failed
	// Models are the only models whose requests become rows; none is all. For BurstGPT.
	Models []string
	// Lookahead is the number of rows of one file that are put into order; 0 is DefaultLookahead.
	Lookahead int
	// MaxLine is the longest line, in bytes; 0 is [mooncake.DefaultMaxLine].
	MaxLine int
	// Plain leaves sessions and models out: rows have the four fields that every tool knows, and where nothing is known of
	// a prompt its blocks have ids that no other has.
	Plain bool
	// Tool is the name and version of the program, for the sidecar.
	Tool string
}

// validate reports options that cannot be followed, or that would be without effect.
func (o *Options) validate() error {
	if _, err := ParseFormat(string(o.Format)); err != nil {
		return err
	}
	switch {
	case o.BlockSize < 0:
		return fmt.Errorf("block size %d: must be above 0", o.BlockSize)
	case o.BlockSize > 0 && o.Format != Bailian && !o.Plain:
		return fmt.Errorf("block size %d: %s traces have no block ids", o.BlockSize, o.Format)
	case o.Format == Bailian && o.BlockSize%bailianBlock != 0:
		return fmt.Errorf("block size %d: the blocks of %s have %d tokens, and larger ones are made of whole blocks: give a multiple",
			o.BlockSize, o.Format, bailianBlock)
	case o.Failed != "" && o.Failed != FailedDrop && o.Failed != FailedKeep:
		return fmt.Errorf("failed requests %.20q: want %s or %s", string(o.Failed), FailedDrop, FailedKeep)
	case o.Failed != "" && o.Format != BurstGPT:
		return fmt.Errorf("failed requests: %s traces do not say which requests failed", o.Format)
	case len(o.Models) > 0 && o.Format != BurstGPT:
		return fmt.Errorf("models: %s traces do not name the models", o.Format)
	case o.Lookahead < 0:
		return fmt.Errorf("look-ahead %d: must be above 0", o.Lookahead)
	case o.MaxLine < 0:
		return fmt.Errorf("longest line %d: must be above 0", o.MaxLine)
	}
	return nil
}

// Source is a file to convert.
type Source struct {
	Name string // for errors and the sidecar
	Open func() (io.ReadCloser, error)
}

// Writer takes the rows: a [mooncake.Writer], for one.
type Writer interface {
	Write(row *mooncake.Row) error
}

// Convert reads files of one format and writes their rows in the order of time, from 0. It returns the sidecar of the trace.
// A line that cannot be understood is a *[mooncake.RowError], and the end.
//
// Times of several files have one zero: dates for Azure, the first day for BurstGPT. Files of Bailian begin at the same time, and ids
// and chats of two files are different ones.
func Convert(ctx context.Context, opt Options, w Writer, files ...Source) (*mooncake.Meta, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no file to convert")
	}
	if opt.Lookahead == 0 {
		opt.Lookahead = DefaultLookahead
	}
	if opt.MaxLine == 0 {
		opt.MaxLine = mooncake.DefaultMaxLine
	}
	if opt.BlockSize == 0 && opt.Format == Bailian {
		opt.BlockSize = bailianBlock
	}
	if opt.BlockSize == 0 && opt.Plain {
		opt.BlockSize = mooncake.BlockSize
	}
	c := &converter{opt: opt, several: len(files) > 1}
	c.digester = mooncake.NewDigester(mooncake.CheckOptions{BlockSize: opt.BlockSize})
	for i, file := range files {
		in, err := file.Open()
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
		s := newStream(in, file.Name, i, newParser(&c.opt, &c.lost), &c.lost, opt.MaxLine)
		s.rows, s.room = opt.Lookahead, lookaheadBytes/len(files)
		c.streams, c.closers = append(c.streams, s), append(c.closers, in)
		c.names = append(c.names, file.Name)
	}
	err := c.run(ctx, w)
	if err == nil && c.rows == 0 {
		err = c.nothing()
	}
	if err = errors.Join(err, c.close()); err != nil {
		return nil, err
	}
	return c.meta(), nil
}

// converter makes one trace of some files.
type converter struct {
	opt     Options
	several bool // files
	names   []string
	streams []*stream
	closers []io.Closer
	lost    losses

	rows, withIDs, withSession int64
	first                      int64 // time of the first row
	chats                      chats
	chain                      chain
	digester                   *mooncake.Digester
	long, short                int64 // rows with more or fewer ids than blocks
}

func (c *converter) close() error {
	var errs []error
	for _, in := range c.closers {
		errs = append(errs, in.Close())
	}
	c.closers = nil
	return errors.Join(errs...)
}

// run merges the files.
func (c *converter) run(ctx context.Context, w Writer) error {
	heads := make([]*request, len(c.streams))
	advance := func(i int) (err error) {
		if heads[i], err = c.streams[i].next(); errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	for i := range heads {
		if err := advance(i); err != nil {
			return err
		}
	}
	for {
		var q *request
		for _, head := range heads {
			if head != nil && (q == nil || head.before(q)) {
				q = head
			}
		}
		if q == nil {
			return nil
		}
		if c.rows%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.write(w, q); err != nil {
			return err
		}
		if err := advance(q.input); err != nil {
			return err
		}
	}
}

// write completes a row and writes it.
func (c *converter) write(w Writer, q *request) error {
	if c.rows == 0 {
		c.first = q.at
	}
	row := q.row
	row.Timestamp = mooncake.Some(milliseconds(q.at - c.first))
	if first, ok := c.chats.add(q); ok {
		row.SessionID = strconv.FormatInt(first, 10)
		if c.several {
			row.SessionID = strconv.Itoa(q.input+1) + "/" + row.SessionID
		}
	}
	if c.opt.Plain {
		row.SessionID, row.Model = "", ""
	}
	if row.SessionID != "" {
		c.withSession++
	}
	if row.HashIDs != nil {
		c.withIDs++
		switch blocks := mooncake.BlockCount(row.InputLength.V, bailianBlock); {
		case len(row.HashIDs) > blocks:
			c.long++
		case len(row.HashIDs) < blocks:
			c.short++
		}
		row.HashIDs = c.chain.number(q.input, row.HashIDs, bailianBlock, c.opt.BlockSize, row.InputLength.V)
	} else if c.opt.Plain {
		row.HashIDs = c.chain.fresh(mooncake.BlockCount(row.InputLength.V, c.opt.BlockSize))
	}
	c.rows++
	c.digester.Add(row, c.rows)
	return w.Write(row)
}

// nothing is the error of a trace without rows.
func (c *converter) nothing() error {
	var s strings.Builder
	s.WriteString("no row came out of " + strings.Join(c.names, ", "))
	for _, d := range c.lost.order {
		fmt.Fprintf(&s, "; %d %s: %s", d.Count, d.What, d.Reason)
	}
	return errors.New(s.String())
}

// meta is the sidecar.
func (c *converter) meta() *mooncake.Meta {
	m := &mooncake.Meta{
		Schema: mooncake.MetaSchema, Tool: c.opt.Tool, Rows: c.rows, BlockSize: c.opt.BlockSize, TimeUnit: mooncake.UnitName(time.Millisecond),
		SessionMode: mooncake.SessionNone, Identity: make(map[string]int64),
		Digests: c.digester.Digests(), Dropped: c.lost.order,
	}
	if c.withSession > 0 {
		m.SessionMode = mooncake.SessionFull // requests to an API hold their conversation
	}
	if c.opt.Format == Azure && c.rows > 0 {
		m.TimeBase = time.Unix(0, c.first).UTC()
	}
	for identity, n := range map[string]int64{"trace": c.withIDs, "lengths": c.rows - c.withIDs} {
		if n > 0 {
			m.Identity[identity] = n
		}
	}
	parameters := map[string]any{"from": c.opt.Format, "files": c.names}
	if c.opt.Format == BurstGPT {
		parameters["failed"] = c.opt.Failed
		if c.opt.Failed == "" {
			parameters["failed"] = FailedDrop
		}
		if len(c.opt.Models) > 0 {
			parameters["models"] = c.opt.Models
		}
	}
	if c.opt.Format == Bailian {
		parameters["block_size"] = c.opt.BlockSize
	}
	m.Transformations = []mooncake.Transformation{{Name: "convert", Parameters: parameters, Effect: c.effect()}}
	return m
}

// effect says in one sentence what was done to the rows.
func (c *converter) effect() string {
	var s strings.Builder
	s.WriteString("Timestamps count from the first row")
	if c.opt.Format != Azure {
		s.WriteString(", which came " + strconv.FormatFloat(milliseconds(c.first)/1e3, 'f', -1, 64) + " s after the zero of the files")
	}
	if c.withIDs > 0 {
		fmt.Fprintf(&s, "; block ids stand for %d tokens of a prompt and all before them", c.opt.BlockSize)
	}
	for _, odd := range []struct {
		n    int64
		text string
	}{
		{c.chats.cut, "sessions begin with a request whose parent is not in the files"},
		{c.long, "rows had more ids than blocks, of which the first count"},
		{c.short, "rows had fewer ids than blocks, so that the end of their prompts has none"},
	} {
		if odd.n > 0 {
			fmt.Fprintf(&s, "; %d %s", odd.n, odd.text)
		}
	}
	return s.String() + "."
}
