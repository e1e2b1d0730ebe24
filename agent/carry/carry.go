// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

// Package carry stores the live replies of a replay for the rows whose prompts contain them.
//
// In production, the prompt of the next turn of a conversation is the previous prompt, the engine's own reply and a new text. The engine
// has the keys and values of the reply in its cache. A replay with other words there would miss them. So a row says which of its tokens are
// the reply to an earlier row, and the replay inserts the reply that it received itself.
//
// A row never waits for a reply. The first row that needs a reply decides, at its scheduled time, what is inserted: the live reply, or
// invented words if the reply is not complete, has another length, or would be tokenised differently. All later rows use the same words, so
// that the prompts of a conversation stay prefixes of each other. Each reason is counted.
//
// Memory is bounded in bytes: the least recently used complete reply is dropped first.
package carry

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"

	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/mooncake"
)

// Mode says which live replies are carried, that is, inserted into later prompts.
type Mode string

// The modes.
const (
	Auto   Mode = "auto"   // replies that are known to have the number of tokens in the row
	Always Mode = "always" // all replies, including texts whose tokens cannot be checked
	Never  Mode = "never"  // no replies: rows are built as if they had none
)

// DefaultBytes is the default limit of the replies that are stored, in bytes.
const DefaultBytes = 64 << 20

// The reasons for invented words instead of a reply.
const (
	Late      = "late"              // the reply, or its check, was not complete at the row's scheduled time
	Failed    = "failed"            // the earlier request failed, or was cancelled or skipped
	Length    = "length"            // the reply has a different number of tokens than the row says
	Text      = "not_tokenising"    // its text has another number of tokens as part of a prompt
	Unchecked = "cannot_be_checked" // the tokens of the text cannot be determined, and the mode is Auto, or prompts consist of token ids; or the text is empty
	Evicted   = "evicted"           // it was dropped to keep within the limit
	NoRoom    = "no_room"           // a message of the row is too short for the chat template's own tokens
	Shard     = "shard"             // the earlier row belongs to another shard
	NotSent   = "not_sent"          // the earlier row is not part of this replay, because of a window or a limit
	Off       = "off"               // the mode is Never
	Broken    = "broken_off"        // the earlier row was sent before the run was cut short, and its reply is lost
)

// Options configures a [Store]. The zero Options carry replies that need no check.
type Options struct {
	Mode  Mode  // default Auto
	Bytes int64 // default DefaultBytes
	// BlockSize and FineBlockSize are those of the trace, in tokens.
	BlockSize, FineBlockSize int
	// TokenIDs says that prompts consist of token ids, not of text.
	TokenIDs bool
	// Whole says that Need has been called for every row of the trace before the first Begin, so that other replies need not be stored.
	Whole bool
	// Elsewhere reports whether the row at an index belongs to another shard; nil = there are no other shards.
	Elsewhere func(index int64) bool
	// Check returns the number of tokens of a reply's text as part of a prompt, and, if prompts consist of token ids, the tokens. Nil: they
	// cannot be determined. It runs in the background, for a few replies at once.
	Check func(ctx context.Context, model, text string) (count int64, tokens []uint32, err error)
}

const (
	// checkers is the maximum number of concurrent checks, because they go to the engine that is measured.
	checkers = 4
	// entryBytes is the approximate size of an entry without its reply.
	entryBytes = 256
	// maxNamed is the maximum number of needed rows that have not begun, in each of two generations.
	maxNamed = 1 << 17
)

// Store stores replies. It is safe for concurrent use. A nil Store carries nothing.
type Store struct {
	opt    Options
	ctx    context.Context //nolint:containedctx // of the checks, which outlast the calls that ask for them
	cancel context.CancelFunc
	checks sync.WaitGroup

	mu      sync.Mutex
	named   [2]map[int64]struct{} // needed rows that have not begun: two generations
	entries map[int64]*entry
	idle    list.List // of *entry that may be evicted, least recently used first
	bytes   int64
	evicted bool
	queue   []*entry // waiting for a check
	busy    int      // running checks
}

// state is the state of an earlier row's request.
type state uint8

const (
	absent state = iota // unknown
	underWay
	complete
	gone // it will never be complete
)

// entry is the state of one earlier row.
type entry struct {
	index  int64
	state  state
	lost   bool          // it was sent before the run was cut short
	needed bool          // a row that has been read needs its reply
	idle   *list.Element // nil if it must not be evicted
	held   int64         // bytes

	tail   prompt.Tail
	model  string
	text   string
	tokens []uint32
	count  int64 // tokens of the reply, as counted by the engine

	checking, checked bool
	inPrompt          int64 // tokens of the text, as counted by the check

	decided bool
	reply   prompt.Reply
	why     string // reason, if invented
}

// New returns an empty store.
func New(o Options) *Store {
	o.Mode, o.Bytes, o.BlockSize = cmp.Or(o.Mode, Auto), cmp.Or(o.Bytes, DefaultBytes), cmp.Or(o.BlockSize, mooncake.BlockSize)
	s := &Store{opt: o, entries: make(map[int64]*entry)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.named[0] = make(map[int64]struct{})
	return s
}

// Close stops the checks.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.cancel()
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
	s.checks.Wait()
}

// Set changes the options that become known after the first rows have been read. It must be called before the first Begin.
func (s *Store) Set(change func(*Options)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.opt)
}

// Need records that a row that has been read contains the replies of earlier rows. These may have been sent already.
func (s *Store) Need(index int64, replies []mooncake.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range replies {
		at := index - r.Back
		if e := s.entries[at]; e != nil {
			if !e.needed {
				e.needed = true
				s.check(e)
			}
			continue
		}
		if _, old := s.named[1][at]; old {
			continue
		}
		if len(s.named[0]) >= maxNamed {
			s.named[0], s.named[1] = make(map[int64]struct{}), s.named[0]
		}
		s.named[0][at] = struct{}{}
	}
}

// Needed reports whether any row that has been read needs the reply to a row that has not begun.
func (s *Store) Needed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.named[0])+len(s.named[1]) > 0
}

// Begin records that a row's request is being built, and reports whether its reply will be stored. If so, the caller must call End once.
func (s *Store) Begin(index int64, row *mooncake.Row) (keep bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[index]
	_, young := s.named[0][index]
	_, old := s.named[1][index]
	needed := young || old
	delete(s.named[0], index)
	delete(s.named[1], index)
	if e != nil || s.opt.Whole && !needed { // a row that needs the reply came earlier and decided; or no row needs it
		return false
	}
	e = &entry{index: index, needed: needed, state: underWay, tail: prompt.TailOf(row, s.opt.BlockSize, s.opt.FineBlockSize)}
	s.add(e)
	return true
}

// Ended is the result of a request.
type Ended struct {
	Served bool
	Model  string // the requested model
	Text   string
	Tokens []uint32 // its token ids, if the engine sent them
	Count  int64    // number of tokens, as counted by the engine; negative if unknown
}

// End records the result of a row's request.
func (s *Store) End(index int64, how Ended) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[index]
	if e == nil || e.state != underWay {
		return
	}
	e.state = complete
	switch {
	case !how.Served:
		e.state = gone
	case !e.decided:
		e.model, e.text, e.tokens, e.count = how.Model, how.Text, how.Tokens, how.Count
		if e.count < 0 && len(e.tokens) > 0 {
			e.count = int64(len(e.tokens))
		}
		s.account(e)
		s.check(e)
	}
	s.release(e)
}

// Skip records that a row's request is not sent.
func (s *Store) Skip(index int64, row *mooncake.Row) {
	if s.Begin(index, row) {
		s.End(index, Ended{})
	}
}

// Lose records that a row was sent before the run was cut short, and that its reply is lost.
func (s *Store) Lose(index int64, row *mooncake.Row) {
	if !s.Begin(index, row) {
		return
	}
	s.mu.Lock()
	s.entries[index].lost = true
	s.mu.Unlock()
	s.End(index, Ended{})
}

// Resolve decides what is inserted for each reply of a row, and returns the reasons for invented words: "" for a live reply. It returns
// nothing for a row without replies.
func (s *Store) Resolve(index int64, row *mooncake.Row) (replies []prompt.Reply, why []string) {
	if s == nil || len(row.Replies) == 0 {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	replies, why = make([]prompt.Reply, len(row.Replies)), make([]string, len(row.Replies))
	for i, r := range row.Replies {
		replies[i], why[i] = s.resolve(index-r.Back, r.Tokens)
	}
	return replies, why
}

// resolve decides on one reply.
func (s *Store) resolve(at, tokens int64) (reply prompt.Reply, why string) {
	e := s.entries[at]
	if e == nil {
		e = &entry{index: at, decided: true, why: s.missing(at)}
		s.add(e)
		s.release(e)
		return e.reply, e.why
	}
	if e.idle != nil {
		s.idle.MoveToBack(e.idle)
	}
	if !e.decided {
		s.decide(e, tokens)
	}
	if e.reply.Carried && e.count != tokens { // the rows state different lengths
		return prompt.Reply{Before: e.reply.Before}, Length
	}
	return e.reply, e.why
}

// missing returns the reason why nothing is known of a row.
func (s *Store) missing(at int64) string {
	if s.opt.Elsewhere != nil && s.opt.Elsewhere(at) {
		return Shard
	}
	if s.evicted {
		return Evicted
	}
	return NotSent
}

// decide decides what is inserted for a reply, for all rows that need it.
func (s *Store) decide(e *entry, tokens int64) {
	e.decided = true
	e.reply.Before = e.tail
	e.why = s.reason(e, tokens)
	if e.why == "" {
		e.reply.Carried = true
		if s.opt.TokenIDs {
			e.reply.Tokens = e.tokens
		} else {
			e.reply.Text = e.text
		}
	}
	e.text, e.tokens = "", nil
	s.account(e)
}

// reason returns the reason why a reply cannot be carried.
func (s *Store) reason(e *entry, tokens int64) string {
	switch {
	case e.lost:
		return Broken
	case e.state == gone:
		return Failed
	case e.state != complete:
		return Late
	case e.count != tokens:
		return Length
	case s.opt.TokenIDs && int64(len(e.tokens)) == tokens:
		return ""
	case e.checked && (e.inPrompt != tokens || s.opt.TokenIDs):
		return Text
	case e.checked:
		return ""
	case e.checking:
		return Late
	case s.opt.Mode == Always && !s.opt.TokenIDs && e.text != "":
		return ""
	}
	return Unchecked
}

// check has the tokens of a reply counted in the background, unless their number is known or no row needs the reply.
func (s *Store) check(e *entry) {
	known := s.opt.TokenIDs && int64(len(e.tokens)) == e.count
	if e.state != complete || e.decided || e.checking || e.checked || !e.needed || known || e.text == "" || s.opt.Check == nil || s.ctx.Err() != nil {
		return
	}
	e.checking = true
	if len(s.queue) > 2*len(s.entries) { // most were dropped in the meantime
		s.queue = slices.DeleteFunc(s.queue, func(e *entry) bool { return s.entries[e.index] != e })
	}
	s.queue = append(s.queue, e)
	if s.busy < checkers {
		s.busy++
		s.checks.Go(s.runChecks)
	}
}

// runChecks runs the queued checks.
func (s *Store) runChecks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 {
		e := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if !e.decided && s.entries[e.index] == e {
			if e.idle != nil {
				s.idle.Remove(e.idle)
				e.idle = nil
			}
			model, text := e.model, e.text
			s.mu.Unlock()
			count, tokens, err := s.opt.Check(s.ctx, model, text)
			s.mu.Lock()
			if e.checked = err == nil; e.checked && !e.decided {
				e.inPrompt = count
				if s.opt.TokenIDs && count == e.count && int64(len(tokens)) == count {
					e.tokens, e.text = tokens, ""
					s.account(e)
				}
			}
		}
		e.checking = false
		s.release(e)
	}
	s.busy--
}

// account updates the size of an entry that has changed.
func (s *Store) account(e *entry) {
	held := int64(entryBytes + len(e.text) + len(e.reply.Text) + 4*len(e.tokens) + 4*len(e.reply.Tokens))
	s.bytes += held - e.held
	e.held = held
}

// add inserts an entry.
func (s *Store) add(e *entry) {
	s.entries[e.index] = e
	s.account(e)
}

// release allows an entry to be evicted, and evicts entries beyond the limit.
func (s *Store) release(e *entry) {
	if e.idle == nil && e.state != underWay && s.entries[e.index] == e {
		e.idle = s.idle.PushBack(e)
	}
	for s.bytes > s.opt.Bytes && s.idle.Len() > 0 {
		old := s.idle.Remove(s.idle.Front()).(*entry) // the list has only entries
		delete(s.entries, old.index)
		s.bytes -= old.held
		old.text = "" // a check may still be queued for it
		s.evicted = true
	}
}
