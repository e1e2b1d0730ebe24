// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package blockhash_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/moonloop/moonloop/blockhash"
)

// Two prompts with the same beginning have equal values for it, and the values tell nothing else.
func ExampleHasher() {
	key, err := blockhash.NewKey([]byte(strings.Repeat("a secret of all collectors. ", 2)))
	if err != nil {
		log.Fatal(err)
	}
	prompt := func(question string) blockhash.Chain {
		hasher, err := blockhash.NewHasher(key, blockhash.TextDomain(key))
		if err != nil {
			log.Fatal(err)
		}
		hasher.Role("system")
		hasher.Text(strings.Repeat("Answer in one sentence. ", 20))
		hasher.Role("user")
		hasher.Text(question)
		return hasher.Chain()
	}
	a, b := prompt("What is a prefix cache?"), prompt("What is a router?")
	shared := 0
	for shared < min(len(a.Cells), len(b.Cells)) && a.Cells[shared] == b.Cells[shared] {
		shared++
	}
	fmt.Printf("%d and %d bytes of text, the first %d are the same\n", a.Bytes, b.Bytes, shared*blockhash.CellSize)
	fmt.Println("the same to the end:", a.Tail == b.Tail)
	// Output:
	// 517 and 511 bytes of text, the first 384 are the same
	// the same to the end: false
}
