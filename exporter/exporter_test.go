// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/exporter/internal/metadata"
	"github.com/moonloop/moonloop/exporter/internal/metadatatest"
	"github.com/moonloop/moonloop/semconv"
)

var update = flag.Bool("update", false, "write the golden files anew")

// logBuffer keeps what is logged.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}
func (b *logBuffer) Sync() error { return nil }

// text returns what was logged so far.
func (b *logBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.String()
}

type started struct {
	exporter.Traces
	cfg *Config
	log *logBuffer
	tel *componenttest.Telemetry
	end func(context.Context) error // shuts it down, once
}

// create makes an exporter through its factory.
func create(t *testing.T, change func(*Config)) started {
	t.Helper()
	s := started{cfg: createDefaultConfig().(*Config), log: new(logBuffer), tel: componenttest.NewTelemetry()}
	s.cfg.Directory, s.cfg.Name = filepath.Join(t.TempDir(), "journal"), "test"
	change(s.cfg)
	if err := s.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	set := metadatatest.NewSettings(s.tel)
	set.BuildInfo = component.BuildInfo{Command: "otelcol-test", Version: "1.2.3"}
	set.Logger = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), s.log, zap.DebugLevel))
	var err error
	if s.Traces, err = NewFactory().CreateTraces(t.Context(), set, s.cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.tel.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func start(t *testing.T, change func(*Config)) started {
	t.Helper()
	s := create(t, change)
	if err := s.Start(t.Context(), componenttest.NewNopHost()); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	s.end = func(ctx context.Context) (err error) {
		once.Do(func() { err = s.Shutdown(ctx) })
		return err
	}
	t.Cleanup(func() { _ = s.end(context.Background()) })
	return s
}

func stop(t *testing.T, s started) {
	t.Helper()
	if err := s.end(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func journals(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

const epoch = int64(1_750_000_000) * 1e9

// production returns n requests of one session, each a client's span with an engine's below it, and a page's span above.
func production(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i := range n {
		trace := pcommon.TraceID{0: 1, 14: byte(i >> 8), 15: byte(i)}
		span := func(id, parent byte, name string) ptrace.Span {
			s := spans.AppendEmpty()
			s.SetTraceID(trace)
			s.SetSpanID(pcommon.SpanID{7: id})
			if parent != 0 {
				s.SetParentSpanID(pcommon.SpanID{7: parent})
			}
			s.SetName(name)
			s.SetStartTimestamp(pcommon.Timestamp(epoch + int64(i)*1e9))
			s.SetEndTimestamp(pcommon.Timestamp(epoch + int64(i)*1e9 + 5e8))
			return s
		}
		page := span(1, 0, "GET /")
		page.Attributes().PutStr(semconv.Session, "00000000000000aa")
		client := span(2, 1, "chat m").Attributes()
		client.PutStr(semconv.Identity, semconv.IdentityNone)
		client.PutStr(semconv.GenAIRequestModel, "m")
		engine := span(3, 2, "llm_request").Attributes()
		engine.PutStr(semconv.Identity, semconv.IdentityEngine)
		ids := engine.PutEmptySlice(semconv.HashIDs)
		for k := range i + 1 {
			ids.AppendEmpty().SetInt(int64(-k))
		}
		engine.PutInt(semconv.BlockSize, 512)
		engine.PutStr(semconv.HashDomain, "0000000a")
		engine.PutInt(semconv.GenAIUsageInputTokens, int64(512*(i+1)))
		engine.PutInt(semconv.GenAIUsageOutputTokens, 8)
	}
	return td
}

// TestGolden writes spans to a journal, compiles the journal, and compares the trace with one that was checked by hand.
func TestGolden(t *testing.T) {
	s := start(t, func(c *Config) { c.Rotation.MaxAge, c.Grace = time.Second, 0 })
	if err := s.ConsumeTraces(t.Context(), production(3)); err != nil {
		t.Fatal(err)
	}
	journal := journals(t, s.cfg.Directory)[0]
	trace := strings.TrimSuffix(journal, ".journal") + ".jsonl"
	for range 10_000 {
		if _, err := os.Stat(strings.TrimSuffix(trace, ".jsonl") + ".meta.json"); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop(t, s)
	for name, file := range map[string]string{"trace.jsonl": trace, "trace.meta.json": strings.TrimSuffix(trace, ".jsonl") + ".meta.json"} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; the log:\n%s", err, s.log.text())
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// count counts the records of all journals.
func count(t testing.TB, dir string) (n int64) {
	t.Helper()
	var sources []capture.Source
	for _, name := range journals(t, dir) {
		sources = append(sources, capture.FileSource(name))
	}
	res, err := capture.Compile(t.Context(), capture.Options{TempDir: t.TempDir()}, capture.Files(filepath.Join(t.TempDir(), "t.jsonl")), sources...)
	if err != nil {
		t.Fatal(err)
	}
	return res.Inferences + res.Contents + res.Links
}

func TestSecondExporter(t *testing.T) {
	first := start(t, func(*Config) {})
	second := create(t, func(c *Config) { c.Directory = first.cfg.Directory })
	if err := second.Start(t.Context(), componenttest.NewNopHost()); err == nil || !strings.Contains(err.Error(), "give each its own name") {
		t.Errorf("start: %v", err)
	}
	if err := second.Shutdown(t.Context()); err != nil {
		t.Errorf("shutdown of what did not start: %v", err)
	}
	third := start(t, func(c *Config) { c.Directory, c.Name = first.cfg.Directory, "other" })
	stop(t, third)
}

func TestQueueWithoutRetry(t *testing.T) {
	s := create(t, func(c *Config) { c.QueueConfig = configoptional.Some(exporterhelper.NewDefaultQueueConfig()) })
	if !strings.Contains(s.log.text(), "sending_queue without retry_on_failure") {
		t.Error("nobody is told that spans may be dropped")
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestMetrics(t *testing.T) {
	s := start(t, func(*Config) {})
	td := production(2)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	spans.At(0).Attributes().PutInt(semconv.Session, 5) // not what the contract says
	spans.AppendEmpty()                                 // no ids
	raw := spans.AppendEmpty()
	raw.SetTraceID(pcommon.TraceID{5})
	raw.SetSpanID(pcommon.SpanID{5})
	raw.Attributes().PutStr(semconv.GenAIOperationName, "chat")
	if err := s.ConsumeTraces(t.Context(), td); err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, "records", "kind=content 0", "kind=inference 4", "kind=link 2", "kind=unannotated 1")
	wantCounts(t, s, "dropped_spans", "reason=no_span_id 0", "reason=no_trace_id 1")
	wantCounts(t, s, "invalid_attributes", "attribute="+semconv.Session+" 1")
	info, err := os.Stat(journals(t, s.cfg.Directory)[0])
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, s, "open_segment", fmt.Sprint("exporter=mooncake ", info.Size()))
	for _, name := range []string{"otelcol_exporter_mooncake_written", "otelcol_exporter_mooncake_sync_duration"} {
		if _, err := s.tel.GetMetric(name); err != nil {
			t.Error(err)
		}
	}
	stop(t, s)
}

// secret does not occur in any name.
const secret = "xyzzy the vault opens at noon plugh"

// TestNoText puts a text in every field of every kind of span, and looks for it in every byte that is written.
func TestNoText(t *testing.T) {
	s := start(t, func(c *Config) { c.Rotation.MaxAge, c.Grace = time.Second, 0 })
	names := []string{"", secret, "chat m", semconv.SpanContent, "llm_request"}
	keys := []string{
		semconv.HashIDs, semconv.BlockSize, semconv.HashDomain, semconv.HashKey, semconv.Cells, semconv.CellsPrefix, semconv.Identity,
		semconv.InputLength, semconv.OutputLength, semconv.Timestamp, semconv.Row, semconv.Session, semconv.Turn, semconv.RunID,
		semconv.Synthetic, semconv.ScheduleOffset, semconv.ScheduleSpread, semconv.Outcome, semconv.OutcomeReason, semconv.ErrorType,
		semconv.GenAIOperationName, semconv.GenAIProviderName, semconv.GenAIConversationID, semconv.GenAIRequestModel,
		semconv.GenAIResponseModel, semconv.GenAIResponseID, semconv.GenAIResponseFinishReasons, semconv.GenAIUsageInputTokens,
		semconv.GenAIUsageOutputTokens, semconv.GenAIUsageCacheReadTokens, semconv.GenAIInputMessages, semconv.GenAIOutputMessages,
		semconv.GenAISystemInstructions, semconv.GenAIPrompt, semconv.GenAICompletion, semconv.TokenGaps, semconv.TokenCounts,
		semconv.GenAIResponseTimeToFirstChunk, "input.value", "llm.prompts", secret,
	}
	id := byte(0)
	for _, name := range names {
		for _, marker := range []string{"", semconv.Identity, semconv.Row, semconv.GenAIOperationName} {
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			rs.SetSchemaUrl(secret)
			fill := func(m pcommon.Map) {
				for i, key := range keys {
					switch i % 3 {
					case 0:
						m.PutStr(key, secret)
					case 1:
						m.PutEmptySlice(key).AppendEmpty().SetStr(secret)
					default:
						m.PutEmptyBytes(key).FromRaw([]byte(secret))
					}
				}
			}
			fill(rs.Resource().Attributes())
			rs.Resource().Attributes().PutStr(semconv.RunID, secret)
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(secret)
			ss.Scope().SetVersion(secret)
			fill(ss.Scope().Attributes())
			for _, shift := range []int{0, 1, 2} {
				keys = append(keys[shift:], keys[:shift]...)
				sp := ss.Spans().AppendEmpty()
				id++
				sp.SetTraceID(pcommon.TraceID{id})
				sp.SetSpanID(pcommon.SpanID{id})
				sp.SetName(name)
				sp.TraceState().FromRaw(secret)
				sp.SetStartTimestamp(pcommon.Timestamp(epoch))
				sp.SetEndTimestamp(pcommon.Timestamp(epoch + 1e9))
				sp.Status().SetCode(ptrace.StatusCodeError)
				sp.Status().SetMessage(secret)
				fill(sp.Attributes())
				switch marker {
				case semconv.Identity:
					sp.Attributes().PutStr(semconv.Identity, semconv.IdentityText)
				case semconv.Row:
					sp.Attributes().PutInt(semconv.Row, int64(id))
					sp.Attributes().PutInt(semconv.InputLength, 5)
				case semconv.GenAIOperationName:
					sp.Attributes().PutStr(marker, "chat")
				}
				sp.Attributes().PutStr(semconv.GenAIUsageInputTokens, "5")
				sp.Attributes().PutStr(semconv.GenAIUsageOutputTokens, "5")
				if shift > 0 { // so that some rows are written
					sp.Status().SetCode(ptrace.StatusCodeUnset)
					sp.Attributes().Remove(semconv.ErrorType)
					sp.Attributes().Remove(semconv.Outcome)
				}
				e := sp.Events().AppendEmpty()
				e.SetName(secret)
				fill(e.Attributes())
				e = sp.Events().AppendEmpty()
				e.SetName(semconv.EventToken)
				e.Attributes().PutStr(semconv.TokenIndex, secret)
				l := sp.Links().AppendEmpty()
				l.TraceState().FromRaw(secret)
				fill(l.Attributes())
			}
			if err := s.ConsumeTraces(t.Context(), td); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 10_000 {
		if strings.Contains(s.log.text(), "segment is compiled") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop(t, s)

	words := strings.Fields(secret)
	clean := func(where string, b []byte) {
		for _, w := range words {
			if len(w) > 4 && bytes.Contains(b, []byte(w)) {
				t.Errorf("%s has %q", where, w)
			}
		}
	}
	clean("the log", []byte(s.log.text()))
	traces := 0
	err := filepath.WalkDir(s.cfg.Directory, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode().Perm())
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		clean("the name of a file", []byte(filepath.Base(name)))
		clean(filepath.Base(name), b)
		if strings.HasSuffix(name, ".jsonl") && len(b) > 0 {
			traces++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if traces == 0 {
		t.Errorf("no trace was compiled, so the test proves nothing; the log:\n%s", s.log.text())
	}
	if n := count(t, s.cfg.Directory); n != int64(id) {
		t.Errorf("%d records of %d spans", n, id)
	}
}

func TestPushAfterDeadline(t *testing.T) {
	s := start(t, func(*Config) {})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.ConsumeTraces(ctx, production(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	} else if consumererror.IsPermanent(err) {
		t.Errorf("%v: the sender is told not to try again", err)
	}
	stop(t, s)
	if n := count(t, s.cfg.Directory); n != 0 {
		t.Errorf("%d records were written for a sender who had gone", n)
	}
}

func TestFactory(t *testing.T) {
	f := NewFactory()
	if f.Type() != metadata.Type {
		t.Errorf("type %v", f.Type())
	}
	if _, err := f.CreateLogs(t.Context(), exportertest.NewNopSettings(f.Type()), f.CreateDefaultConfig()); err == nil {
		t.Error("the factory creates an exporter of logs, want one of traces only")
	}
}
