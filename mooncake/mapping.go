// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file reads the fields of a row from other keys than their names.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Mapping maps the name of a field to the key from which it is read. A mapped field is read from that key alone. A key with dots is either
// a key that contains dots, or the path to a key within objects.
type Mapping map[string]string

// mappable are the fields that can be mapped, each with its aliases.
var mappable = map[string][]string{
	"timestamp": {"created_time"}, "delay": {"delay_ms"}, "input_length": {"input_tokens"}, "output_length": {"output_tokens"},
	"hash_ids": nil, "text_input": nil, "messages": nil, "tools": nil, "message_mode": nil, "payload": nil, "extra": nil,
	"session_id": nil, "request_id": nil, "model": nil, "class": {"policy_class", "slo_class"}, "priority": nil, "wait_for": nil, "tool_wait_ms": nil,
}

// ParseMapping reads field=key pairs such as input_length=prompt_tokens. Each text has one pair, or several separated by commas.
func ParseMapping(texts ...string) (Mapping, error) {
	m := Mapping{}
	for pair := range strings.SplitSeq(strings.Join(texts, ","), ",") {
		field, key, ok := strings.Cut(pair, "=")
		field, key = strings.TrimSpace(field), strings.TrimSpace(key)
		_, known := mappable[field]
		switch {
		case pair == "" && len(texts) == 0:
			return nil, nil
		case !ok || key == "":
			return nil, fmt.Errorf("%s: want a field of a row and the file's key for it, such as input_length=prompt_tokens", word(pair))
		case !known:
			return nil, fmt.Errorf("%s is not a field of a row: want one of %s", word(field), strings.Join(slices.Sorted(maps.Keys(mappable)), ", "))
		case m[field] != "" && m[field] != key:
			return nil, fmt.Errorf("%s is mapped twice: a field has one key", field)
		}
		m[field] = key
	}
	_, err := m.fields()
	return m, err
}

// fields returns the functions that read the members of a row.
func (m Mapping) fields() (fields, error) {
	if len(m) == 0 {
		return rowFields, nil
	}
	known := maps.Clone(rowFields)
	for field := range m {
		delete(known, field)
		for _, other := range mappable[field] {
			delete(known, other)
		}
	}
	objects := map[string]fields{} // the objects within the row, by their path
	for _, field := range slices.Sorted(maps.Keys(m)) {
		key := m[field]
		taken := func(name string) error {
			return fmt.Errorf("%s cannot be read from %s: the key %s is already that of another field", field, clip(strconv.Quote(key)), clip(strconv.Quote(name)))
		}
		if known[key] != nil {
			return nil, taken(key)
		}
		known[key] = rowFields[field]
		in, path := known, ""
		names := strings.Split(key, ".")
		for _, name := range names[:len(names)-1] {
			path = strings.TrimPrefix(path+"."+name, ".")
			if objects[path] == nil {
				if in[name] != nil {
					return nil, taken(path)
				}
				members := fields{}
				objects[path] = members
				in[name] = func(p *parser, r *Row) *RowError { return p.optional(r, path, members) }
			}
			in = objects[path]
		}
		in[names[len(names)-1]] = rowFields[field]
	}
	return known, nil
}

// optional reads the members of an object that are fields of the row; a value that is not an object has none.
func (p *parser) optional(r *Row, path string, known fields) *RowError {
	if p.dec.PeekKind() != '{' {
		return p.skip()
	}
	return p.members(r, path+".", known)
}

// othersNames are the names of a row's fields in other tools and files, in lower case.
var othersNames = map[string]string{
	"prompt_tokens": "input_length", "prompt_len": "input_length", "prompt_length": "input_length", "prompt_token_count": "input_length",
	"num_prompt_tokens": "input_length", "num_prefill_tokens": "input_length", "num_input_tokens": "input_length", "input_len": "input_length",
	"input_prompt_length": "input_length", "input_tokens_total": "input_length", "input_token_count": "input_length", "isl": "input_length",
	"request_tokens": "input_length", "request tokens": "input_length", "context_tokens": "input_length", "contexttokens": "input_length",
	"in": "input_length", "server_input_tokens": "input_length",

	"completion_tokens": "output_length", "output_len": "output_length", "out_len": "output_length", "osl": "output_length",
	"num_output_tokens": "output_length", "num_decode_tokens": "output_length", "output_token_count": "output_length", "generated_tokens": "output_length",
	"generatedtokens": "output_length", "response_tokens": "output_length", "response tokens": "output_length", "out": "output_length",
	"max_tokens": "output_length", "max_completion_tokens": "output_length",

	"arrival_time": "timestamp", "arrival_ms": "timestamp", "arrival_time_ms": "timestamp", "arrived_at": "timestamp", "created_at": "timestamp",
	"start_time": "timestamp", "request_time": "timestamp", "time": "timestamp", "ts": "timestamp", "t": "timestamp",
	"timestamp_start_unix_ms": "timestamp", "request_received_ms": "timestamp",

	"block_hashes": "hash_ids", "block_ids": "hash_ids", "kv_block_ids": "hash_ids", "total_hashes": "hash_ids", "input_sequence_hashes": "hash_ids",

	"conversation_id": "session_id", "provided_session_id": "session_id", "model_name": "model",
	"prompt": "text_input", "input_text": "text_input", "body": "payload", "request_body": "payload",
}

// objectsOfOthers are the objects in which other tools write lengths.
var objectsOfOthers = map[string][]string{"usage": {"prompt_tokens", "completion_tokens"}}

// mapsOf returns the values of --map that quoted names of unknown keys suggest: one for each field.
func mapsOf(quoted []string) (pairs []string) {
	var done []string
	suggest := func(key, path string) {
		if field := othersNames[strings.ToLower(key)]; field != "" && !slices.Contains(done, field) {
			done, pairs = append(done, field), append(pairs, field+"="+path)
		}
	}
	for _, q := range quoted {
		name, err := strconv.Unquote(q)
		if err != nil { // the name was cut
			continue
		}
		suggest(name, name)
		for _, member := range objectsOfOthers[name] {
			suggest(member, name+"."+member)
		}
	}
	return pairs
}

// suggest adds mappings to the error of a row without a prompt if other keys of the row look like fields.
func (p *parser) suggest(e *RowError) *RowError {
	pairs := mapsOf(p.unknown)
	if e != noPrompt || len(pairs) == 0 {
		return e
	}
	s := *e
	s.Advice += "; keys of the row look like fields by other names: --map " + strings.Join(pairs, ",") + " reads them"
	return &s
}
