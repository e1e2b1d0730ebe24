// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/moonloop/moonloop/mooncake/internal/words"
)

// NoticeCode is the name of a kind of notice.
type NoticeCode string

// The kinds of notices.
const (
	NoticeUnknownKey   NoticeCode = "unknown_key"   // an unknown key
	NoticeForeignField NoticeCode = "foreign_field" // a field of another tool that has no effect here
	NoticeTooManyIDs   NoticeCode = "too_many_ids"  // more ids than the input length has room for
	NoticePrefixOnly   NoticeCode = "prefix_only"   // fewer ids than the input length has blocks
	NoticeSessions     NoticeCode = "sessions_unchecked"
	NoticeTimes        NoticeCode = "timestamps" // timestamps in the file that are not milliseconds
	NoticeLayout       NoticeCode = "layout"     // rows that are not on a line of their own
	NoticeReplyLost    NoticeCode = "reply_lost" // replies to rows that were refused
	// NoticeContinuedLost: rows that continue a row that was refused, or another such row.
	NoticeContinuedLost NoticeCode = "continued_lost"
)

// Notice reports that a reader interpreted something unusual, or found something that a person should know. One notice stands for all rows
// with the same finding.
type Notice struct {
	Code  NoticeCode `json:"code"`
	Count int64      `json:"count"` // rows; for [NoticeReplyLost], replies
	Line  int64      `json:"first_line"`
	Text  string     `json:"text"` // one sentence for people
}

// maxNames is the maximum number of keys that are counted separately; the others are counted together.
const maxNames = 64

// notices counts findings by code and name.
type notices map[noticeKey]*Notice

type noticeKey struct {
	code NoticeCode
	name string
}

// add counts findings of a kind in the row on a line. count may be 0.
func (ns notices) add(code NoticeCode, name string, line, count int64) {
	if count == 0 {
		return
	}
	k := noticeKey{code, name}
	if ns[k] == nil && name != "" && len(ns) >= maxNames {
		k.name = otherNames
	}
	if ns[k] == nil {
		ns[k] = &Notice{Code: code, Line: line}
	}
	ns[k].Count += count
}

// otherNames stands for the keys beyond maxNames. No key can have this name, because names are stored quoted.
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
	in := words.Plural(count, "row")
	list := in + " list"
	if count == 1 {
		list += "s"
	}
	hint := func(size string) string {
		if count == rows {
			return ": all rows do, so the block size is probably " + size
		}
		return ""
	}
	switch k.code {
	case NoticeUnknownKey:
		if k.name == otherNames {
			return "further unknown keys in " + in + " have no effect"
		}
		text := "unknown key " + k.name + " in " + in + " has no effect"
		if pairs := mapsOf([]string{k.name}); len(pairs) > 0 {
			text += "; --map " + strings.Join(pairs, ",") + " reads it"
		}
		return text
	case NoticeForeignField:
		return "field " + k.name + " of another tool in " + in + " has no effect on a replay"
	case NoticeTooManyIDs:
		return fmt.Sprintf("%s more ids than the input length has blocks of %d tokens; the first ones are used", list,
			blockSize) + hint("smaller")
	case NoticePrefixOnly:
		return fmt.Sprintf("%s fewer ids than the input length has blocks of %d tokens; "+
			"the rest of the prompt is private to the row", list, blockSize) + hint(fmt.Sprintf("larger, at least %d", fitting))
	case NoticeReplyLost:
		return words.Plural(count, "reply") + " left out, because the rows that gave them cannot be used: " +
			"these tokens count as ordinary tokens of the prompt"
	case NoticeContinuedLost:
		return in + " that continue rows which cannot be used have no hash_ranges and no replies: only their hash_ids say what they share"
	case NoticeTimes:
		return "the timestamps of " + in + " are " + k.name
	case NoticeLayout:
		return in + " " + k.name + ": read as if on a line by itself; tools that read JSON lines want each row on a line by itself, as moonloop transform writes it"
	case NoticeSessions:
		return "too many sessions to check all: " + in + " were not checked for a mix of prompt kinds in their session"
	}
	return string(k.code)
}
