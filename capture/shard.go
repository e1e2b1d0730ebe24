// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/moonloop/moonloop/internal/ondisk"
)

// This file divides a compile into shards: between the cores of a process, see cores.go, or between processes, through a folder that all of
// them see. Any number of shards writes the same bytes.
//
// A row depends on records of any journal: on the other spans of its trace, on those with its response id, on the turns of its session, on
// the prompts with the same beginning. These are not limited to a time, so journals cannot be compiled by time. Instead, each phase of a
// compile is divided by the key by which it groups records:
//
//	read    each shard its journals   → records by trace
//	group   its traces                → requests by response id; rows by session
//	join    its response ids          → rows by session
//	turns   its sessions              → prompts by their first mark; rows by their order
//	...     ends of messages that prompts leave out, by cell; replies that prompts contain, by their value
//	text    the prompts that begin with its marks → rows by their order
//	follow  shard 0, where an engine saw prompts in another order
//	write   shard 0: the rows of all, in order, with their ids
//
// A shard leaves what others need, processes in files, see exchange.go, and what it found out about all records, see learned.go. The next
// phase begins when all shards have left theirs. Processes do not repeat a completed phase: a shard that was killed continues after it.
//
// A hash of the key decides which shard has a record, so a shard's part of the traces is unrelated to its part of the sessions. In the
// order of a sorter, the parts come one after the other, and a single shard goes through them in the same order. So numbers that depend on
// this position are the same as with one shard, or at least have the same order.

// Shard selects a part of a compile. Shard 0 of 1 is all of it.
type Shard struct {
	Index, Of int // 0 ≤ Index < Of ≤ MaxShards
	// Dir is a folder that all shards see. It must be empty at first, and grows to at most the size of the journals.
	Dir string
}

// MaxShards is the greatest number of shards.
const MaxShards = 1 << 12

// exchange is data that one phase leaves for another one.
type exchange string

const (
	traces    exchange = "trace"
	responses exchange = "response"
	sessions  exchange = "session"
	texts     exchange = "text"
	branches  exchange = "branch"
	parted    exchange = "parted"
	inCells   exchange = "ends"
	missing   exchange = "missing"
	wholes    exchange = "whole" // texts with all their ends; if no ends are missing, texts itself is read instead
	said      exchange = "said"
	answers   exchange = "answers"
	ordered   exchange = "order"
	turnedOf  exchange = "followed"
)

// of returns the sorter of an exchange.
func (c *compiler) of(x exchange) *sorter {
	switch x {
	case traces:
		return c.byTrace
	case responses:
		return c.byResponse
	case sessions:
		return c.bySession
	case texts:
		return c.byText
	case ordered:
		return c.byOrder
	case turnedOf:
		return c.followed
	case branches, parted, inCells, missing, wholes, said, answers:
	}
	if c.others[x] == nil {
		if c.others == nil {
			c.others = map[exchange]*sorter{}
		}
		c.others[x] = newSorter(c.opt.TempDir, c.opt.Memory/8)
	}
	return c.others[x]
}

// phase is what each shard does between two points at which all wait for each other.
type phase struct {
	name    string
	in, out []exchange
	settled bool                 // all names of models are known
	alone   bool                 // only shard 0 does it
	needed  func(*compiler) bool // nil: always
	run     func(*compiler, []Source) error
}

func isThinned(c *compiler) bool { return c.thinned }
func isParted(c *compiler) bool  { return c.parted }
func isReplied(c *compiler) bool { return c.replied || c.unseen }

var phases = [...]phase{
	{name: "read", out: []exchange{traces}, run: (*compiler).readAll},
	{
		name: "group", in: []exchange{traces}, out: []exchange{responses, sessions, texts, ordered},
		run: func(c *compiler, _ []Source) error { return c.group() },
	},
	{
		name: "join", in: []exchange{responses}, out: []exchange{sessions, texts, ordered},
		run: func(c *compiler, _ []Source) error { return c.joinResponses() },
	},
	{
		name: "turns", in: []exchange{sessions}, out: []exchange{texts, ordered}, settled: true,
		run: func(c *compiler, _ []Source) error { return c.layTurns() },
	},
	{
		name: "branches", in: []exchange{texts}, out: []exchange{branches}, settled: true, needed: isThinned,
		run: func(c *compiler, _ []Source) error { return c.findBranches(c.of(branches)) },
	},
	{
		name: "parted", in: []exchange{branches}, out: []exchange{parted}, settled: true, needed: isThinned,
		run: func(c *compiler, _ []Source) error { return c.findParted(c.of(branches), c.of(parted)) },
	},
	{
		name: "ends", in: []exchange{texts, parted}, out: []exchange{inCells}, settled: true, needed: isParted,
		run: func(c *compiler, _ []Source) error { return c.gatherEnds(c.of(parted), c.of(inCells)) },
	},
	{
		name: "missing", in: []exchange{inCells}, out: []exchange{missing}, settled: true, needed: isParted,
		run: func(c *compiler, _ []Source) error { return c.matchEnds(c.of(inCells), c.of(missing)) },
	},
	{
		name: "whole", in: []exchange{texts, missing}, out: []exchange{wholes}, settled: true, needed: isParted,
		run: func(c *compiler, _ []Source) error { return c.addComplete(c.of(wholes), c.of(missing)) },
	},
	{
		name: "said", in: []exchange{wholes}, out: []exchange{said}, settled: true, needed: isReplied,
		run: func(c *compiler, _ []Source) error { return c.gatherTurns(c.of(said)) },
	},
	{
		name: "answers", in: []exchange{said}, out: []exchange{answers}, settled: true, needed: isReplied,
		run: func(c *compiler, _ []Source) error { return c.matchTurns(c.of(said), c.of(answers)) },
	},
	{
		name: "text", in: []exchange{wholes, answers}, out: []exchange{ordered}, settled: true,
		run: func(c *compiler, _ []Source) error {
			turns := c.of(answers)
			return c.withSurvey(turns, func(steps *sorter) error { return c.shareTexts(turns, steps) })
		},
	},
	{
		name: "follow", in: []exchange{wholes, answers}, out: []exchange{turnedOf}, settled: true, alone: true,
		needed: func(c *compiler) bool { return c.turned || slices.ContainsFunc(promptOrders[:], c.engines.take) },
		run: func(c *compiler, _ []Source) error {
			c.turned = true
			turns := c.of(answers)
			return c.withSurvey(turns, func(steps *sorter) error { return c.follow(turns, steps) })
		},
	},
	{
		name: "write", in: []exchange{ordered, turnedOf}, settled: true, alone: true,
		run: func(c *compiler, _ []Source) error { return c.writeRows() },
	},
}

// skipped reports whether a phase has nothing to do.
func (p *phase) skipped(c *compiler) bool { return p.needed != nil && !p.needed(c) }

// compileKey identifies a compile: a folder may have only one.
type compileKey struct {
	Shards   int    `json:"shards"`
	Options  string `json:"options"`
	Journals int    `json:"journals"`
	Bytes    int64  `json:"bytes"`
	Names    string `json:"names"` // hash of the names and sizes of the journals
}

// sharded is one shard.
type sharded struct {
	Shard
	ctx      context.Context //nolint:containedctx // it lives as long as the call
	opt      Options
	memory   int // of a phase that all shards do at once; opt has that of one that shard 0 does alone
	sink     Sink
	key      compileKey
	journals []Source
	learned  []*learned // by all shards, phase by phase
	failed   *learned   // found out in the phase that failed
	writes   bool       // the last phase has begun: its result has everything
	place
}

// place is where shards leave data for each other, by name.
type place interface {
	// prepare prepares a sorter that will be left.
	prepare(s *sorter)
	// leave leaves all items of a sorter, in at most this many runs, and empties it.
	leave(s *sorter, name string, most int) error
	// take adds parts of what was left to a sorter's input, and returns how many items the parts before them have.
	take(s *sorter, name string, from, to int) (before int64, err error)
	remove(name string)
	// say leaves what a shard found out in a phase. heard returns it, or fs.ErrNotExist if the phase is not done. await waits for it.
	say(name string, all *learned) error
	heard(name string) (*learned, error)
	await(name string, shard int) (*learned, error)
}

// CompileShard does one shard's part of [Compile]. All shards must have the same journals, in the same order, and the same options except
// Memory, TempDir and Progress. A shard waits for the others when it needs their results. Shard 0 writes the traces, and its result is that
// of Compile; that of the others is empty. The journals must not grow meanwhile.
func CompileShard(ctx context.Context, opt Options, shard Shard, sink Sink, journals ...Source) (Result, error) {
	if err := cmp.Or(opt.complete(), some(journals)); err != nil {
		return Result{}, err
	}
	switch {
	case shard.Of < 1 || shard.Of > MaxShards || shard.Index < 0 || shard.Index >= shard.Of:
		return Result{}, fmt.Errorf("shard %d of %d: want an index that is at least 0 and below the number of shards, and at most %d shards", shard.Index, shard.Of, MaxShards)
	case len(opt.Before)+len(opt.After) > 0:
		return Result{}, errors.New("a compile in shards reads only the journals that it compiles: name those of Before and After among them")
	}
	if err := os.MkdirAll(shard.Dir, 0o700); err != nil {
		return Result{}, fmt.Errorf("folder for all shards cannot be created: %w", err)
	}
	s := &sharded{Shard: shard, ctx: ctx, opt: opt, memory: opt.Memory, sink: sink, journals: journals, key: keyOf(&opt, shard.Of, journals)}
	s.place = folder{s}
	res, err := s.compile()
	if err != nil {
		return res, fmt.Errorf("shard %d/%d: journals were not compiled: %w", shard.Index, shard.Of, err)
	}
	if shard.Index == 0 {
		left, _ := filepath.Glob(filepath.Join(s.Dir, ondisk.Pattern)) // of shards that were killed
		for _, name := range left {
			_ = os.Remove(name)
		}
	}
	return res, nil
}

// keyOf returns what all shards have in common.
func keyOf(opt *Options, shards int, journals []Source) compileKey {
	key := compileKey{
		Shards: shards, Journals: len(journals),
		Options: fmt.Sprintf("tool %q, format %s, replays %s, missing tokens %s, follow engine %s, graphs %s, block size %d, %d spans in a trace, %d runs",
			opt.Tool, opt.Format, opt.Replays, opt.MissingTokens, opt.FollowEngine, opt.Graphs, opt.BlockSize, opt.MaxTraceSpans, opt.MaxRuns),
	}
	names := sha256.New()
	for _, j := range journals {
		key.Bytes += j.Size
		fmt.Fprintf(names, "%q %d\n", j.Name, j.Size)
	}
	key.Names = hex.EncodeToString(names.Sum(nil)[:8])
	return key
}

func (s *sharded) compile() (Result, error) {
	for i := range phases {
		p := &phases[i]
		switch name := s.file(p, s.Index, "json"); {
		case p.name == "write" && s.Index == 0:
			return s.write(p)
		case s.Index > 0 && p.alone:
			return Result{}, nil
		default:
			_, err := s.heard(name)
			if errors.Is(err, fs.ErrNotExist) {
				err = s.do(p)
			}
			if err != nil {
				return Result{}, err
			}
		}
		for shard := range s.workers(p) {
			one, err := s.await(s.file(p, shard, "json"), shard)
			if err != nil {
				return Result{}, err
			}
			s.learned = append(s.learned, one)
		}
		if s.Index == 0 {
			s.sweep(i)
		}
	}
	return Result{}, nil
}

// begin returns a compiler for a phase, with everything found out so far.
func (s *sharded) begin(p *phase) *compiler {
	opt := s.opt
	if !p.alone {
		opt.Memory = s.memory
	}
	c := newCompiler(s.ctx, opt, s.sink)
	c.know(s.learned, p)
	return c
}

// do does a phase, and records that it is done.
func (s *sharded) do(p *phase) (err error) {
	c := s.begin(p)
	defer c.close()
	name := s.file(p, s.Index, "json")
	if p.skipped(c) {
		return s.say(name, &learned{})
	}
	before := c.learned()
	defer func() {
		if err != nil {
			s.failed = c.learned()
			s.failed.forget(before)
		}
	}()
	if p.settled {
		c.models.settle()
	}
	if err := s.input(c, p); err != nil {
		return err
	}
	for _, x := range p.out {
		out := c.of(x)
		out.parts = s.parts(x)
		s.prepare(out)
	}
	if err := p.run(c, s.share()); err != nil {
		return err
	}
	for _, x := range p.out {
		out := c.of(x)
		// A shard reads the runs of all shards, with one buffer for each.
		if err := s.leave(out, s.file(p, s.Index, string(x)), max(out.fanIn/s.Of, 1)); err != nil {
			return err
		}
	}
	learned := c.learned()
	learned.forget(before)
	if p.settled {
		learned.Models = nil
	}
	return s.say(name, learned)
}

// write does the last phase.
func (s *sharded) write(p *phase) (Result, error) {
	name := s.file(p, 0, "json")
	if _, err := s.heard(name); err == nil {
		return Result{}, fmt.Errorf("%s: the traces were written before: remove the folder to compile again", s.Dir)
	}
	c := s.begin(p)
	defer c.close()
	s.writes = true
	c.models.settle()
	if err := s.input(c, p); err != nil {
		return c.result(), err
	}
	if err := p.run(c, nil); err != nil {
		return c.result(), err
	}
	err := s.say(name, &learned{})
	if err == nil {
		s.sweep(len(phases) - 1)
	}
	return c.result(), err
}

// parts returns how many parts an exchange has.
func (s *sharded) parts(x exchange) int {
	if x == ordered || x == turnedOf || x == parted {
		return 1 // for shard 0, or for all
	}
	return s.Of
}

// input passes the compiler what earlier phases left for this shard.
func (s *sharded) input(c *compiler, p *phase) error {
	for _, x := range p.in {
		in := c.of(x)
		if x == wholes {
			if in = c.byText; !c.parted {
				x = texts
			}
		}
		from, to := s.Index, s.Index+1
		if parts := s.parts(x); p.alone || parts == 1 {
			from, to = 0, parts
		}
		before := int64(0)
		for i := range phases {
			left := &phases[i]
			if !slices.Contains(left.out, x) || left.skipped(c) {
				continue
			}
			for shard := range s.workers(left) {
				n, err := s.take(in, s.file(left, shard, string(x)), from, to)
				if err != nil {
					return err
				}
				before += n
			}
		}
		if x == sessions {
			c.structured = before
		} else if in == c.byText {
			c.firstText = before
		}
	}
	return nil
}

// workers returns how many shards do a phase.
func (s *sharded) workers(p *phase) int {
	if p.alone {
		return 1
	}
	return s.Of
}

// share returns the journals that this shard reads: consecutive ones with about the same number of bytes as the other shards'.
func (s *sharded) share() []Source {
	at := int64(0)
	var own []Source
	for i, j := range s.journals {
		shard := i * s.Of / len(s.journals)
		if s.key.Bytes > 0 {
			shard = int((at + j.Size/2) * int64(s.Of) / s.key.Bytes)
		}
		if at += j.Size; min(shard, s.Of-1) == s.Index {
			own = append(own, j)
		}
	}
	return own
}

// file returns the name of a file that a shard leaves in a phase.
func (s *sharded) file(p *phase, shard int, ending string) string {
	return filepath.Join(s.Dir, fmt.Sprintf("%s-%04d.%s", p.name, shard, ending))
}

// sweep removes what no later phase needs.
func (s *sharded) sweep(done int) {
	if phases[done].name == "group" {
		for _, l := range s.learned {
			l.Producers = nil // they may take much memory
		}
	}
	for i := range phases[:done] {
		for _, x := range phases[i].out {
			if slices.ContainsFunc(phases[done+1:], func(p phase) bool {
				return slices.Contains(p.in, x) || x == texts && slices.Contains(p.in, wholes)
			}) {
				continue
			}
			for shard := range s.Of {
				s.remove(s.file(&phases[i], shard, string(x)))
			}
		}
	}
}
