// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/send"
)

// floor is the least that a client on net/http can do: it reads each line and scans it, with the agent's own scanner, and
// keeps nothing. What an agent costs above it is what its measuring costs.
type floor struct{}

func (floor) name() string { return "floor: bare net/http and the scanner" }

func (floor) stream(ctx context.Context, b *bench, dir, url string, w work) (*process, error) {
	return run(ctx, 2*time.Minute, how{dir: dir, name: "floor", core: b.clientCore}, b.self,
		"-floor", url, "-streams", strconv.Itoa(w.streams), "-tokens", strconv.Itoa(w.tokens), "-within", w.within.String())
}

// read reads that all tokens came; there are no figures.
func (floor) read(dir string, t *truth) (*report, error) {
	var n int
	if _, err := fmt.Sscanf(content(filepath.Join(dir, "floor.log")), "%d tokens", &n); err != nil || n != t.tokens() {
		return nil, fmt.Errorf("the floor read %d tokens, the engine wrote %d: %w", n, t.tokens(), err)
	}
	return &report{coalesced: nan, verdict: "–"}, nil
}

// promptBody is a request for a reply of this many tokens, to a prompt of one block of token ids.
func promptBody(tokens int) string {
	return `{"model":"m","stream":true,"ignore_eos":true,"max_tokens":` + strconv.Itoa(tokens) +
		`,"prompt":[1` + strings.Repeat(",12345", 511) + `]}`
}

// runFloor is the whole of the floor's process.
func runFloor(ctx context.Context, out io.Writer, url string, w work) error {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: w.streams, DisableCompression: true}}
	defer client.CloseIdleConnections()
	body := promptBody(w.tokens)
	var all sync.WaitGroup
	counts := make([]int, w.streams)
	errs := make([]error, w.streams)
	for i := range w.streams {
		all.Go(func() { counts[i], errs[i] = readStream(ctx, client, url+"/v1/completions", body) })
		select {
		case <-ctx.Done():
		case <-time.After(w.within / time.Duration(w.streams)):
		}
	}
	all.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	fmt.Fprintf(out, "%d tokens\n", total)
	return errors.Join(errs...)
}

// readStream sends one request and counts the events with a token.
func readStream(ctx context.Context, client *http.Client, url, body string) (tokens int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	reply, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer reply.Body.Close() //nolint:errcheck // it was read to its end
	if reply.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("status %s", reply.Status)
	}
	var scanner send.TokenScanner
	for r := bufio.NewReader(reply.Body); ; {
		text, err := r.ReadSlice('\n')
		if data, ok := bytes.CutPrefix(text, []byte("data: ")); ok && scanner.Token(data) {
			tokens++
		}
		if errors.Is(err, io.EOF) {
			return tokens, nil
		}
		if err != nil {
			return tokens, err
		}
	}
}
