// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file has the trunk in the form that Collectors use: keyed values, before a compilation numbers the ids. All Collectors load one file
// and keep it for an epoch, so each decides about a request by itself, and all decide alike.

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/moonloop/moonloop/internal/atomicfile"
	"github.com/moonloop/moonloop/internal/jsonrows"
)

// TrunkListSchema is the version of trunk lists that this package writes, and the highest one that it reads.
const TrunkListSchema = 1

// maxTrunkList is the maximum size of a trunk list's file, in bytes.
const maxTrunkList = 64 << 20

// TrunkList lists the blocks and the cells of text that are too common at the beginning of prompts to tell conversations apart.
type TrunkList struct {
	Schema int     `json:"schema"`
	Tool   string  `json:"tool,omitempty"` // the program that wrote it, with its version
	Share  float64 `json:"share"`          // share of the prompts above which a value is on the list
	// Seed selects the groups that are sampled.
	Seed    uint64        `json:"seed"`
	Domains []DomainTrunk `json:"domains"`

	trunks      map[uint32]*Trunk
	fingerprint uint32
}

// DomainTrunk is the trunk of the prompts of one hash domain.
type DomainTrunk struct {
	Domain  string   `json:"domain"`        // 8 hexadecimal digits
	Key     string   `json:"key,omitempty"` // the fingerprint of the key, if it is known
	Prompts int64    `json:"prompts"`       // prompts from which it was computed
	Values  []string `json:"values"`        // 16 hexadecimal digits each, ascending
}

// NewDomainTrunk returns the trunk of prompts, given the ids of each: the values at the beginning of more than a share of them.
func NewDomainTrunk(domain, key string, prompts [][]uint64, share float64) DomainTrunk {
	d := DomainTrunk{Domain: domain, Key: key, Prompts: int64(len(prompts)), Values: []string{}}
	for _, id := range trunkIDs(prompts, nil, max(share*float64(len(prompts)), trunkRows)) {
		d.Values = append(d.Values, fmt.Sprintf("%016x", id))
	}
	slices.Sort(d.Values)
	return d
}

// ReadTrunkList reads and validates a trunk list.
func ReadTrunkList(r io.Reader) (*TrunkList, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxTrunkList+1))
	if err != nil {
		return nil, fmt.Errorf("trunk list cannot be read: %w", err)
	}
	if len(data) > maxTrunkList {
		return nil, fmt.Errorf("the file is larger than %d bytes, so it is not a trunk list; moonloop trunk writes one", maxTrunkList)
	}
	l := new(TrunkList)
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("trunk list cannot be parsed: %w; moonloop trunk writes one", jsonrows.Explain(err))
	}
	if err := l.complete(); err != nil {
		return nil, err
	}
	return l, nil
}

// LoadTrunkList reads the trunk list in a file.
func LoadTrunkList(name string) (*TrunkList, error) {
	data, err := atomicfile.ReadFile(name, maxTrunkList)
	if err != nil {
		return nil, fmt.Errorf("trunk list: %w", err)
	}
	l, err := ReadTrunkList(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// complete validates the list and builds its lookup tables.
func (l *TrunkList) complete() error {
	switch {
	case l.Schema < 1:
		return errors.New("the file has no schema version: it is not a trunk list, or it is damaged; moonloop trunk writes one")
	case l.Schema > TrunkListSchema:
		return fmt.Errorf("trunk list has schema version %d, this program knows %d: use a newer program", l.Schema, TrunkListSchema)
	case !(l.Share > 0 && l.Share < 1):
		return fmt.Errorf("trunk list: share %g must be above 0 and below 1", l.Share)
	}
	l.trunks = map[uint32]*Trunk{}
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%d\n", l.Seed)
	domains := slices.Clone(l.Domains)
	slices.SortFunc(domains, func(a, b DomainTrunk) int { return cmp.Compare(a.Domain, b.Domain) })
	for _, d := range domains {
		number, err := strconv.ParseUint(d.Domain, 16, 32)
		if err != nil || len(d.Domain) != 8 {
			return fmt.Errorf("trunk list: domain %s must be 8 hexadecimal digits", word(d.Domain))
		}
		if l.trunks[uint32(number)] != nil {
			return fmt.Errorf("trunk list: domain %s occurs twice", d.Domain)
		}
		t := &Trunk{Share: l.Share, Rows: d.Prompts}
		ids := make([]uint64, 0, len(d.Values))
		for _, v := range d.Values {
			id, err := strconv.ParseUint(v, 16, 64)
			if err != nil || len(v) != 16 {
				return fmt.Errorf("trunk list: domain %s: value %s must be 16 hexadecimal digits", d.Domain, word(v))
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		t.add(ids)
		l.trunks[uint32(number)] = t
		_, _ = fmt.Fprintf(sum, "%s", d.Domain)
		for _, id := range ids {
			_, _ = sum.Write(binary.BigEndian.AppendUint64(nil, id))
		}
	}
	l.fingerprint = max(binary.BigEndian.Uint32(sum.Sum(nil)), 1)
	return nil
}

// Write writes the list as indented JSON.
func (l *TrunkList) Write(w io.Writer) error {
	if l == nil {
		return errors.New("there is no trunk list to write")
	}
	if err := l.complete(); err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("trunk list was not written: %w", err)
	}
	return nil
}

// Trunk returns the trunk of a hash domain; nil if the list does not have the domain, or is nil.
func (l *TrunkList) Trunk(domain uint32) *Trunk {
	if l == nil {
		return nil
	}
	return l.trunks[domain]
}

// Fingerprint distinguishes lists that sample different requests. It is 0 only for a nil list. For a list that was made rather than read,
// it is known only after the list has been written.
func (l *TrunkList) Fingerprint() uint32 {
	if l == nil {
		return 0
	}
	return l.fingerprint
}

// FingerprintText returns the fingerprint as 8 hexadecimal digits, "" for no list.
func FingerprintText(n uint32) string {
	if n == 0 {
		return ""
	}
	return hex.EncodeToString(binary.BigEndian.AppendUint32(nil, n))
}
