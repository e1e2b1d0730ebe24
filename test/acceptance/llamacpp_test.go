// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"path/filepath"
	"testing"

	"github.com/moonloop/moonloop/internal/testport"
)

// TestAcceptanceLlamaCPP is the loop of engine_test.go on llama.cpp. It caches single tokens, in four slots, each of which has what its
// last request left there; the application holds as many conversations at once as there are slots. Still, a conversation that
// begins while another one's user thinks takes that one's slot, in production or in the replay. The server saves what was there, unless half
// of it or more is the system text, which both conversations have: then the content of a slot is lost, and chance decides which. With a
// system text of 672 tokens, this made runs differ by up to 3 points. So the system text is short here. Conversations that begin
// together race for slots, which can make one request hit hundreds of tokens more or less. The bound of the mean has room for one such
// race, but not for two, which are likely if other programs run on the machine.
func TestAcceptanceLlamaCPP(t *testing.T) {
	home, dir := setting(t, "MOONLOOP_LLAMACPP"), artefacts(t)
	var table []string
	for _, seed := range seeds(t) {
		t.Run("seed-"+seed, func(t *testing.T) {
			folder := filepath.Join(dir, seed)
			mkdir(t, folder)
			engine := startLlamaCPP(t, home, folder)
			table = append(table, engine.loop(t, home, folder, seed, loopBounds(2))...)
		})
	}
	showTable(t, table)
}

// startLlamaCPP starts a server with additional arguments. It is restarted to empty its cache, which takes less than a second.
func startLlamaCPP(t *testing.T, home, dir string, args ...string) *realEngine {
	t.Helper()
	port := testport.Port(t)
	e := &realEngine{name: "llama.cpp, 4 slots", url: "http://127.0.0.1:" + port, block: 1, conversations: 20, atOnce: 4, app: []string{"--system", "1000"}}
	var server *process
	e.empty = func(t *testing.T) {
		t.Helper()
		if server != nil {
			server.stop(t)
		}
		// One thread: others would busy-wait.
		server = start(t, dir, "llama-server", nil, filepath.Join(home, "llama-server"), append([]string{
			"-m", filepath.Join(home, "model.gguf"), "--host", "127.0.0.1", "--port", port,
			"-c", "65536", "-np", "4", "-t", "1", "--metrics", "--jinja", "--no-warmup", "--alias", "tiny",
		}, args...)...)
		e.ready(t, server)
	}
	e.hits = func(t *testing.T) int64 {
		t.Helper()
		return e.counter(t, "llamacpp:prompt_tokens_cached_total")
	}
	e.empty(t)
	return e
}
