// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package genai

import (
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// Limits bound what a [Reader] spends on one span. The zero value of a field means its default.
type Limits struct {
	// Bytes of one value that are read as JSON; what follows is cut. Default 16 MiB.
	Bytes int
	// Nodes of one value (JSON values and keys), 24 bytes each. Default 262,144.
	Nodes int
	// Truncation lists lengths at which exporters and SDKs cut strings; a text of exactly such a length is
	// taken for cut. Nil means 2048, which is Tempo's; an empty list none.
	Truncation []int
}

const (
	defaultBytes = 16 << 20
	defaultNodes = 1 << 18
	maxDepth     = 64
)

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	if l.Nodes <= 0 {
		l.Nodes = defaultNodes
	}
	if l.Truncation == nil {
		l.Truncation = []int{2048}
	}
	return l
}

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

// node is a value of a tree, or the key before one. A container's members follow it; next is the index after them.
type node struct {
	text    string // of a string or number; a piece of the source, never a copy
	next    int32
	kind    nodeKind
	escaped bool // text has JSON escapes
	cut     bool // the source ended within text
}

// none is the index of a node that is not there.
const none = int32(-1)

// tree is a JSON text, a structured attribute or a set of flattened attributes, in one flat array that is reused.
// Members of an object are pairs of nodes: key, value.
type tree struct {
	nodes []node
	most  int  // nodes that there were since forget
	cut   bool // the source ended early or went past a limit
	gaps  bool // members are known to be missing elsewhere than at the end
}

func (t *tree) reset() {
	t.most = max(t.most, len(t.nodes))
	t.nodes, t.cut, t.gaps = t.nodes[:0], false, false
}

// forget lets go of the sources, whose text the nodes are pieces of, also those that a reset left behind.
func (t *tree) forget() {
	t.reset()
	clear(t.nodes[:min(t.most+1, cap(t.nodes))]) // one more: the parser takes half a key back
	t.most = 0
}

func (t *tree) empty() bool { return len(t.nodes) == 0 }

// kind returns the type of a node; that of none is null.
func (t *tree) kind(n int32) nodeKind {
	if n < 0 || int(n) >= len(t.nodes) {
		return nodeNull
	}
	return t.nodes[n].kind
}

// get returns the first member of an object that has one of the names, in the names' order, or none. A null member
// counts as absent.
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

// path descends by one name after the other.
func (t *tree) path(n int32, names ...string) int32 {
	for _, name := range names {
		n = t.get(n, name)
	}
	return n
}

// int reads a count from a number or a numeric string.
func (t *tree) int(n int32) Opt[int64] {
	if k := t.kind(n); k == nodeNumber || k == nodeString {
		if v, ok := parseInt(t.nodes[n].text); ok {
			return Some(v)
		}
	}
	return Opt[int64]{}
}

func (t *tree) float(n int32) Opt[float64] {
	if k := t.kind(n); k == nodeNumber || k == nodeString {
		if v, ok := parseFloat(t.nodes[n].text); ok {
			return Some(v)
		}
	}
	return Opt[float64]{}
}

func (t *tree) bool(n int32) Opt[bool] {
	switch k := t.kind(n); k {
	case nodeTrue, nodeFalse:
		return Some(k == nodeTrue)
	case nodeString:
		if v, ok := parseBool(t.nodes[n].text); ok {
			return Some(v)
		}
	default:
	}
	return Opt[bool]{}
}

// str reads a short string, or "".
func (t *tree) str(n int32) string {
	if t.kind(n) != nodeString || len(t.nodes[n].text) > 6*maxValueBytes {
		return ""
	}
	s := t.nodes[n].text
	if t.nodes[n].escaped {
		s = unescape(s)
	}
	s, _ = cleanString(s)
	return s
}

// partial reports whether the source ended within a node, or may have.
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
func (t *tree) addValue(v pcommon.Value, limits *Limits, depth int) {
	if depth >= maxDepth || len(t.nodes) >= limits.Nodes {
		t.cut = true
		t.add(node{})
		return
	}
	switch v.Type() {
	case pcommon.ValueTypeStr:
		t.add(plain(v.Str(), limits))
	case pcommon.ValueTypeBool:
		kind := nodeFalse
		if v.Bool() {
			kind = nodeTrue
		}
		t.add(node{kind: kind})
	case pcommon.ValueTypeInt:
		t.add(node{kind: nodeNumber, text: strconv.FormatInt(v.Int(), 10)})
	case pcommon.ValueTypeDouble:
		t.add(node{kind: nodeNumber, text: strconv.FormatFloat(v.Double(), 'g', -1, 64)})
	case pcommon.ValueTypeMap:
		t.addMap(v.Map(), limits, depth)
	case pcommon.ValueTypeSlice:
		array := t.add(node{kind: nodeArray})
		for _, member := range v.Slice().All() {
			if t.full(limits) {
				break
			}
			t.addValue(member, limits, depth+1)
		}
		t.close(array)
	default: // bytes have no place in a message
		t.add(node{})
	}
}

func (t *tree) addMap(m pcommon.Map, limits *Limits, depth int) {
	object := t.add(node{kind: nodeObject})
	for key, member := range m.All() {
		if t.full(limits) {
			break
		}
		t.add(node{kind: nodeString, text: key})
		t.addValue(member, limits, depth+1)
	}
	t.close(object)
}

// graft appends the members of an object that is another tree.
func (t *tree) graft(other *tree, limits *Limits) {
	if len(t.nodes)+len(other.nodes) >= limits.Nodes {
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

// full reports whether the tree is at its limit, and marks it as cut then.
func (t *tree) full(limits *Limits) bool {
	if len(t.nodes)+1 < limits.Nodes {
		return false
	}
	t.cut = true
	return true
}

// plain returns the node of a string that is not JSON, cut when its length says so.
func plain(s string, limits *Limits) node {
	return node{kind: nodeString, text: s, cut: truncated(s, limits.Truncation)}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
