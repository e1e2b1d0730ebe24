// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/blockhash"
)

var update = flag.Bool("update", false, "write testdata/vectors.json anew")

// vectors is testdata/vectors.json. All 64-bit values are unsigned decimal strings: JSON numbers end at 2^53.
type vectors struct {
	About   string        `json:"about"`
	Keys    []keyVector   `json:"keys"`
	Domains []domainCase  `json:"domains"`
	Text    []textVector  `json:"text"`
	Tokens  []tokenVector `json:"tokens"`
	Engine  []engineCase  `json:"engine"`
	Values  []valueVector `json:"values"`
}

type keyVector struct {
	Key         string            `json:"key"` // hex
	Fingerprint string            `json:"fingerprint"`
	Sessions    map[string]string `json:"sessions"` // id → twin
}

type domainCase struct {
	Kind   string   `json:"kind"`
	Parts  []string `json:"parts"`
	Domain string   `json:"domain"`
}

type textVector struct {
	Key      string      `json:"key"`
	Domain   string      `json:"domain"`
	Messages [][2]string `json:"messages"` // role, text
	Bytes    int64       `json:"bytes"`
	Cells    []string    `json:"cells"`
	Tail     string      `json:"tail"`
	Attr     string      `json:"mooncake_cells"` // hex
	Ends     []endVector `json:"ends"`           // of the messages
	EndsAttr string      `json:"mooncake_cells_ends"`
	Reply    string      `json:"reply"` // a text of the assistant after the messages
	ReplyEnd endVector   `json:"reply_end"`
	EndAttr  string      `json:"mooncake_cells_reply"`
	Lay      []layCase   `json:"lay"` // with the tokens spread evenly over the text: cell j ends after floor(128(j+1)·tokens/bytes)
}

type endVector struct {
	Bytes int64          `json:"bytes"`
	Role  blockhash.Role `json:"role"`
	Value string         `json:"value"`
}

type layCase struct {
	Tokens int64    `json:"tokens"`
	Size   int      `json:"block_size"`
	IDs    []string `json:"ids"`
}

type tokenVector struct {
	Key    string   `json:"key"`
	Domain string   `json:"domain"`
	Tokens []uint32 `json:"tokens"`
	Size   int      `json:"block_size"`
	IDs    []string `json:"ids"`
}

type engineCase struct {
	Key    string   `json:"key"`
	Domain string   `json:"domain"`
	Hashes []string `json:"hashes"`
	From   int      `json:"from"`
	To     int      `json:"to"`
	Tokens int64    `json:"tokens"`
	Span   string   `json:"span"`
	IDs    []string `json:"ids"`
}

// valueVector is a value in each of its forms. Hashes rarely come near the ends of the range; encodings must handle them.
type valueVector struct {
	Unsigned string `json:"unsigned"`
	OTLPInt  string `json:"otlp_int"`      // the element of mooncake.hash_ids, in decimal
	Bytes    string `json:"little_endian"` // the bytes in mooncake.cells, hex
}

func TestVectors(t *testing.T) {
	name := filepath.Join("testdata", "vectors.json")
	want := makeVectors(t)
	if *update {
		text, err := json.MarshalIndent(want, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var committed vectors
	if err := json.Unmarshal(text, &committed); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(committed, want); diff != "" {
		t.Errorf("values have changed, so traces and collectors from before the change will not match those after it (-committed +now):\n%s", diff)
	}
	checkVectors(t, committed)
}

// makeVectors computes the vectors with the package.
func makeVectors(t *testing.T) vectors {
	t.Helper()
	short, long := make([]byte, 32), make([]byte, 100) // 100 bytes are more than HMAC takes unhashed
	for i := range long {
		long[i] = byte(37*i + 11)
	}
	for i := range short {
		short[i] = byte(i)
	}
	v := vectors{About: "Examples of the scheme in the comment of package blockhash. Written by: go test ./blockhash -update"}
	for _, key := range [][]byte{short, long} {
		k := newKey(t, key)
		kv := keyVector{Key: hex.EncodeToString(key), Fingerprint: k.Fingerprint(), Sessions: map[string]string{}}
		for _, id := range []string{"", "user-42", "moonloop value v1\x00", "conversation ☾"} {
			kv.Sessions[id] = k.Session(id)
		}
		v.Keys = append(v.Keys, kv)
	}
	fingerprint := newKey(t, short).Fingerprint()
	for _, d := range []domainCase{
		{Kind: "text", Parts: []string{fingerprint, "", ""}}, // TextDomain
		{Kind: "tokens", Parts: []string{fingerprint, "", "llama-3", "tenant salt"}},
		{Kind: "engine", Parts: []string{fingerprint, "cluster-1/ns", "Qwen/Qwen3", ""}},
		{Kind: "ab", Parts: []string{"c"}},
		{Kind: "a", Parts: []string{"bc"}}, // the same bytes, cut elsewhere
		{Kind: "a", Parts: []string{}},
		{Kind: "a", Parts: []string{""}},
	} {
		d.Domain = blockhash.Domain(d.Kind, d.Parts...)
		v.Domains = append(v.Domains, d)
	}
	if got := blockhash.TextDomain(newKey(t, short)); got != v.Domains[0].Domain {
		t.Errorf("TextDomain %s is not the first of the domains", got)
	}

	lines := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 12)
	for _, c := range []struct {
		key      []byte
		domain   int
		messages [][2]string
		lay      []layCase
	}{
		{short, 0, [][2]string{}, []layCase{{Tokens: 0, Size: 512}, {Tokens: 700, Size: 512}}},
		{short, 0, [][2]string{{"user", "hello"}}, []layCase{{Tokens: 9, Size: 512}}},
		{short, 0, [][2]string{{"user", lines[:122]}}, []layCase{{Tokens: 32, Size: 16}}}, // exactly one cell
		{short, 0, [][2]string{{"developer", "a"}, {"tools", "{}"}, {"user", "b"}, {"model", ""}, {"tool", "c"}, {"x", "d"}}, nil},
		{short, 0, [][2]string{{"system", lines}, {"user", "日本語の質問 ☾"}}, []layCase{
			{Tokens: 150, Size: 32}, {Tokens: 160, Size: 32}, // a last block that is full
			{Tokens: 6000, Size: 512}, // above 4 tokens per byte
		}},
		{long, 0, [][2]string{{"system", lines}, {"user", "日本語の質問 ☾"}}, []layCase{{Tokens: 150, Size: 32}}},
		{short, 1, [][2]string{{"system", lines}, {"user", "日本語の質問 ☾"}}, []layCase{{Tokens: 150, Size: 32}}},
	} {
		domain := v.Domains[c.domain].Domain
		h := newHasher(t, newKey(t, c.key), domain)
		for _, m := range c.messages {
			h.Role(m[0])
			h.Text(m[1])
		}
		chain := h.Chain()
		attr, _ := chain.AppendBinary(nil)
		tv := textVector{
			Key: hex.EncodeToString(c.key), Domain: domain, Messages: c.messages,
			Bytes: chain.Bytes, Cells: decimals(chain.Cells), Tail: decimal(chain.Tail), Attr: hex.EncodeToString(attr),
			EndsAttr: hex.EncodeToString(chain.AppendEnds(nil)), Reply: "Of course.",
		}
		for _, e := range chain.Ends {
			tv.Ends = append(tv.Ends, endVector{e.Bytes, e.Role, decimal(e.Value)})
		}
		h.Role("assistant")
		h.Text(tv.Reply)
		reply, ok := h.End()
		replyAttr, err := reply.AppendBinary(nil)
		if !ok || err != nil {
			t.Fatalf("no end of a reply: %v", err)
		}
		tv.ReplyEnd, tv.EndAttr = endVector{reply.Bytes, reply.Role, decimal(reply.Value)}, hex.EncodeToString(replyAttr)
		for _, l := range c.lay {
			ids, err := chain.Blocks(nil, evenEnds(chain, l.Tokens), l.Tokens, l.Size)
			if err != nil {
				t.Fatal(err)
			}
			l.IDs = decimals(ids)
			tv.Lay = append(tv.Lay, l)
		}
		v.Text = append(v.Text, tv)
	}

	tokens := make([]uint32, 40)
	for i := range tokens {
		tokens[i] = uint32(i) * 0x01010101 * 7
	}
	for _, c := range []struct{ n, size int }{{0, 16}, {1, 16}, {16, 16}, {40, 16}, {40, 8}} {
		h := newHasher(t, newKey(t, short), v.Domains[1].Domain)
		v.Tokens = append(v.Tokens, tokenVector{
			Key: hex.EncodeToString(short), Domain: v.Domains[1].Domain, Tokens: tokens[:c.n], Size: c.size,
			IDs: decimals(h.Tokens(nil, tokens[:c.n], c.size)),
		})
	}

	hashes := []uint64{1, 1 << 53, 1<<53 + 1, 1 << 63, 1<<64 - 1}
	for _, c := range []struct {
		n      int
		to     int
		tokens int64
		reason string
	}{
		{4, 32, 64, "whole blocks"},
		{5, 32, 80, "whole small blocks left over"},
		{5, 32, 70, "a partial small block, with a hash"},
		{4, 32, 70, "a partial small block, without a hash"},
		{0, 32, 7, "only a partial block, without a hash"},
		{5, 16, 80, "blocks of the engine's size"},
	} {
		h := newHasher(t, newKey(t, short), v.Domains[2].Domain)
		ids, err := h.Reblock(nil, hashes[:c.n], 16, c.to, c.tokens, "span-1")
		if err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		v.Engine = append(v.Engine, engineCase{
			Key: hex.EncodeToString(short), Domain: v.Domains[2].Domain, Hashes: decimals(hashes[:c.n]),
			From: 16, To: c.to, Tokens: c.tokens, Span: "span-1", IDs: decimals(ids),
		})
	}

	for _, value := range []uint64{0, 1, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<64 - 2, 1<<64 - 1} {
		attr, _ := blockhash.Chain{Tail: value}.AppendBinary(nil)
		v.Values = append(v.Values, valueVector{decimal(value), strconv.FormatInt(int64(value), 10), hex.EncodeToString(attr[:8])})
	}
	return v
}

// checkVectors compares the vectors with the second implementation.
func checkVectors(t *testing.T, v vectors) {
	t.Helper()
	high := false // whether values that do not fit a signed integer are covered
	check := func(what string, want, got any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-second implementation +vectors):\n%s", what, diff)
		}
	}
	for _, k := range v.Keys {
		r := reference{key: unhex(t, k.Key)}
		check("fingerprint", r.fingerprint(), k.Fingerprint)
		for id, twin := range k.Sessions {
			check("session", r.session(id), twin)
		}
	}
	for _, d := range v.Domains {
		check("domain", referenceDomain(d.Kind, d.Parts...), d.Domain)
	}
	for _, c := range v.Text {
		text := ""
		for _, m := range c.Messages {
			text += m[0] + "\n" + m[1] + "\n"
		}
		cells, tail := reference{unhex(t, c.Key), c.Domain}.text(text)
		check("bytes", int64(len(text)), c.Bytes)
		check("cells", decimals(cells), c.Cells)
		check("tail", decimal(tail), c.Tail)
		var ends []endVector
		attr := []byte(nil)
		roles := map[string]blockhash.Role{"system": 1, "developer": 1, "user": 2, "assistant": 3, "model": 3, "tool": 4, "tools": 5}
		upTo := ""
		for _, m := range append(slices.Clone(c.Messages), [2]string{"assistant", c.Reply}) {
			upTo += m[0] + "\n" + m[1] + "\n"
			value, _ := reference{unhex(t, c.Key), c.Domain}.values([]byte(upTo))
			ends = append(ends, endVector{int64(len(upTo)), roles[m[0]], decimal(value)})
			attr = append(attr, referenceWords([]uint64{value})...)
			attr = append(attr, referenceWords([]uint64{uint64(len(upTo))*16 + uint64(roles[m[0]])})[:4]...)
		}
		last := len(ends) - 1
		check("ends", ends[:last], append([]endVector{}, c.Ends...))
		check("reply", ends[last], c.ReplyEnd)
		check("mooncake.cells.ends", hex.EncodeToString(attr[:12*last]), c.EndsAttr)
		check("mooncake.cells.reply", hex.EncodeToString(attr[12*last:]), c.EndAttr)
		check("mooncake.cells", hex.EncodeToString(referenceWords(append(cells, tail, uint64(len(text))))), c.Attr)
		for _, l := range c.Lay {
			check("lay", decimals(referenceLay(cells, tail, len(text), l.Tokens, l.Size)), l.IDs)
		}
		high = high || slices.ContainsFunc(append(cells, tail), func(value uint64) bool { return value >= 1<<63 })
	}
	for _, c := range v.Tokens {
		check("tokens", decimals(reference{unhex(t, c.Key), c.Domain}.tokens(c.Tokens, c.Size)), c.IDs)
	}
	for _, c := range v.Engine {
		var hashes []uint64
		for _, hash := range c.Hashes {
			value, err := strconv.ParseUint(hash, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			hashes = append(hashes, value)
		}
		r := reference{unhex(t, c.Key), c.Domain}
		check("engine", decimals(r.engine(hashes, c.From, c.To, c.Tokens, c.Span)), c.IDs)
	}
	for _, c := range v.Values {
		value, err := strconv.ParseUint(c.Unsigned, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		signed := new(big.Int).SetUint64(value)
		if value >= 1<<63 {
			signed.Sub(signed, new(big.Int).Lsh(big.NewInt(1), 64))
		}
		check("OTLP int", signed.String(), c.OTLPInt)
		check("bytes of a value", hex.EncodeToString(referenceWords([]uint64{value})), c.Bytes)

		var chain blockhash.Chain
		if err := chain.UnmarshalBinary(slices.Concat(unhex(t, c.Bytes), make([]byte, 8))); err != nil {
			t.Fatal(err)
		}
		check("value read back", value, chain.Tail)
	}
	if !high {
		t.Error("no value of 2^63 or more among the vectors")
	}
}
