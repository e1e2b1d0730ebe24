// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/moonloop/moonloop/genai"
	"github.com/moonloop/moonloop/semconv"
)

// forge makes hostile telemetry. Its ids are its own.
type forge struct {
	t testing.TB
	*canaries
	scale int // size of the attack: 1 in short runs
	ids   uint64
}

func (f *forge) trace() pcommon.TraceID {
	f.ids++
	id := pcommon.TraceID{0: 2}
	binary.BigEndian.PutUint64(id[8:], f.ids)
	return id
}

func (f *forge) span() pcommon.SpanID {
	f.ids++
	id := pcommon.SpanID{0: 2}
	binary.BigEndian.PutUint32(id[4:], uint32(f.ids))
	return id
}

// base is the start of hostile spans: 2026-01-01.
const base = pcommon.Timestamp(1_767_225_600_000_000_000)

// plain adds a span that is unrelated to models.
func (f *forge) plain(to ptrace.SpanSlice) ptrace.Span {
	s := to.AppendEmpty()
	s.SetTraceID(f.trace())
	s.SetSpanID(f.span())
	s.SetName("work")
	s.SetStartTimestamp(base)
	s.SetEndTimestamp(base + 1e9)
	return s
}

// request adds the span of a request to a model.
func (f *forge) request(to ptrace.SpanSlice) ptrace.Span {
	s := f.plain(to)
	s.SetName("chat llama")
	a := s.Attributes()
	a.PutStr(semconv.GenAIOperationName, "chat")
	a.PutStr(semconv.GenAIRequestModel, "llama")
	a.PutInt(semconv.GenAIUsageInputTokens, 100)
	a.PutInt(semconv.GenAIUsageOutputTokens, 10)
	return s
}

// spans returns telemetry with the spans that fill adds, encoded.
func (f *forge) spans(fill func(ptrace.SpanSlice)) []byte {
	return f.traces(func(r ptrace.ResourceSpans) { fill(r.ScopeSpans().AppendEmpty().Spans()) })
}

func (f *forge) traces(fill func(ptrace.ResourceSpans)) []byte {
	td := ptrace.NewTraces()
	fill(td.ResourceSpans().AppendEmpty())
	return f.encoded(ptraceotlp.NewExportRequestFromTraces(td).MarshalProto())
}

func (f *forge) logs(fill func(plog.LogRecordSlice)) []byte {
	ld := plog.NewLogs()
	fill(ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords())
	return f.encoded(plogotlp.NewExportRequestFromLogs(ld).MarshalProto())
}

func (f *forge) metrics(fill func(pmetricotlp.ExportRequest)) []byte {
	r := pmetricotlp.NewExportRequest()
	fill(r)
	return f.encoded(r.MarshalProto())
}

func (f *forge) encoded(body []byte, err error) []byte {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	return body
}

// names returns the names of all attributes that are read; those of which only a prefix or suffix is known are completed.
func names() (all []string) {
	for name := range genai.Names() {
		all = append(all, string(bytes.ReplaceAll([]byte(name), []byte("*"), []byte("x"))))
	}
	return append(all, semconv.Identity, semconv.Row, semconv.Session, semconv.Timestamp, semconv.InputLength, semconv.OutputLength,
		semconv.ScheduleOffset, semconv.ScheduleSpread, semconv.Synthetic, semconv.Outcome, semconv.HashIDs, semconv.BlockSize, semconv.HashDomain,
		semconv.HashKey, semconv.Cells, semconv.CellsPrefix, semconv.TokenGaps, semconv.TokenCounts, semconv.TokenIndex,
		semconv.ErrorType, "exception.type", "exception.message", "url.full", "url.path", "server.address", "server.port", "http.request.header.authorization")
}

// wrong sets v to the n-th wrong value. The values are of every type, and each is wrong for most names. Each text in them is too long to be
// kept.
func (f *forge) wrong(v pcommon.Value, n int) {
	text := f.long("prompt", 1100)
	switch n {
	case 0:
		v.SetStr(text)
	case 1:
		v.SetInt(math.MinInt64)
	case 2:
		v.SetInt(math.MaxInt64)
	case 3:
		v.SetDouble(math.NaN())
	case 4:
		v.SetDouble(math.Inf(-1))
	case 5:
		v.SetBool(true)
	case 6:
		v.SetEmptyBytes().FromRaw([]byte(text))
	case 7:
		list := v.SetEmptySlice()
		list.AppendEmpty().SetStr(text)
		list.AppendEmpty().SetEmptyMap().PutStr(text, text)
	case 8:
		v.SetEmptyMap().PutEmptySlice("a").AppendEmpty().SetStr(text)
	case 9: // empty
	}
}

const wrongs = 10

// scatter replaces a text, wherever it occurs in an encoded request, with as many bytes of invalid UTF-8.
func scatter(body []byte, text string) []byte {
	return bytes.ReplaceAll(body, []byte(text), bytes.Repeat([]byte{0xff, 0xc0, 0x80}, len(text)/3+1)[:len(text)])
}
