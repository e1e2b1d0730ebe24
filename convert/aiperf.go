// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// aiperf reads the prompts that AIPerf sends: a line is a turn (single_turn) or has the turns of a session (multi_turn). Each turn has only
// new messages; the replies between turns are not in the file.
var aiperf = spec{
	Format: "aiperf", about: "AIPerf's single_turn and multi_turn: texts to send; needs --prompts keep", text: true, verbatim: true, delta: true,
	decode: func(d *decoder, r *record) {
		if !r.has("turns") {
			aiperfTurn(d, r, r.name("session_id"), nil, true)
			return
		}
		session, first := r.name("session_id"), true
		var before []map[string]string // messages; nil unless there is a system message before all turns
		r.objects(func(t *record) {
			if system := aiperfSystem(t); system != "" && first && before == nil {
				before = []map[string]string{{"role": "system", "content": system}}
				return
			}
			aiperfTurn(d, t, session, before, first)
			before, first = before[:0], false
		}, "turns")
		if first && before != nil {
			d.skip("no text")
		}
	},
}

// aiperfSystem returns the text of t if t is not a request, but the system message before all turns of its session; "" otherwise.
func aiperfSystem(t *record) string {
	if t.name("role") != "system" || t.has("timestamp", "delay", "output_length", "extra", "image", "images", "audio", "audios", "video", "videos") {
		return ""
	}
	return strings.Join(t.texts("text", "texts"), "\n")
}

// aiperfTurn reads a turn. The first turn of a session arrives at its timestamp, or, without one, at once. before has the messages that come
// before the turn's text; if it is nil, the turn is a text instead of messages.
func aiperfTurn(d *decoder, t *record, session string, before []map[string]string, first bool) {
	t.known("type", "role") // they say nothing about the text that a row could keep
	row := &mooncake.Row{SessionID: session, OutputLength: t.count("output_length"), Delay: t.millis(time.Millisecond, "delay"), Model: t.name("model")}
	row.Extra = t.raw("extra")
	texts := t.texts("text", "texts")
	if len(texts) == 0 {
		d.skip("no text")
		return
	}
	text := strings.Join(texts, "\n")
	if before == nil {
		row.TextInput = mooncake.Some(text)
	} else {
		row.Messages, _ = json.Marshal(append(before, map[string]string{"role": "user", "content": text}))
		row.MessageMode = "delta"
	}
	q := &request{row: row, prompt: new(prompt), later: !t.has("timestamp"), at: d.last}
	if !q.later {
		q.at = t.at(time.Millisecond, "timestamp")
	} else if first {
		row.Delay = mooncake.Opt[float64]{}
	}
	d.last = q.at
	d.add(q)
}

// payloads reads request bodies, which are sent unchanged. AIPerf's raw_payload has one on each line, its inputs.json those of all
// sessions; with [Options.FileSessions], each file of a folder is a session. There are no times, so the bodies are sent one after the other.
var payloads = spec{
	Format: Payloads, about: "bodies of requests: AIPerf's raw_payload and inputs.json; needs --prompts keep", text: true, verbatim: true, models: true,
	decode: func(d *decoder, r *record) {
		body := func(b *record, session string) {
			whole := b.whole()
			if whole == nil {
				return
			}
			b.discard()
			d.add(&request{row: &mooncake.Row{SessionID: session, Model: b.name("model")}, prompt: &prompt{body: whole}, later: true, at: d.last})
		}
		if !r.has("data") {
			body(r, d.session)
			return
		}
		r.objects(func(s *record) {
			session := s.name("session_id")
			s.objects(func(b *record) { body(b, session) }, "payloads")
		}, "data")
	},
}
