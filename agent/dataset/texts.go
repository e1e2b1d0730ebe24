// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package dataset

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxValue is the maximum size of one element of a file, in bytes.
const maxValue = 64 << 20

// errElement is the error for an element that is not a text.
var errElement = errors.New("has no text: want a string, or an object with text, prompt, content, text_input, messages or conversations")

// texts calls yield for each text of a file, in order, until yield returns false. The file is one JSON array (like ShareGPT's), a sequence
// of JSON values (JSONL), or plain text, whose paragraphs are its texts.
func texts(in *bufio.Reader, yield func(text string) bool) error {
	first, err := firstByte(in)
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return cutOff(err)
	case first != '[' && first != '{':
		return paragraphs(in, yield)
	}
	source := &bounded{in: in}
	dec := jsontext.NewDecoder(source, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	source.read = dec.InputOffset
	if first == '[' {
		_, _ = dec.ReadToken() // it is buffered
	}
	for n := 1; ; n++ {
		if k := dec.PeekKind(); k == ']' {
			return nil
		}
		value, err := dec.ReadValue()
		switch {
		case errors.Is(err, io.EOF) && first == '{':
			return nil
		case errors.Is(err, errTooLong):
			return fmt.Errorf("element %d %w", n, errTooLong)
		case err != nil && source.err != nil:
			return cutOff(source.err)
		case err != nil:
			return fmt.Errorf("element %d is not JSON: syntax error after byte %d", n, dec.InputOffset()) // the decoder's error would quote the file
		}
		more, err := element(value, yield)
		if err != nil {
			return fmt.Errorf("element %d %w", n, err)
		}
		if !more {
			return nil
		}
	}
}

// cutOff returns the error for a file whose rest cannot be read.
func cutOff(err error) error {
	return fmt.Errorf("cannot be read to its end: %w; use a complete copy of the file", err)
}

// firstByte skips white space and returns what follows it.
func firstByte(in *bufio.Reader) (byte, error) {
	if mark, err := in.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3)
	}
	for {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(b)) {
			return b, in.UnreadByte()
		}
	}
}

// paragraphs reads plain text. A paragraph ends with an empty line, or where it is long.
func paragraphs(in *bufio.Reader, yield func(string) bool) error {
	const long = 1 << 16
	var text []byte
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && !errors.Is(err, io.EOF) {
			return cutOff(err)
		}
		text = append(text, line...)
		end := errors.Is(err, io.EOF)
		if end || len(bytes.TrimSpace(line)) == 0 || len(text) >= long {
			if len(text) > 0 && !yield(string(text)) {
				return nil
			}
			text = text[:0]
		}
		if end {
			return nil
		}
	}
}

// element yields the texts of one value. Each turn of a conversation is a text.
func element(value jsontext.Value, yield func(string) bool) (more bool, err error) {
	if value.Kind() == '"' {
		var text string
		if json.Unmarshal(value, &text) != nil {
			return false, errElement
		}
		return yield(text), nil
	}
	type turn struct{ Value, Content json.RawMessage }
	var e struct {
		Text, Prompt, Content, Messages, Conversations, Conversation json.RawMessage

		TextInput json.RawMessage `json:"text_input"`
	}
	if value.Kind() != '{' || json.Unmarshal(value, &e) != nil {
		return false, errElement
	}
	found := false
	say := func(raw json.RawMessage) bool {
		var text string
		if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &text) != nil {
			return true
		}
		found = true
		return yield(text)
	}
	for _, raw := range []json.RawMessage{e.Text, e.Prompt, e.Content, e.TextInput} {
		if !say(raw) {
			return false, nil
		}
	}
	for _, raw := range []json.RawMessage{e.Messages, e.Conversations, e.Conversation} {
		var turns []turn
		if len(raw) == 0 || json.Unmarshal(raw, &turns) != nil {
			continue
		}
		found = true // an empty conversation is valid
		for _, t := range turns {
			if !say(t.Value) || !say(t.Content) {
				return false, nil
			}
		}
	}
	if !found {
		return false, errElement
	}
	return true, nil
}

var errTooLong = fmt.Errorf("is longer than %d MiB", maxValue>>20)

// bounded reads at most maxValue bytes beyond those that a decoder has used.
type bounded struct {
	in   io.Reader
	read func() int64 // bytes that the decoder has used
	n    int64
	err  error // of in
}

// Read implements [io.Reader].
func (b *bounded) Read(p []byte) (int, error) {
	if b.n-b.read() > maxValue {
		return 0, errTooLong
	}
	n, err := b.in.Read(p)
	b.n += int64(n)
	if !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}
