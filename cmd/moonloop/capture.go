// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/moonloop/moonloop/blockhash"
	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// hashKeyEnv is the environment variable that holds the key unless another one is named.
const hashKeyEnv = "MOONLOOP_HASH_KEY"

// defaultRequestLimit is the memory that the requests being received may take together, in bytes: four times the largest.
const defaultRequestLimit = 4 * maxMessageMiB << 20

// captureFlags are the flags of "moonloop capture".
type captureFlags struct {
	traceFlags
	journal     string
	keepJournal bool
	grpc, http  string
	listenSecrets
	requestLimit      string
	duration, idle    time.Duration
	keyEnv            string
	sessionKeys, deny []string
	progress          string
}

func newCaptureCommand() *cobra.Command {
	var f captureFlags
	cmd := &cobra.Command{
		Use:   "capture --out TRACE",
		Short: "Listen for OpenTelemetry, and make a trace of the model requests in it",
		Long: `Capture does what a Collector with the receiver and the exporter of this project does, without a Collector: it
listens for OTLP on localhost, and on Ctrl-C writes a replayable trace of the requests to models that it saw. The
spans of a replay become a trace of their own, TRACE.run-ID.jsonl beside TRACE.

Point any application or gateway at it that writes GenAI spans, and let it record the content of prompts: that is
what tells which prompts begin alike. It is hashed under a key on arrival; no text is ever written. Spans and the prompts
in log records are taken. Metrics are accepted, so that their senders have no errors, counted and thrown away.

  OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 \
  OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true my-application

KEY. Prompts that are hashed under one key can be compared. $` + hashKeyEnv + ` holds it, at least 32 random bytes, for
example of "openssl rand -hex 32". Without, each capture has a key of its own.

OTHER MACHINES. An address that they can reach should have --tls-cert and --tls-key, for telemetry comes with its prompts,
and --api-key-file or --client-ca, so that not everybody may send. Senders then need, beside an https:// endpoint,
OTEL_EXPORTER_OTLP_CERTIFICATE and OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20KEY".

JOURNAL. What arrives is on the disk before its sender is thanked, in a folder beside the trace, which goes when the trace
is there. A capture that was killed goes on when it is started again; or "moonloop compile" makes a trace of its journal.

EXIT STATUS

  0    a trace was written
  1    there was no request to write, or writing failed; the journal stays
  2    usage error, the address is not free, or the trace exists
  130  stopped at once by a second signal; the journal stays`,
		Example: `  moonloop capture --out prod.jsonl
  moonloop capture --out prod.jsonl --duration 1h --http "" --session-key app.chat_id
  moonloop replay prod.jsonl --url http://engine:8000`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return hintError{fmt.Errorf("capture reads nothing, but listens: %q has no meaning to it", args[0]), "--out names the trace"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runCapture(cmd, f) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.addOutput(fs)
	fs.StringVar(&f.journal, "journal", "", "folder of the journal (default: the trace's name with .journal)")
	fs.BoolVar(&f.keepJournal, "keep-journal", false, "keep the journal, for moonloop compile")
	fs.StringVar(&f.grpc, "grpc", "127.0.0.1:4317", `address for OTLP over gRPC; port 0 takes a free one, "" is not at all`)
	fs.StringVar(&f.http, "http", "127.0.0.1:4318", "address for OTLP over HTTP, likewise")
	f.listenSecrets.register(fs)
	fs.StringVar(&f.requestLimit, "request-limit", humanize.IBytes(defaultRequestLimit),
		"memory that the requests being received may take together; what comes above it is told to try again")
	fs.DurationVar(&f.duration, "duration", 0, "stop after so long (0 = on Ctrl-C)")
	fs.DurationVar(&f.idle, "idle", 0, "stop when no span has come for so long after the first (0 = never)")
	fs.StringVar(&f.keyEnv, "key-env", hashKeyEnv, "environment variable that holds the hash key")
	fs.StringArrayVar(&f.sessionKeys, "session-key", nil, "attribute that holds a session id, before the known ones (repeatable)")
	fs.StringArrayVar(&f.deny, "deny", nil, "attribute to remove from every span on arrival; a * at the end stands for any ending (repeatable)")
	fs.IntVar(&f.blockSize, "block-size", mooncake.BlockSize, "tokens per hash id of production; a replay has that of its trace")
	f.addRequests(fs, "")
	fs.StringVar(&f.progress, "progress", "auto", "progress on standard error: auto, bar, lines or none")
	return cmd
}

// settings checks everything that can be checked without touching the network or the disk.
func (f *captureFlags) settings(cmd *cobra.Command) (capture.Options, pipelineConfig, []string, error) {
	compile, err := f.options(cmd)
	errs := []error{err, choice("progress", f.progress, "auto", "bar", "lines", "none")}
	if f.duration < 0 || f.idle < 0 {
		errs = append(errs, errors.New("--duration and --idle: want a time of 0 or more"))
	}
	if f.grpc == "" && f.http == "" {
		errs = append(errs, errors.New("--grpc and --http are both empty: there is nothing to listen on"))
	}
	token, notices, err := f.listenSecrets.check()
	if err != nil {
		errs = append(errs, err)
	}
	for _, l := range []struct{ flag, address string }{{"grpc", f.grpc}, {"http", f.http}} {
		if l.address == "" {
			continue
		}
		notice, err := checkListen(l.flag, l.address, f.missing())
		if err != nil {
			errs = append(errs, err)
		}
		if notice != "" {
			notices = append(notices, notice)
		}
	}
	limit, err := parseSize("request-limit", f.requestLimit, 1<<20, "from 1MiB on")
	errs = append(errs, err, checkAnnotation(annotate.Config{BlockSize: f.blockSize, SessionKeys: f.sessionKeys, Deny: f.deny}))
	key, notice, err := hashKey(f.keyEnv)
	if err != nil {
		errs = append(errs, err)
	}
	if notice != "" {
		notices = append(notices, notice)
	}
	listen := pipelineConfig{
		grpc: f.grpc, http: f.http, tls: f.serverTLS(), token: token, requestLimit: limit, blockSize: f.blockSize, key: key, sessionKeys: f.sessionKeys, deny: f.deny,
	}
	return compile, listen, notices, errors.Join(errs...)
}

// hashKey returns the key that the environment holds, or a random one, and then a notice.
func hashKey(env string) (key, notice string, err error) {
	switch key = strings.TrimSpace(os.Getenv(env)); {
	case key == "" && env == hashKeyEnv:
		return randomKey(), "no key in " + env + ": a random one is taken, under which these prompts match those of no other trace", nil
	case key == "":
		return "", "", fmt.Errorf("hash key: environment variable %s is empty or not set", env)
	}
	if _, err := blockhash.NewKey([]byte(key)); err != nil {
		return "", "", hintError{fmt.Errorf("hash key in %s: %w", env, err), "openssl rand -hex 32 makes one"}
	}
	return key, "", nil
}

// randomKey returns a hash key that nobody else has.
func randomKey() string {
	var b [blockhash.KeySize]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
