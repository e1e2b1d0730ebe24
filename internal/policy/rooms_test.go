// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"go/parser"
	"go/token"
	"path"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rooms are the parts of the repository from top to bottom. A room may import only itself and the rooms below it, so a reader who knows
// these rooms knows everything of ours that it depends on.
var rooms = []string{
	"internal/policy",      // tests of the repository
	"test",                 // tests of the whole system
	"bench",                // the replay next to other load generators
	"dashboards",           // writes the Grafana dashboards
	"cmd",                  // the commands
	"internal/objects",     // objects of s3:// URLs; only the command needs its library
	"internal/demo",        // the demonstration
	"internal/live",        // a running replay, on a terminal
	"internal/service",     // replays by HTTP
	"collect",              // receiver and exporter in one process
	"shadow",               // production, replayed minutes behind
	"convert",              // files of any format to traces
	"study",                // questions over several runs
	"agent",                // replay
	"encoding",             // Collector encoding: records in messages
	"processor",            // Collector processor
	"receiver",             // Collector receiver
	"connector",            // Collector connector: cache potential
	"exporter",             // Collector exporter
	"capture",              // journals, and journals to traces
	"genai",                // dialects to one inference record
	"blockhash",            // text and tokens to block ids
	"mooncake",             // the row, its file and its figures
	"semconv",              // names
	"examples",             // files to copy
	"internal/simulator",   // an engine to test against
	"internal/bearer",      // the one check of a bearer key
	"internal/heap",        // the one priority queue
	"internal/ondisk",      // files and arrays beyond memory
	"internal/jsonrows",    // objects in a file, however they are laid out
	"internal/parquetrows", // rows of Parquet as JSON lines
	"internal/gcpace",      // the garbage collector of a command
	"internal/timeslice",   // how soon a command runs on a busy core
	"internal/kernelstamp", // when bytes came in, by the kernel
	"internal/splitmix",    // pseudo-random numbers
	"internal/atomicfile",  // files that are written whole, and locks
	"internal/term",        // numbers, tables and progress for people
	"internal/tlsfile",     // files of keys and certificates
	"internal/testcert",    // certificates for tests
	"internal/tests3",      // an S3 server in memory for tests
	"internal/testschema",  // JSON Schemas of types, for tests
	"internal/testport",    // ports for programs that tests run
	"internal/testpipe",    // a network in memory for tests in virtual time
	"internal/testprogram", // the commands, as programs that tests run
	"internal/testwire",    // encoded OTLP for tests

	"internal/testproducers", // telemetry of producers for tests
}

// ban forbids a room an import that the order alone would allow.
type ban struct {
	room, target string // target is an import path, with everything below it
	tests        bool   // whether the ban applies to the room's tests, too
	reason       string
}

var bans = []ban{
	{"agent", module + "/receiver", true, "a replay does not know of the Collector"},
	{"agent", module + "/exporter", true, "a replay does not know of the Collector"},
	{"agent", module + "/internal/simulator", false, "the simulator is a test engine; production does not need it"},
	{"agent", module + "/internal/gcpace", true, "the garbage collector belongs to the whole process, so only a command may set it"},
	{"agent", module + "/internal/timeslice", true, "time slices belong to the whole process, so only a command may set them"},
	{"collect", module + "/convert", true, "a capture reads no files but its journal"},
	{"collect", module + "/agent", true, "a capture sends nothing"},
	{"shadow", module + "/internal/simulator", false, "the simulator is a test engine; production does not need it"},
	{"collect", module + "/internal/simulator", false, "the simulator is a test engine; production does not need it"},
	{"receiver", module + "/exporter", false, "the two share only the annotated span"},
	{"processor", module + "/exporter", true, "the two share only the annotated span"},
	{"exporter", module + "/receiver", true, "the two share only the annotated span"},
	{"capture", "go.opentelemetry.io/collector", true, "a journal is written, read and compiled without the Collector and its pdata"},
	{"internal/simulator", "github.com/openai", true, "the client takes long to compile, and lint compiles it once more: use it in test/clients only"},
	{"internal/simulator", "github.com/anthropics", true, "the client takes long to compile, and lint compiles it once more: use it in test/clients only"},
	{"genai", module + "/mooncake", true, "a dialect becomes an inference record, not a row of a file"},
}

// TestImportsPointDown checks every file against the order of the rooms and the bans.
func TestImportsPointDown(t *testing.T) {
	eachGoFile(t, func(name string, content []byte) {
		file, err := parser.ParseFile(token.NewFileSet(), name, content, parser.ImportsOnly)
		if err != nil {
			t.Error(err)
			return
		}
		for _, spec := range file.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Errorf("%s: import %s: %v", name, spec.Path.Value, err)
				continue
			}
			if reason := forbidden(name, target); reason != "" {
				t.Errorf("%s imports %s: %s", name, target, reason)
			}
		}
	})
}

// forbidden returns why a file must not import a package, or "".
func forbidden(file, target string) string {
	folder := path.Dir(file)
	room := roomOf(folder)
	if room < 0 {
		return fmt.Sprintf("%s is in no room: give the new room its place in the order of internal/policy", folder)
	}
	for _, b := range bans {
		if b.room == rooms[room] && within(target, b.target) && (b.tests || !strings.HasSuffix(file, "_test.go")) {
			return b.reason
		}
	}
	local, ours := strings.CutPrefix(target, module+"/")
	if !ours {
		return ""
	}
	switch to := roomOf(local); {
	case to < 0:
		return "the target is in no room"
	case to < room:
		return fmt.Sprintf("imports point down, and %s stands above %s", rooms[to], rooms[room])
	}
	return ""
}

// roomOf returns the index of the room that holds a folder, or -1.
func roomOf(folder string) int {
	for i, room := range rooms {
		if within(folder, room) {
			return i
		}
	}
	return -1
}

// within reports whether a slash-separated path is at or below another.
func within(name, top string) bool {
	return name == top || strings.HasPrefix(name, top+"/")
}

func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		file, target, want string
	}{
		{"agent/agent.go", module + "/mooncake", ""},                // down
		{"agent/send/client.go", module + "/agent", ""},             // within the room
		{"agent/agent.go", "net/http", ""},                          // not ours
		{"agent/agent_test.go", module + "/internal/simulator", ""}, // a test may
		{"agent/agent.go", module + "/internal/simulator", "the simulator is a test engine; production does not need it"},
		{"agent/agent_test.go", module + "/receiver", "a replay does not know of the Collector"},
		{"capture/journal/record.go", "go.opentelemetry.io/collector/pdata/ptrace", "a journal is written, read and compiled without the Collector and its pdata"},
		{"mooncake/row.go", module + "/agent/send", "imports point down, and agent stands above mooncake"},
		{"mooncake/row_test.go", module + "/agent", "imports point down, and agent stands above mooncake"}, // tests too
		{"mooncakes/row.go", "fmt", "mooncakes is in no room: give the new room its place in the order of internal/policy"},
		{"cmd/moonloop/main.go", module + "/util", "the target is in no room"},
	} {
		if diff := cmp.Diff(c.want, forbidden(c.file, c.target)); diff != "" {
			t.Errorf("%s imports %s (-want +got):\n%s", c.file, c.target, diff)
		}
	}
}
