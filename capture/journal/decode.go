// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/mooncake"
)

var errShort = errors.New("record ends within a field")

// Decoder decodes records one after the other, into memory that it reuses. It has the last record, of any kind: the fields that a kind does
// not have are zero. The zero Decoder is usable.
type Decoder struct {
	Kind   Kind
	Fields int // number of fields that the record has
	Inference
	Border bool  // of a [Link]
	Acts   Actor // of a [Link]

	// Reused memory of the prompt's slices:
	ids, cells []uint64
	values     []uint64 // of ends
	ends       []blockhash.End
	ranges     []mooncake.HashRange
	replies    []mooncake.Reply
	names      [5]Name // the last value of each name field: most records have the names of the one before
}

// Decode reads a record that [AppendRecord] encoded. It overwrites the previous content of d, including the memory of its slices.
func (d *Decoder) Decode(b []byte) error {
	if len(b) < headLength {
		return errShort
	}
	kind := Kind(b[0])
	if kind != KindInference && kind != KindContent && kind != KindLink {
		return fmt.Errorf("unknown kind %q of record", kind)
	}
	d.reset(kind, b)
	return d.fields(&parser{b: b[headLength:]})
}

// reset begins a record, with its ids.
func (d *Decoder) reset(kind Kind, b []byte) {
	d.Kind, d.Fields, d.Inference, d.Border, d.Acts = kind, 0, Inference{}, false, NoActor
	copy(d.Span.TraceID[:], b[1:])
	copy(d.Span.SpanID[:], b[17:])
}

// fields reads the rest of a record.
func (d *Decoder) fields(p *parser) error {
	last := byte(0)
	for len(p.b) > 0 {
		tag := p.b[0]
		p.b = p.b[1:]
		if tag <= last || tag > tagLast || !allowed(d.Kind, tag) {
			return fmt.Errorf("field %d does not belong in a record of kind %q after field %d", tag, d.Kind, last)
		}
		last = tag
		d.Fields++
		d.field(p, tag)
		if p.err != nil {
			return p.err
		}
	}
	return nil
}

// allowed reports whether a kind of record has a field.
func allowed(kind Kind, tag byte) bool {
	switch kind {
	case KindInference:
		return tag != tagBorder && tag != tagActor
	case KindContent:
		return tag == tagParent || tag == tagStart || tag >= tagIdentity && tag <= tagBytes || tag >= tagKey && tag <= tagMedia ||
			tag >= tagEnds && tag <= tagReplies || tag == tagToolsMade || tag == tagToolsGiven
	case KindLink:
		return tag >= tagParent && tag <= tagEnd || tag == tagSession || tag == tagBorder || tag == tagFollows || tag == tagActor ||
			tag >= tagToolsMade && tag <= tagPriority
	}
	return false
}

func (d *Decoder) field(p *parser, tag byte) {
	switch tag {
	case tagParent:
		copy(d.Parent[:], p.take(8))
	case tagStart:
		d.Start = int64(p.fixed()) //nolint:gosec // the bit pattern
		d.End = d.Start
	case tagEnd:
		d.End = d.Start + p.signed()
	case tagFailed:
		d.Failed = true
	case tagFirstToken:
		d.FirstToken = mooncake.Some(d.Start + p.signed())
	case tagInputTokens:
		d.InputTokens = mooncake.Some(p.signed())
	case tagOutputTokens:
		d.OutputTokens = mooncake.Some(p.signed())
	case tagCachedTokens:
		d.CachedTokens = mooncake.Some(p.signed())
	case tagIdentity:
		d.Identity = Identity(p.byte())
		if d.Identity == NoIdentity || d.Identity > None {
			p.fail(errors.New("unknown identity"))
		}
	case tagHashIDs:
		d.HashIDs = p.list(&d.ids)
	case tagBlockSize:
		d.BlockSize = p.word()
	case tagDomain:
		d.Domain = Domain(p.word())
	case tagCells:
		d.Chain.Cells = p.list(&d.cells)
	case tagTail:
		d.Chain.Tail = p.fixed()
	case tagBytes:
		d.Chain.Bytes = p.signed()
	case tagSession:
		d.Session = Session(p.fixed())
	case tagModel:
		d.Model = p.name(&d.names[0])
	case tagResponse:
		copy(d.Response[:], p.take(16))
	case tagRun:
		d.Run = p.name(&d.names[1])
	case tagRow:
		d.Row = mooncake.Some(p.signed())
	case tagTimestamp:
		d.Timestamp = mooncake.Some(p.float())
	case tagInputLength:
		d.InputLength = mooncake.Some(p.signed())
	case tagOutputLength:
		d.OutputLength = mooncake.Some(p.signed())
	case tagOffset:
		d.Offset = mooncake.Some(p.float())
	case tagSpread:
		d.Spread = mooncake.Some(p.float())
	case tagLink:
		d.Link = p.span()
	case tagWarmup:
		d.Warmup = true
	case tagSynthetic:
		d.Synthetic = true
	case tagKey:
		d.Key = Domain(p.word())
	case tagPrefix:
		d.Prefix = true
	case tagMedia:
		d.MediaEnd = p.signed()
	case tagCacheWrite:
		d.CacheWriteTokens = mooncake.Some(p.signed())
	case tagExclusive:
		d.Exclusive = true
	case tagOutputEstimate:
		d.OutputEstimate = mooncake.Some(p.signed())
	case tagAnswered:
		if d.Answered = p.name(&d.names[2]); d.Answered.IsZero() {
			d.Answered = d.Model
		}
		if d.Answered.IsZero() {
			p.fail(errors.New("no model answered"))
		}
	case tagJoined:
		d.Joined = p.span()
	case tagProducer:
		d.Producer = p.fixed()
	case tagClock:
		d.Clock = p.fixed()
	case tagRemote:
		d.Remote = true
	case tagBorder:
		d.Border = true
	case tagEnds:
		if p.dictionary != nil {
			d.Chain.Ends = p.packedEnds(&d.ends, &d.values)
		} else {
			d.Chain.Ends = p.ends(&d.ends)
		}
	case tagReply:
		d.Reply = p.end(d.Chain.Bytes)
	case tagHashRanges:
		d.HashRanges = p.hashRanges(&d.ranges)
	case tagFineBlockSize:
		d.FineBlockSize = p.word()
	case tagReplies:
		d.Replies = p.replies(&d.replies)
	case tagFinish:
		d.Finish = p.name(&d.names[3])
	case tagOrder:
		if d.Order = orderOf(p.byte()); d.Order == "" {
			p.fail(errors.New("unknown order of prompts"))
		}
	case tagFollows:
		d.Follows = p.follows()
	case tagActor:
		if d.Acts = Actor(p.byte()); d.Acts == NoActor || d.Acts > Tool {
			p.fail(errors.New("unknown actor"))
		}
	case tagStep:
		d.Step = p.step()
	case tagWaits:
		d.Waits = p.waits()
	case tagToolsMade:
		d.Tools.Made = p.toolIDs()
	case tagToolsGiven:
		d.Tools.Given = p.toolIDs()
	case tagClass:
		d.Class = p.name(&d.names[4])
	case tagPriority:
		d.Priority = mooncake.Some(p.signed())
	case tagTurn:
		d.Step.Turn = p.turn()
	case tagSampled:
		d.Sampled = p.sampled()
	case tagEnding:
		if d.Ending = Ending(p.byte()); d.Ending == NoEnding || d.Ending > Disconnected || !d.Failed || !d.Row.Set {
			p.fail(errors.New("an ending that is unknown, or not that of a replay's row that was not served"))
		}
	}
}

// SetPrompt replaces the prompt of the record by a copy of another record's prompt.
func (d *Decoder) SetPrompt(p *Prompt) {
	d.Prompt = *p
	d.HashIDs = copyTo(&d.ids, p.HashIDs)
	d.Chain.Cells = copyTo(&d.cells, p.Chain.Cells)
	d.Chain.Ends = copyTo(&d.ends, p.Chain.Ends)
	d.HashRanges = copyTo(&d.ranges, p.HashRanges)
	d.Replies = copyTo(&d.replies, p.Replies)
}

// copyTo returns a copy in the given memory, or in new memory; nil for nil.
func copyTo[T any](memory *[]T, v []T) []T {
	if v == nil {
		return nil
	}
	*memory = append(slices.Grow((*memory)[:0], 1), v...)
	return *memory
}

// Record returns a copy of the record, in new memory.
func (d *Decoder) Record() Record {
	var own Decoder
	own.SetPrompt(&d.Prompt)
	switch d.Kind {
	case KindInference:
		r := d.Inference
		r.Prompt = own.Prompt
		return &r
	case KindContent:
		return &Content{d.Span, d.Parent, d.Start, own.Prompt, d.Tools}
	default:
		return &Link{d.Span, d.Parent, d.Session, d.Border, d.Start, d.End, d.Acts, d.Follows, d.Class, d.Priority, d.Tools}
	}
}

// appendPlain appends a record with a prompt, like [AppendRecord].
func (d *Decoder) appendPlain(dst []byte) []byte {
	if d.Kind == KindContent {
		c := Content{d.Span, d.Parent, d.Start, d.Prompt, d.Tools}
		return c.appendTo(dst).b
	}
	return d.Inference.appendTo(dst).b
}

// parser reads values from the front of a record. After the first error it returns zero values.
type parser struct {
	b          []byte
	dictionary *dictionary // of a packed record
	lost       bool        // a value that the dictionary had was lost
	err        error
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
	p.b = nil
}

func (p *parser) take(n int) []byte {
	if len(p.b) < n {
		p.fail(errShort)
		return nil
	}
	v := p.b[:n]
	p.b = p.b[n:]
	return v
}

func (p *parser) byte() byte {
	if v := p.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (p *parser) fixed() uint64 {
	if v := p.take(8); v != nil {
		return binary.LittleEndian.Uint64(v)
	}
	return 0
}

func (p *parser) span() (s mooncake.SpanRef) {
	copy(s.TraceID[:], p.take(16))
	copy(s.SpanID[:], p.take(8))
	return s
}

func (p *parser) float() float64 { return math.Float64frombits(p.fixed()) }

func (p *parser) signed() int64 {
	v, n := binary.Varint(p.b)
	if n <= 0 {
		p.fail(errShort)
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) word() uint32 {
	v := p.signed()
	if v < 0 || v > math.MaxUint32 {
		p.fail(errors.New("number has more than 32 bits"))
		return 0
	}
	return uint32(v)
}

func (p *parser) size() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.fail(errShort)
		return 0
	}
	p.b = p.b[n:]
	return v
}

// name returns a name; if it has the same bytes as the last one, it returns that.
func (p *parser) name(last *Name) Name {
	n := p.size()
	if n > MaxName {
		p.fail(errors.New("name is too long"))
		return Name{}
	}
	b := p.take(int(n))
	if string(b) == last.s {
		return *last
	}
	name, err := ParseName(string(b))
	if err != nil {
		p.fail(err)
		return Name{}
	}
	*last = name
	return name
}

// length reads the length of a list of at most this many members.
func (p *parser) length(most uint64) int {
	n := p.size()
	if n > most || n > uint64(len(p.b)) { // a member takes a byte or more
		p.fail(errors.New("list is too long"))
		return 0
	}
	return int(n) //nolint:gosec // just checked
}

// count returns a number of 0 or more.
func (p *parser) count() int64 {
	n := p.size()
	if n > math.MaxInt64 {
		p.fail(errors.New("number has more than 63 bits"))
		return 0
	}
	return int64(n)
}

// place reads the end of a message after a position, without its value. An end at that position itself, or one that is impossible, is an
// error.
func (p *parser) place(from int64) blockhash.End {
	n := p.size()
	e := blockhash.End{Role: blockhash.Role(n & (1<<roleBits - 1))}
	n >>= roleBits
	if from < 0 || from > blockhash.MaxEndBytes || n == 0 || n > uint64(blockhash.MaxEndBytes-from) || e.Role > blockhash.RoleTools {
		p.fail(errors.New("end of a message is invalid"))
		return blockhash.End{}
	}
	e.Bytes = from + int64(n)
	return e
}

func (p *parser) end(from int64) blockhash.End {
	e := p.place(from)
	e.Value = p.fixed()
	return e
}

func (p *parser) ends(memory *[]blockhash.End) []blockhash.End {
	v := (*memory)[:0]
	from := int64(0)
	for range p.length(blockhash.MaxEnds) {
		e := p.end(from)
		v, from = append(v, e), e.Bytes
	}
	*memory = v
	return v
}

// MaxFollows is the maximum number of spans that one span follows.
const MaxFollows = 64

func (p *parser) follows() (spans []SpanID) {
	n := int(p.byte())
	if n == 0 || n > MaxFollows {
		p.fail(errors.New("number of links is invalid"))
		return nil
	}
	for range n {
		if b := p.take(8); b != nil {
			spans = append(spans, SpanID(b))
		}
	}
	return spans
}

// MaxToolIDs is the maximum number of ids in each list of [ToolIDs].
const MaxToolIDs = 64

func (p *parser) toolIDs() (ids []uint64) {
	n := int(p.byte())
	if n == 0 || n > MaxToolIDs {
		p.fail(errors.New("number of tool calls is invalid"))
		return nil
	}
	for range n {
		ids = append(ids, p.fixed())
	}
	return ids
}

func (p *parser) sampled() (s Sampled) {
	n := p.size()
	if n>>1 == 0 || n>>1 > MaxPerMillion {
		p.fail(errors.New("rate of a sample is invalid"))
		return s
	}
	s.PerMillion, s.ByPrefix = uint32(n>>1), n&1 != 0
	if b := p.take(4); b != nil {
		s.List = Domain(binary.LittleEndian.Uint32(b))
	}
	return s
}

func (p *parser) step() Step {
	s := Step{ID: p.fixed()}
	for range p.length(mooncake.MaxWaitFor) {
		s.WaitFor = append(s.WaitFor, Edge{p.fixed(), mooncake.Evidence(p.byte())})
	}
	s.Delay, s.ToolWait = p.signed(), p.signed()
	if s.Endless = s.ToolWait < 0; s.Endless {
		s.ToolWait = ^s.ToolWait
	}
	if s.ID == 0 {
		p.fail(errors.New("step has no id"))
	}
	return s
}

func (p *parser) turn() Turn {
	t := Turn{ID: p.fixed(), Begin: p.signed(), End: p.signed(), From: p.signed(), To: p.signed()}
	flags := p.byte()
	if t.Acts, t.Waited = flags&1 != 0, flags&2 != 0; flags > 3 || t == (Turn{}) {
		p.fail(errors.New("unknown turn"))
	}
	return t
}

func (p *parser) hashRanges(memory *[]mooncake.HashRange) []mooncake.HashRange {
	v := slices.Grow((*memory)[:0], 1) // an empty list is not an absent one
	next := uint64(0)
	for range p.length(MaxRanges) {
		r := mooncake.HashRange{First: next + uint64(p.signed()), Count: p.count()} //nolint:gosec // modulo 2^64
		next = r.First + uint64(r.Count)                                            //nolint:gosec // modulo 2^64
		v = append(v, r)
	}
	*memory = v
	return v
}

func (p *parser) replies(memory *[]mooncake.Reply) []mooncake.Reply {
	v := slices.Grow((*memory)[:0], 1) // an empty list is not an absent one
	for range p.length(MaxReplies) {
		v = append(v, mooncake.Reply{Back: p.count(), At: p.count(), Tokens: p.count()})
	}
	*memory = v
	return v
}

// list reads values into the given memory, or new memory. An empty list is not nil, because it is not an absent one.
func (p *parser) list(memory *[]uint64) []uint64 {
	if p.dictionary != nil {
		return p.packed(memory)
	}
	n, width := p.size(), int(p.byte())
	// A value takes at least a byte unless all are zero; then MaxRecord is the limit.
	if width > 8 || n > MaxRecord || n*uint64(max(width, 1)) > MaxRecord {
		p.fail(errors.New("list is too long"))
		return nil
	}
	b := p.take(int(n) * width)
	if p.err != nil {
		return nil
	}
	if *memory == nil || uint64(cap(*memory)) < n {
		*memory = make([]uint64, 0, max(n, 16))
	}
	v := (*memory)[:n]
	readValues(v, b, width)
	return v
}
