// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
)

// NoticeCode names a kind of notice.
type NoticeCode string

// The kinds of notices.
const (
	NoticeUnknownKey   NoticeCode = "unknown_key"   // a key that nobody knows
	NoticeForeignField NoticeCode = "foreign_field" // a field of another tool that has no effect here
	NoticeTooManyIDs   NoticeCode = "too_many_ids"  // more ids than the input length has room for
	NoticePrefixOnly   NoticeCode = "prefix_only"   // fewer ids than the input length has blocks
	NoticeSessions     NoticeCode = "sessions_unchecked"
	NoticeReplyLost    NoticeCode = "reply_lost" // replies to rows that were refused
)

// Notice is something that a reader took a liberty with, or that a person should know. One notice stands for all rows
// with the same finding.
type Notice struct {
	Code  NoticeCode `json:"code"`
	Count int64      `json:"count"` // rows; of [NoticeReplyLost] replies
	Line  int64      `json:"first_line"`
	Text  string     `json:"text"` // one sentence for people
}

// maxNames bounds the keys that are told apart in notices; the rest are counted together.
const maxNames = 64

// notices counts findings by code and name.
type notices map[noticeKey]*Notice

type noticeKey struct {
	code NoticeCode
	name string
}

// add counts a row.
func (ns notices) add(code NoticeCode, name string, line int64) { ns.count(code, name, line, 1) }

// count counts several things of a row, or none.
func (ns notices) count(code NoticeCode, name string, line, by int64) {
	if by == 0 {
		return
	}
	k := noticeKey{code, name}
	n := ns[k]
	if n == nil {
		if name != "" && len(ns) >= maxNames {
			k.name = otherNames
			n = ns[k]
		}
		if n == nil {
			n = &Notice{Code: code, Line: line}
			ns[k] = n
		}
	}
	n.Count += by
}

// otherNames stands for the keys beyond maxNames. No key has this name: names are kept quoted.
const otherNames = "others"

// list returns the notices in the order of their first lines.
func (ns notices) list(blockSize int, rows, fitting int64) []Notice {
	out := make([]Notice, 0, len(ns))
	for k, n := range ns {
		m := *n
		m.Text = k.text(n.Count, blockSize, rows, fitting)
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Notice) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Text, b.Text))
	})
	return out
}

func (k noticeKey) text(count int64, blockSize int, rows, fitting int64) string {
	in, list := plural(count, "row"), "list"
	if count == 1 {
		list = "lists"
	}
	switch k.code {
	case NoticeUnknownKey:
		if k.name == otherNames {
			return "further unknown keys in " + in + " have no effect"
		}
		return "unknown key " + k.name + " in " + in + " has no effect"
	case NoticeForeignField:
		return "field " + k.name + " of another tool in " + in + " has no effect on a replay"
	case NoticeTooManyIDs:
		s := fmt.Sprintf("%s %s more ids than the input length has blocks of %d tokens; the first ones are used", in, list, blockSize)
		if count == rows {
			s += ": all rows do, so the block size is probably smaller"
		}
		return s
	case NoticePrefixOnly:
		s := fmt.Sprintf("%s %s fewer ids than the input length has blocks of %d tokens; the rest of the prompt is private to the row",
			in, list, blockSize)
		if count == rows {
			s += ": all rows do, so the block size is probably larger, at least " + strconv.FormatInt(fitting, 10)
		}
		return s
	case NoticeReplyLost:
		in = "1 reply"
		if count > 1 {
			in = strconv.FormatInt(count, 10) + " replies"
		}
		return in + " to rows that cannot be used are left out of replies: these tokens are ordinary ones of the prompt"
	case NoticeSessions:
		return "too many sessions to check all: " + in + " were not checked for a mix of prompt kinds in their session"
	}
	return string(k.code)
}

// plural returns "1 row", "2 rows".
func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}
