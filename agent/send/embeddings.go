// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/json"
)

// This file reads replies of /v1/embeddings, which are whole and have no tokens.

// embedding reads a reply. The reply is complete if there is a vector for the input, as a list of numbers or in base64.
func (s *stream) embedding(data []byte) {
	c := &s.chunk
	if ok := c.parse(data); ok && c.failed {
		s.complain(data)
		return
	}
	var reply struct {
		Data []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	if json.Unmarshal(data, &reply) != nil {
		s.fail(ClassProtocol, "", "the reply is not a JSON object with embeddings")
		return
	}
	s.x.Embedding = true
	if c.hasUsage {
		s.x.Usage = c.usage
		s.x.Usage.Completion = Unknown // nothing was generated
	}
	s.x.ResponseID, s.x.Model = decoded(c.id), s.names.model.of(c.model)
	for _, d := range reply.Data {
		if v := d.Embedding; len(v) > len("[]") && (v[0] == '"' || v[0] == '[' && bytes.TrimSpace(v[1:])[0] != ']') {
			s.seen, s.finished = 1, 1
			return
		}
	}
	s.fail(ClassIncomplete, "", "the reply contains no embedding")
}
