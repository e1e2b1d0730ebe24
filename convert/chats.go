// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

// chats finds the session of a request in files that give each request's predecessor as its parent: the session is identified by the first
// request of the chain. It remembers between maxChats and 2*maxChats of the last requests.
type chats struct {
	young, old map[chat]int64 // from each request to the first one of its session
	max        int            // maximum size of young; 0 = maxChats
	cut        int64          // sessions whose first request was not found
}

// chat identifies a request by its file and its id there.
type chat struct {
	input int
	id    int64
}

const maxChats = 4 << 20

// add adds the next request in the order of time and returns the first request of its session. If the parent is missing, because the file
// begins after it or because it is no longer remembered, a new session begins, named after the parent. ok is false if the request belongs
// to no chat.
func (c *chats) add(q *request) (first int64, ok bool) {
	switch {
	case q.parent.Set:
		parent := chat{q.input, q.parent.V}
		var known bool
		if first, known = c.find(parent); !known {
			first = parent.id
			c.cut++
			c.remember(parent, first)
		}
	case q.chat.Set:
		first = q.chat.V
	default:
		return 0, false
	}
	if q.chat.Set {
		c.remember(chat{q.input, q.chat.V}, first)
	}
	return first, true
}

func (c *chats) find(k chat) (int64, bool) {
	first, ok := c.young[k]
	if !ok {
		if first, ok = c.old[k]; ok {
			c.remember(k, first) // in use
		}
	}
	return first, ok
}

func (c *chats) remember(k chat, first int64) {
	limit := c.max
	if limit == 0 {
		limit = maxChats
	}
	if c.young == nil || len(c.young) >= limit {
		c.young, c.old = make(map[chat]int64), c.young
	}
	c.young[k] = first
}
