// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/moonloop/moonloop/internal/splitmix"
)

const pathEmbeddings = "/v1/embeddings"

// embeddingsFormat writes the replies of /v1/embeddings: a vector that depends only on the seed and the prompt, and no tokens.
type embeddingsFormat struct{ *format }

func (f embeddingsFormat) whole() []byte {
	b := []byte(`{"object":"list","data":[{"object":"embedding","index":0,"embedding":`)
	b = append(appendQuoted(append(f.vector(b), `}],"model":`...), f.request.facts.Model), '}')
	if f.shape.usage == usageNone {
		return b
	}
	return fmt.Appendf(b[:len(b)-1], `,"usage":{"prompt_tokens":%d,"total_tokens":%d}}`, f.promptTokens, f.promptTokens)
}

// vector appends the vector, each of its numbers between -1 and 1.
func (f embeddingsFormat) vector(b []byte) []byte {
	n := cmp.Or(f.request.dimensions, usualDimensions)
	var raw []byte
	for i := range n {
		v := float32(2*splitmix.Uniform(splitmix.Next(f.plan.key^uint64(i))) - 1)
		if f.request.base64 {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			continue
		}
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		b = strconv.AppendFloat(append(b, sep), float64(v), 'g', -1, 32)
	}
	if f.request.base64 {
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), raw), '"')
	}
	return append(b, ']')
}
