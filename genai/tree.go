// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"cmp"
	"iter"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Limits limits what a [Reader] spends on one span. The zero value of a field means its default.
type Limits struct {
	// Bytes of one value that are parsed as JSON; the rest is cut. Default 16 MiB.
	Bytes int
	// Nodes of one value (JSON values and keys), 24 bytes each. Default 262,144.
	Nodes int
}

func (l Limits) withDefaults() Limits {
	return Limits{Bytes: cmp.Or(max(l.Bytes, 0), 16<<20), Nodes: cmp.Or(max(l.Nodes, 0), 1<<18)}
}

const maxDepth = 64

// nodeKind is the JSON type of a node.
type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeFalse
	nodeTrue
	nodeNumber
	nodeString
	nodeArray
	nodeObject
)

// node is a value of a tree, or the key before one. The members of a container follow it; next is the index after them.
type node struct {
	text    string // of a string, a number or a literal; that of a string is a part of the source, not a copy
	next    int32
	kind    nodeKind
	escaped bool // text has JSON escapes
	cut     bool // the text ended within this one
}

// none is the index of a missing node.
const none = int32(-1)

// tree is a JSON text, a structured attribute or a set of flattened attributes, in one flat array that is reused.
// Members of an object are pairs of nodes: key, value.
type tree struct {
	limits  *Limits
	nodes   []node
	entries []flatEntry // of flattened attributes
	most    int         // the maximum number of nodes since forget
	cut     bool        // the text ended early or exceeded a limit
	gaps    bool        // members are known to be missing, other than at the end
}

func (t *tree) reset() {
	t.most = max(t.most, len(t.nodes))
	t.nodes, t.cut, t.gaps = t.nodes[:0], false, false
}

// forget releases the texts: nodes refer to them, including nodes that a reset left behind.
func (t *tree) forget() {
	t.reset()
	clear(t.nodes[:min(t.most+1, cap(t.nodes))]) // one more, because the parser removes incomplete keys
	t.most = 0
}

func (t *tree) empty() bool { return len(t.nodes) == 0 }

// kind returns the type of a node. The type of none is null.
func (t *tree) kind(n int32) nodeKind {
	if n < 0 || int(n) >= len(t.nodes) {
		return nodeNull
	}
	return t.nodes[n].kind
}

// get returns the first member of an object with one of the names, in the names' order, or none. A null member counts as absent.
func (t *tree) get(object int32, names ...string) int32 {
	if t.kind(object) != nodeObject {
		return none
	}
	for _, name := range names {
		for key := object + 1; key < t.nodes[object].next; {
			value := key + 1
			if t.nodes[key].text == name && t.nodes[value].kind != nodeNull {
				return value
			}
			key = t.nodes[value].next
		}
	}
	return none
}

// values visits the values of an array or an object. In an object, the node before a value is its key.
func (t *tree) values(n int32) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		keys := int32(0)
		switch t.kind(n) {
		case nodeObject:
			keys = 1
		case nodeArray:
		default:
			return
		}
		for i := n + 1 + keys; i < t.nodes[n].next; i = t.nodes[i].next + keys {
			if !yield(i) {
				return
			}
		}
	}
}

// path descends by one name after another.
func (t *tree) path(n int32, names ...string) int32 {
	for _, name := range names {
		n = t.get(n, name)
	}
	return n
}

func (t *tree) float(n int32) Opt[float64] {
	if k := t.kind(n); k == nodeNumber || k == nodeString {
		return parseNumber(t.nodes[n].text)
	}
	return Opt[float64]{}
}

// int reads a count from a number or a numeric string.
func (t *tree) int(n int32) Opt[int64] { return count(t.float(n)) }

func (t *tree) bool(n int32) Opt[bool] {
	switch k := t.kind(n); k {
	case nodeTrue, nodeFalse:
		return Some(k == nodeTrue)
	case nodeString:
		return parseBool(t.nodes[n].text)
	default:
		return Opt[bool]{}
	}
}

// str reads a short string, or "".
func (t *tree) str(n int32) string {
	if t.kind(n) != nodeString || len(t.nodes[n].text) > 6*maxValueBytes {
		return ""
	}
	return cleanString(t.raw(n))
}

// raw returns a string node without its JSON escapes.
func (t *tree) raw(n int32) string {
	if t.nodes[n].escaped {
		return unescape(t.nodes[n].text)
	}
	return t.nodes[n].text
}

// partial reports whether the text ended within a node, or may have.
func (t *tree) partial(n int32) bool {
	return t.cut && n >= 0 && int(t.nodes[n].next) == len(t.nodes)
}

// add appends a node that has no members.
func (t *tree) add(n node) int32 {
	index := int32(len(t.nodes)) //nolint:gosec // below Limits.Nodes
	n.next = index + 1
	t.nodes = append(t.nodes, n)
	return index
}

// close ends a container.
func (t *tree) close(n int32) {
	t.nodes[n].next = int32(len(t.nodes)) //nolint:gosec // below Limits.Nodes
}

// addValue appends a structured attribute.
func (t *tree) addValue(v pcommon.Value, depth int) {
	if depth >= maxDepth || len(t.nodes) >= t.limits.Nodes {
		t.cut = true
		t.add(node{})
		return
	}
	switch v.Type() {
	case pcommon.ValueTypeStr:
		t.addPlain(v.Str())
	case pcommon.ValueTypeBool:
		t.add(node{kind: nodeFalse + nodeKind(b2i(v.Bool())), text: strconv.FormatBool(v.Bool())}) //nolint:gosec // 0 or 1
	case pcommon.ValueTypeInt:
		t.add(node{kind: nodeNumber, text: strconv.FormatInt(v.Int(), 10)})
	case pcommon.ValueTypeDouble:
		t.add(node{kind: nodeNumber, text: strconv.FormatFloat(v.Double(), 'g', -1, 64)})
	case pcommon.ValueTypeMap:
		t.addMap(v.Map(), depth)
	case pcommon.ValueTypeSlice:
		array := t.add(node{kind: nodeArray})
		for _, member := range v.Slice().All() {
			if t.full() {
				break
			}
			t.addValue(member, depth+1)
		}
		t.close(array)
	default: // bytes are not allowed in a message
		t.add(node{})
	}
}

func (t *tree) addMap(m pcommon.Map, depth int) {
	object := t.add(node{kind: nodeObject})
	for key, member := range m.All() {
		if t.full() {
			break
		}
		t.add(node{kind: nodeString, text: key})
		t.addValue(member, depth+1)
	}
	t.close(object)
}

// addPlain appends a string that is not JSON, marked as cut if its length shows it.
func (t *tree) addPlain(s string) {
	t.add(node{kind: nodeString, text: s, cut: truncated(s)})
}

// graft appends the members of an object in another tree.
func (t *tree) graft(other *tree) {
	if len(t.nodes)+len(other.nodes) >= t.limits.Nodes {
		t.cut = true
		return
	}
	shift := int32(len(t.nodes)) - 1 //nolint:gosec // below Limits.Nodes
	for _, n := range other.nodes[1:] {
		n.next += shift
		t.nodes = append(t.nodes, n)
	}
	t.cut = t.cut || other.cut
}

// full reports whether the tree has reached its limit, and marks it as cut then.
func (t *tree) full() bool {
	if len(t.nodes)+1 < t.limits.Nodes {
		return false
	}
	t.cut = true
	return true
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
