// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// Target is the name of an output format, which another tool reads.
type Target string

// target describes an output format.
type target struct {
	Target
	about  string   // the tool's command line for such a file; {block} is the block size
	fields []string // the fields of a row that the tool reads; the others are counted as lost
	deltas []string // further fields that it reads if the rows of a session contain only what is new
	timed  bool     // each row needs a timestamp, counted in ms
	ids    bool     // each row needs ids for its whole prompt: the tool makes the prompt from them
	header string   // the first line of a table
	// latencies: each row needs the time to its first token, and the duration of a longer reply.
	latencies bool
	unit      string // of timestamps in the file, if they are not dates
	whole     bool   // only full blocks have ids
	local     bool   // equal ids in two conversations do not mean equal blocks
	reply     int64  // minimum length of a reply, in tokens; shorter replies are written with it
	// line appends a row, which has the needed fields, and only fields that the tool reads.
	line func(e *encoder, dst []byte, row *mooncake.Row) []byte
	// sessions replaces line in formats that write the rows of a session together.
	sessions *sessionFormat
}

// fresh is the first id for a block that has no id in the trace. It is above the ids of traces, and below 2^63.
const fresh = 1 << 62

var targets = []target{
	{
		Target: "aiperf", about: "aiperf profile --custom-dataset-type mooncake_trace --fixed-schedule --isl-block-size {block}", timed: true,
		// The rows of an AIPerf session contain only what is new. Of whole prompts, it would send the earlier turns again.
		deltas: []string{"session_id", "delay"},
		fields: []string{"timestamp", "input_length", "output_length", "hash_ids", "text_input", "messages", "tools", "message_mode", "payload", "extra"},
		line:   func(_ *encoder, dst []byte, row *mooncake.Row) []byte { return mooncake.AppendRow(dst, row) },
	},
	{
		Target: "vllm", about: "vllm bench serve --dataset-name timed_trace --self-timed --timed-trace-chunk-hash-size {block}", timed: true, ids: true,
		fields: []string{"timestamp", "input_length", "output_length", "hash_ids"}, unit: "s", reply: 1, line: timedLine,
	},
	{
		Target: "guidellm", about: "guidellm run --profile kind=replay --data kind=mooncake,hash_id_block_size={block} (append ,source.kind=json_file,source.path=FILE to it)",
		timed: true, ids: true, fields: []string{"timestamp", "input_length", "output_length", "hash_ids"}, unit: "s", reply: 1, line: timedLine,
	},
	{
		Target: "vllm-vcr", about: "vllm-vcr, which repeats the latencies of an engine; needs observed.ttft_ms, and duration_ms for replies of several tokens",
		timed: true, latencies: true, whole: true,
		fields: []string{"timestamp", "input_length", "output_length", "hash_ids", "observed", "model"}, line: vcrLine,
	},
	{
		Target: "blis", about: "the CSV of BLIS (inference-sim) TraceV2; BLIS also needs a header file, which you write: trace_version: 2, time_unit: microseconds, mode: real",
		timed: true, fields: []string{"timestamp", "input_length", "output_length", "session_id", "request_id", "model", "class", "priority", "observed"}, line: blisLine,
		header: "request_id,client_id,tenant_id,slo_class,vllm_priority,session_id,round_index,prefix_group,prefix_length,streaming,input_tokens,output_tokens," +
			"text_tokens,image_tokens,audio_tokens,video_tokens,reason_ratio,model,deadline_us,server_input_tokens,arrival_time_us,send_time_us," +
			"first_chunk_time_us,last_chunk_time_us,num_chunks,status,error_message,finish_reason,x_request_id",
	},
	{
		Target: "dynamo", about: "Dynamo's mooncake rows; --trace-block-size {block}",
		fields: []string{"timestamp", "delay", "input_length", "output_length", "hash_ids", "session_id", "request_id", "class", "priority", "wait_for", "branches", "tool_wait_ms"},
		line: func(_ *encoder, dst []byte, row *mooncake.Row) []byte {
			return mooncake.AppendRow(dst, policyClass(row))
		},
	},
	{
		Target: "dynamo-agentic", about: "Dynamo's agentic mooncake rows; --trace-block-size {block}",
		fields: []string{
			"timestamp", "delay", "input_length", "output_length", "hash_ids", "session_id", "request_id", "class", "priority", "strict_priority",
			"routing_constraints", "output_token_ids", "request_kind", "wait_for", "branches", "prefix_reset", "tool_wait_ms", "tool_events",
		},
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			if row.RequestID == "" { // each row of that format has an id
				row.RequestID = "row-" + strconv.FormatInt(e.rows, 10)
			}
			// In that format, turns of a session do not wait for each other. So a turn that has only a delay names the turn before.
			if before := e.before[row.SessionID]; row.WaitFor == nil && before != "" && row.Delay.Set && !row.Timestamp.Set {
				row.WaitFor = []string{before}
			}
			if row.SessionID != "" {
				if e.before == nil {
					e.before = map[string]string{}
				}
				e.before[row.SessionID] = row.RequestID
			}
			return mooncake.AppendRow(dst, policyClass(row))
		},
	},
	{
		Target: "kvcache-simulator", about: "kvcache-simulator's JSON lines", ids: true, fields: []string{"input_length", "hash_ids"},
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			return appendJSON(dst, struct {
				Block int      `json:"block_size"`
				IDs   []uint64 `json:"hash_ids"`
				Input int64    `json:"input_length"`
			}{e.block(), row.HashIDs, row.InputLength.V})
		},
	},
	{
		Target: "vidur", about: "Vidur's CSV, with the columns of its forks for sessions and block ids", timed: true,
		fields: []string{"timestamp", "input_length", "output_length", "hash_ids", "session_id", "request_id"},
		header: "arrived_at,num_prefill_tokens,num_decode_tokens,session_id,block_hash_ids,block_size,request_id",
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			ids, block := "", ""
			if row.HashIDs != nil {
				ids, block = string(appendJSON(nil, row.HashIDs)), strconv.Itoa(e.block())
			}
			return appendCells(dst, string(inSeconds(row.Timestamp.V)), strconv.FormatInt(row.InputLength.V, 10), strconv.FormatInt(row.OutputLength.V, 10),
				row.SessionID, ids, block, row.RequestID)
		},
	},
	{
		Target: "bailian", about: "rows of Bailian's traces (Qwen), whose blocks have 16 tokens; aiperf profile --custom-dataset-type bailian_trace --fixed-schedule --isl-block-size {block}", timed: true,
		fields: []string{"timestamp", "input_length", "output_length", "hash_ids", "session_id"},
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			turn, parent := e.turn(row.SessionID)
			return appendJSON(dst, struct {
				Chat      int64       `json:"chat_id"`
				Parent    int64       `json:"parent_chat_id"`
				Timestamp json.Number `json:"timestamp"`
				Input     int64       `json:"input_length"`
				Output    int64       `json:"output_length"`
				Type      string      `json:"type"`
				Turn      int64       `json:"turn"`
				IDs       []uint64    `json:"hash_ids"`
			}{e.rows, parent, inSeconds(row.Timestamp.V), row.InputLength.V, row.OutputLength.V, "text", turn, row.HashIDs})
		},
	},
	{
		Target: "azure", about: "the CSV of the Azure LLM inference traces, which inference-perf, vLLM and simulators read", timed: true,
		fields: []string{"timestamp", "input_length", "output_length"}, header: "TIMESTAMP,ContextTokens,GeneratedTokens",
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			at := e.instant(row).Round(100 * time.Nanosecond)
			return appendCells(dst, at.Format("2006-01-02 15:04:05.0000000"), strconv.FormatInt(row.InputLength.V, 10), strconv.FormatInt(row.OutputLength.V, 10))
		},
	},
	{
		Target: "burstgpt", about: "the CSV of BurstGPT; aiperf profile --custom-dataset-type burst_gpt_trace --fixed-schedule", timed: true,
		fields: []string{"timestamp", "input_length", "output_length", "session_id", "model", "observed"},
		header: "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type", line: burstLine,
	},
	{
		Target: "lmcache", about: "LMCache's log of lookups, for its cache simulator; ids of whole blocks of {block} tokens", timed: true, whole: true,
		fields: []string{"timestamp", "input_length", "hash_ids", "request_id", "model"}, line: lookupLine,
	},
	{
		Target: "splitwise", about: "the CSV of splitwise-sim", timed: true, fields: []string{"timestamp", "input_length", "output_length"},
		header: "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
		line: func(e *encoder, dst []byte, row *mooncake.Row) []byte {
			return appendCells(dst, strconv.FormatInt(e.rows-1, 10), "2", "0", string(inSeconds(row.Timestamp.V)), "1",
				strconv.FormatInt(row.InputLength.V, 10), strconv.FormatInt(row.OutputLength.V, 10))
		},
	},
	{
		Target: "satf", about: "SATF 2.0 of Dynamo: sessions of requests and tool calls; blocks of {block} tokens",
		fields: []string{
			"timestamp", "delay", "tool_wait_ms", "input_length", "output_length", "hash_ids", "session_id", "request_id", "wait_for", "model", "observed",
		},
		sessions: &satfSessions,
	},
	{
		Target: "weka", about: "Weka's coding-agent traces, a conversation on each line; AIPerf wants a file for each: split -l 1 --additional-suffix=.json FILE FOLDER/", timed: true, whole: true, local: true,
		fields:   []string{"timestamp", "delay", "input_length", "output_length", "hash_ids", "session_id", "model", "observed"},
		sessions: &wekaSessions,
	},
}

// instant returns the arrival time of a row, for formats with dates. If the sidecar has no start time, timestamps count from 2024-01-01.
func (e *encoder) instant(row *mooncake.Row) time.Time {
	base := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	switch m := e.opt.Meta; {
	case m != nil && !m.TimeBase.IsZero():
		base = m.TimeBase
	case e.rows == 1:
		e.lost.add("values", "date: it is not known, so timestamp 0 is 2024-01-01", 1)
	}
	return base.Add(mooncake.Duration(row.Timestamp.V)).UTC()
}

// burstLine appends the columns of BurstGPT 1.2.
func burstLine(_ *encoder, dst []byte, row *mooncake.Row) []byte {
	elapsed, kind := "", "API log"
	if row.Observed.Duration.Set {
		elapsed = string(inSeconds(row.Observed.Duration.V))
	}
	if row.SessionID != "" {
		kind = "Conversation log"
	}
	in, out := row.InputLength.V, row.OutputLength.V
	return appendCells(dst, string(inSeconds(row.Timestamp.V)), row.SessionID, elapsed, row.Model,
		strconv.FormatInt(in, 10), strconv.FormatInt(out, 10), strconv.FormatInt(in+out, 10), kind)
}

// lookupLine appends the fields that LMCache logs for a lookup, except for the shapes of the cache, which are not known.
func lookupLine(e *encoder, dst []byte, row *mooncake.Row) []byte {
	hashes := []string{}
	for _, id := range row.HashIDs {
		hashes = append(hashes, fmt.Sprintf("%016x", id))
	}
	return appendJSON(dst, struct {
		Timestamp json.Number `json:"timestamp"`
		Request   string      `json:"request_id"`
		Model     string      `json:"model_name"`
		Chunk     int         `json:"chunk_size"`
		Tokens    int64       `json:"seq_len"`
		Types     []string    `json:"dtypes"`
		Shapes    [][]int     `json:"shapes"`
		Hashes    []string    `json:"chunk_hashes"`
	}{secondsOf(e.instant(row).UnixNano()), cmp.Or(row.RequestID, "row-"+strconv.FormatInt(e.rows, 10)), row.Model, e.block(), row.InputLength.V, []string{}, [][]int{}, hashes})
}

// policyClass gives the class of a row the name that it has in Dynamo. The other fields have the same names in Dynamo as in a row.
func policyClass(row *mooncake.Row) *mooncake.Row {
	if row.Class != "" {
		if row.Foreign == nil {
			row.Foreign = map[string]json.RawMessage{}
		}
		row.Foreign["policy_class"], row.Class = appendJSON(nil, row.Class), ""
	}
	return row
}

// vcrLine appends a request and how the engine served it. The first line of the file describes the engine.
func vcrLine(e *encoder, dst []byte, row *mooncake.Row) []byte {
	if e.rows == 1 {
		dst = append(appendJSON(dst, map[string]any{"meta": map[string]any{"model": row.Model, "source": "moonloop", "block_size": e.block()}}), '\n')
	}
	type summary struct {
		Mean  float64 `json:"mean_ms"`
		Count int64   `json:"count"`
	}
	line := struct {
		Input   int64    `json:"prompt_tokens"`
		Cached  int64    `json:"cached_tokens"`
		Output  int64    `json:"output_tokens"`
		TTFT    float64  `json:"ttft_ms"`
		ITL     *summary `json:"itl_summary,omitempty"`
		Arrival float64  `json:"arrival_ms"`
		Hashes  []uint64 `json:"block_hashes,omitempty"`
		Reason  string   `json:"finish_reason,omitempty"`
	}{
		row.InputLength.V, row.Observed.CachedTokens.V, row.OutputLength.V, row.Observed.TTFT.V, nil, row.Timestamp.V, row.HashIDs, row.Observed.FinishReason,
	}
	if n := row.OutputLength.V - 1; n > 0 {
		line.ITL = &summary{max(0, row.Observed.Duration.V-row.Observed.TTFT.V) / float64(n), n}
	}
	return appendJSON(dst, line)
}

// blisLine appends the columns of a TraceV2. Times that were not measured, and values that the row does not have, are 0.
func blisLine(e *encoder, dst []byte, row *mooncake.Row) []byte {
	micros := func(ms float64) string { return strconv.FormatInt(int64(math.Round(ms*1e3)), 10) }
	turn, _ := e.turn(row.SessionID)
	input, output, o := strconv.FormatInt(row.InputLength.V, 10), strconv.FormatInt(row.OutputLength.V, 10), row.Observed
	sent, first, last, chunks := "0", "0", "0", "0"
	if o.TTFT.Set || o.Duration.Set {
		sent = micros(row.Timestamp.V)
	}
	if o.TTFT.Set {
		first = micros(row.Timestamp.V + o.TTFT.V)
	}
	if o.Duration.Set {
		last, chunks = micros(row.Timestamp.V+o.Duration.V), output
	}
	priority := max(row.Priority.V, 0) // the format has only priorities from 0, and 0 also means none
	if row.Priority.V < 0 {
		e.lost.add("values", "priority: blis has none below 0", 1)
	}
	return appendCells(dst, strconv.FormatInt(e.rows-1, 10), "", "", row.Class, strconv.FormatInt(priority, 10), row.SessionID, strconv.FormatInt(turn-1, 10), "", "0", "true", input, output,
		input, "0", "0", "0", "0", row.Model, "0", "0", micros(row.Timestamp.V), sent, first, last, chunks, "ok", "", o.FinishReason, row.RequestID)
}

// timedLine appends Mooncake's four fields, with the time in seconds.
func timedLine(_ *encoder, dst []byte, row *mooncake.Row) []byte {
	return appendJSON(dst, struct {
		Timestamp json.Number `json:"timestamp"`
		Input     int64       `json:"input_length"`
		Output    int64       `json:"output_length"`
		IDs       []uint64    `json:"hash_ids"`
	}{inSeconds(row.Timestamp.V), row.InputLength.V, row.OutputLength.V, row.HashIDs})
}

// Targets returns the names of all targets, in alphabetical order.
func Targets() (names []Target) {
	for _, t := range targets {
		names = append(names, t.Target)
	}
	slices.Sort(names)
	return names
}

// About names, in one line, the tool that reads the target, and its flags. It is empty for a name that is none of [Targets].
func (t Target) About() string {
	if to := t.target(); to != nil {
		return strings.ReplaceAll(to.about, "{block}", "B")
	}
	return ""
}

// Groups reports whether the format needs the rows of a session together. If so, rows are collected in a temporary file first.
func (t Target) Groups() bool {
	to := t.target()
	return to != nil && to.sessions != nil
}

func (t Target) target() *target {
	if i := slices.IndexFunc(targets, func(o target) bool { return o.Target == t }); i >= 0 {
		return &targets[i]
	}
	return nil
}

// encoder writes the rows of one trace in the format of a target.
type encoder struct {
	*target
	opt   *Options // its block size is known before the first row
	rows  int64
	made  uint64 // number of ids that fill has made
	lost  losses
	chats map[string][2]int64 // by session: its last row, and that row's turn
	// before has the request id of the last row of each session.
	before map[string]string
	groups *groups            // rows of sessions, if the format needs them together
	digest *mooncake.Digester // nil before the first row, see digester
	// For local ids: their numbers by conversation, and the first conversation with each id.
	scoped map[scopedID]uint64
	owners map[uint64]string
}

type scopedID struct {
	conversation string
	id           uint64
}

// digester returns the digester of the written rows. It is made for the first one, because the block size is not known before.
func (e *encoder) digester() *mooncake.Digester {
	if e.digest == nil {
		e.digest = mooncake.NewDigester(mooncake.CheckOptions{BlockSize: e.block()})
	}
	return e.digest
}

func (e *encoder) block() int {
	if e.opt.Compile.BlockSize > 0 {
		return e.opt.Compile.BlockSize
	}
	return mooncake.BlockSize
}

// keeps reports whether the target has a field of the row.
func (e *encoder) keeps(field string) bool {
	s, meta := e.opt.Format.spec(), e.opt.Meta
	delta := s != nil && s.delta || meta != nil && meta.SessionMode == mooncake.SessionDelta
	return slices.Contains(e.fields, field) || delta && slices.Contains(e.deltas, field)
}

// append writes a row. It returns the fields of the row that were written.
func (e *encoder) append(dst []byte, row *mooncake.Row) ([]byte, *mooncake.Row, error) {
	e.rows++
	no := func(what, advice string) ([]byte, *mooncake.Row, error) {
		return nil, nil, fmt.Errorf("row %d cannot be written for %s: %s; %s", e.rows, e.Target, what, advice)
	}
	r := *row
	for _, f := range rowFields {
		if f.has(&r) && !e.keeps(f.name) {
			e.lost.add("values", f.name+": "+string(e.Target)+" has no place for it", 1)
			f.drop(&r)
		}
	}
	r.Foreign = maps.Clone(r.Foreign)
	maps.DeleteFunc(r.Foreign, func(name string, _ json.RawMessage) bool {
		gone := !e.keeps(name)
		if gone {
			e.lost.add("values", name+": "+string(e.Target)+" has no place for it", 1)
		}
		return gone
	})
	switch {
	case e.timed && !r.Timestamp.Set && (r.SessionID == "" || len(e.deltas) == 0):
		return no("it has no timestamp", "rows with a delay after the turn before have none; convert to dynamo instead")
	case e.latencies && (!r.Observed.TTFT.Set || r.OutputLength.V > 1 && !r.Observed.Duration.Set):
		return no("it has no latencies", "requests.jsonl of a replay has them, and so has telemetry of production")
	case r.Kind() == mooncake.KindLength && !r.InputLength.Set: // the text was dropped
		return no("its prompt is a text", "convert to aiperf, or without --prompts keep")
	}
	if e.ids {
		if blocks := mooncake.BlockCount(r.InputLength.V, e.block()); blocks-len(r.HashIDs) > maxFresh {
			return no(fmt.Sprintf("its prompt has %d blocks, of which %d have ids, and ids are made for %d at most", blocks, len(r.HashIDs), maxFresh), "correct the row")
		}
		e.fill(&r)
	}
	if n := int(r.InputLength.V / int64(e.block())); e.whole && len(r.HashIDs) > n {
		r.HashIDs = r.HashIDs[:n]
	}
	r.OutputLength.V = max(r.OutputLength.V, e.reply)
	if e.header != "" && e.rows == 1 {
		dst = append(append(dst, e.header...), '\n')
	}
	if e.sessions != nil {
		key := e.sessions.key(&r)
		e.digester().Add(e.apart(key, &r), e.rows)
		return dst, &r, e.groups.add(key, &r)
	}
	dst = e.line(e, dst, &r)
	e.digester().Add(&r, e.rows)
	return dst, &r, nil
}

// apart returns the row with ids that count within its conversation, if the format has such ids.
func (e *encoder) apart(conversation string, r *mooncake.Row) *mooncake.Row {
	if !e.local || r.HashIDs == nil {
		return r
	}
	if e.scoped == nil {
		e.scoped, e.owners = map[scopedID]uint64{}, map[uint64]string{}
	}
	conversation = cmp.Or(conversation, "\x00"+strconv.FormatInt(e.rows, 10)) // a conversation of one row
	out, shared := *r, false
	out.HashIDs = make([]uint64, len(r.HashIDs))
	for i, id := range r.HashIDs {
		key := scopedID{conversation, id}
		n, known := e.scoped[key]
		if !known {
			n = uint64(len(e.scoped))
			e.scoped[key] = n
		}
		owner, had := e.owners[id]
		if !had {
			e.owners[id] = conversation
		}
		shared = shared || had && owner != conversation
		out.HashIDs[i] = n
	}
	if shared {
		e.lost.add("prompts", "what they share with other conversations: "+string(e.Target)+" describes it only within one", 1)
	}
	return &out
}

// fill appends unique ids for the blocks at the end of a prompt that have none.
func (e *encoder) fill(r *mooncake.Row) {
	want := mooncake.BlockCount(r.InputLength.V, e.block())
	ids := slices.Clone(r.Blocks(e.block()))
	if len(ids) < want {
		e.lost.add("prompts", "their ends are not known, and have ids of their own", 1)
	}
	for len(ids) < want {
		ids = append(ids, fresh+e.made)
		e.made++
	}
	r.HashIDs = ids
}

// turn returns the number of a row's turn in its session, from 1, and the number of the session's previous row, or -1.
func (e *encoder) turn(session string) (turn, parent int64) {
	last, known := e.chats[session]
	if !known {
		last = [2]int64{-1, 0}
	}
	if session != "" {
		if e.chats == nil {
			e.chats = map[string][2]int64{}
		}
		e.chats[session] = [2]int64{e.rows, last[1] + 1}
	}
	return last[1] + 1, last[0]
}

// rowFields are the fields of a row that some tools do not have.
var rowFields = []struct {
	name string
	has  func(*mooncake.Row) bool
	drop func(*mooncake.Row)
}{
	{"timestamp", func(r *mooncake.Row) bool { return r.Timestamp.Set }, func(r *mooncake.Row) { r.Timestamp = mooncake.Opt[float64]{} }},
	{"delay", func(r *mooncake.Row) bool { return r.Delay.Set }, func(r *mooncake.Row) { r.Delay = mooncake.Opt[float64]{} }},
	{"output_length", func(r *mooncake.Row) bool { return r.OutputLength.Set }, func(r *mooncake.Row) { r.OutputLength = mooncake.Opt[int64]{} }},
	{"hash_ids", func(r *mooncake.Row) bool { return r.HashIDs != nil }, func(r *mooncake.Row) { r.HashIDs = nil }},
	{"hash_ranges", func(r *mooncake.Row) bool { return r.HashRanges != nil }, func(r *mooncake.Row) { r.HashRanges = nil }},
	{"replies", func(r *mooncake.Row) bool { return len(r.Replies) > 0 }, func(r *mooncake.Row) { r.Replies = nil }},
	{"images", func(r *mooncake.Row) bool { return r.Images != nil }, func(r *mooncake.Row) { r.Images = nil }},
	{"text_input", func(r *mooncake.Row) bool { return r.TextInput.Set }, func(r *mooncake.Row) { r.TextInput = mooncake.Opt[string]{} }},
	{"messages", func(r *mooncake.Row) bool { return r.Messages != nil }, func(r *mooncake.Row) { r.Messages = nil }},
	{"tools", func(r *mooncake.Row) bool { return r.Tools != nil }, func(r *mooncake.Row) { r.Tools = nil }},
	{"message_mode", func(r *mooncake.Row) bool { return r.MessageMode != "" }, func(r *mooncake.Row) { r.MessageMode = "" }},
	{"payload", func(r *mooncake.Row) bool { return r.Payload != nil }, func(r *mooncake.Row) { r.Payload = nil }},
	{"extra", func(r *mooncake.Row) bool { return r.Extra != nil }, func(r *mooncake.Row) { r.Extra = nil }},
	{"wait_for", func(r *mooncake.Row) bool { return r.WaitFor != nil }, func(r *mooncake.Row) { r.WaitFor, r.Evidence = nil, nil }},
	{"wait_evidence", func(r *mooncake.Row) bool { return r.Evidence != nil }, func(r *mooncake.Row) { r.Evidence = nil }},
	{"tool_wait_ms", func(r *mooncake.Row) bool { return r.ToolWait.Set }, func(r *mooncake.Row) { r.ToolWait = mooncake.Opt[float64]{} }},
	{"session_id", func(r *mooncake.Row) bool { return r.SessionID != "" }, func(r *mooncake.Row) { r.SessionID = "" }},
	{"request_id", func(r *mooncake.Row) bool { return r.RequestID != "" }, func(r *mooncake.Row) { r.RequestID = "" }},
	{"model", func(r *mooncake.Row) bool { return r.Model != "" }, func(r *mooncake.Row) { r.Model = "" }},
	{"class", func(r *mooncake.Row) bool { return r.Class != "" }, func(r *mooncake.Row) { r.Class = "" }},
	{"priority", func(r *mooncake.Row) bool { return r.Priority.Set }, func(r *mooncake.Row) { r.Priority = mooncake.Opt[int64]{} }},
	{"otel", func(r *mooncake.Row) bool { return !r.OTel.IsZero() }, func(r *mooncake.Row) { r.OTel = mooncake.SpanRef{} }},
	{"observed", func(r *mooncake.Row) bool { return !r.Observed.IsZero() }, func(r *mooncake.Row) { r.Observed = mooncake.Observed{} }},
}

// encoded is a trace in the format of another tool.
type encoded struct {
	capture.TraceWriter
	*encoder
}

// encoding makes a sink write the target's format. The sink must embed a [mooncake.Writer].
func (o *Options) encoding(sink capture.Sink) capture.Sink {
	return func(p capture.Partition) (capture.TraceWriter, error) {
		w, err := sink(p)
		if err != nil {
			return nil, err
		}
		e := &encoder{target: o.To.target(), opt: o}
		other := w.(othersWriter) //nolint:forcetypeassert // every writer of a file is one
		if e.sessions != nil {
			if e.groups, err = newGroups(o.Compile.TempDir); err != nil {
				return nil, errors.Join(err, w.Close())
			}
			other.EncodeWith(e.append, e.end)
		} else {
			other.EncodeWith(e.append, nil)
		}
		return encoded{w, e}, nil
	}
}

// othersWriter is a [mooncake.Writer], as files embed it.
type othersWriter interface {
	EncodeWith(encode mooncake.Encode, end func(io.Writer) error)
	End() error
}

// Commit writes the end of the file, and completes the sidecar. The sidecar describes the rows as they were written, and counts the
// fields that the format does not have.
func (w encoded) Commit(meta *mooncake.Meta) error {
	if err := w.TraceWriter.(othersWriter).End(); err != nil { //nolint:forcetypeassert // encoding made sure of it
		return err
	}
	meta.Dropped = slices.Concat(meta.Dropped, w.lost.list())
	meta.FineBlockSize, meta.Digests, meta.Trunk = 0, w.digester().Digests(), w.digester().Trunk()
	meta.TimeUnit = cmp.Or(w.unit, meta.TimeUnit)
	meta.Transformations = append(slices.Clone(meta.Transformations), mooncake.Transformation{
		Name: "write", Parameters: map[string]any{"to": w.Target, "block_size": w.block()},
		Effect: "The file is for: " + strings.ReplaceAll(w.about, "{block}", strconv.Itoa(w.block())) + ".",
	})
	return w.TraceWriter.Commit(meta)
}

// Close removes temporary files, and a file that is not complete.
func (w encoded) Close() error {
	w.groups.close()
	return w.TraceWriter.Close()
}

// inSeconds converts milliseconds to seconds, rounded to the nanosecond.
func inSeconds(ms float64) json.Number { return secondsOf(int64(math.Round(ms * 1e6))) }

func secondsOf(ns int64) json.Number {
	s := fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9)
	return json.Number(strings.TrimSuffix(strings.TrimRight(s, "0"), "."))
}

func appendJSON(dst []byte, v any) []byte {
	b, _ := json.Marshal(v) // cannot fail: v has only numbers and texts
	return append(dst, b...)
}

// appendCells appends a line of a table.
func appendCells(dst []byte, cells ...string) []byte {
	for i, cell := range cells {
		if i > 0 {
			dst = append(dst, ',')
		}
		if strings.ContainsAny(cell, "\",\r\n") {
			cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
		}
		dst = append(dst, cell...)
	}
	return dst
}
