// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/convert"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// spanAt returns a line with one span, which starts and ends at the given seconds, has one resource attribute and the given attributes of
// its own. Attributes are written key=value; a value of digits is a number.
func spanAt(id byte, name string, from, to int, resource string, attributes ...string) string {
	list := func(pairs []string) string {
		var out []string
		for _, pair := range pairs {
			key, value, _ := strings.Cut(pair, "=")
			if strings.Trim(value, "0123456789") == "" {
				out = append(out, fmt.Sprintf(`{"key":%q,"value":{"intValue":%q}}`, key, value))
			} else {
				out = append(out, fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, value))
			}
		}
		return strings.Join(out, ",")
	}
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[{"spans":[{"traceId":"5b8efff798038103d269b633813fc6%02x",`+
		`"spanId":"eee19b7ec3c1b1%02x","name":%q,"startTimeUnixNano":"17952227%02d000000000","endTimeUnixNano":"17952227%02d000000000","attributes":[%s]}]}]}]}`,
		list([]string{resource}), id, id, name, from, to, list(attributes))
}

// TestCalibrationBehindAGateway: behind a gateway that does not forward the trace context, the engine writes spans of a replay's requests
// in separate traces, also for requests that are not rows. The replay's own spans show which of the engine's spans belong to the replay;
// the application's requests are production.
func TestCalibrationBehindAGateway(t *testing.T) {
	engine := func(id byte, from, to int, response, input, output string) string {
		return spanAt(id, "llm_request", from, to, "service.name=vllm", "gen_ai.request.id="+response, "gen_ai.usage.prompt_tokens="+input,
			"gen_ai.usage.completion_tokens="+output, "gen_ai.response.model=tiny")
	}
	chat := func(response string) []string {
		return []string{"gen_ai.operation.name=chat", "gen_ai.request.model=tiny", "gen_ai.response.id=" + response}
	}
	const run = "mooncake.run.id=r"
	file := strings.Join([]string{
		spanAt(1, "calibration", 10, 12, run, chat("chatcmpl-c0")...), engine(2, 10, 11, "chatcmpl-c0", "27", "1"),
		spanAt(3, "warmup", 13, 16, run, chat("chatcmpl-w0")...), engine(4, 14, 15, "chatcmpl-w0", "424", "20"),
		spanAt(5, "chat tiny", 20, 24, run, append(chat("chatcmpl-r0"), "mooncake.row=0", "mooncake.identity=trace", "mooncake.input_length=300",
			"mooncake.output_length=7", "mooncake.timestamp=0")...),
		engine(6, 21, 23, "chatcmpl-r0", "300", "7"),
		spanAt(7, "chat tiny", 30, 34, "service.name=shop", append(chat("chatcmpl-p0"), "gen_ai.usage.input_tokens=500", "gen_ai.usage.output_tokens=9")...),
		engine(8, 31, 33, "chatcmpl-p0", "500", "9"),
	}, "\n")
	for _, replays := range []capture.Replays{capture.ReplaysSeparate, capture.ReplaysDrop} {
		var traces []*trace
		opt := convert.Options{Format: convert.OTLP, Annotate: annotate.Config{Key: testKey(t)}}
		opt.Compile.Replays = replays
		if _, err := convert.Convert(t.Context(), opt, memory(&traces), source("f", file)); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, one := range traces {
			for _, row := range one.rows(t) {
				if !one.Replay {
					got = append(got, fmt.Sprintf("%d/%d", row.InputLength.V, row.OutputLength.V))
				}
			}
		}
		if strings.Join(got, " ") != "500/9" {
			t.Errorf("%s: rows of production %v, want 500/9", replays, got)
		}
	}
}
