// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestCleaned(t *testing.T) {
	const secret = "Dear doctor, my left knee has hurt since March and nothing helps."
	body := `{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{"role":"user","content":"` + secret + `"}],"max_completion_tokens":12}`
	big := `{"prompt":"` + strings.Repeat("x y ", 100_000) + secret + strings.Repeat(" z", 100_000) + `"}`
	for _, c := range []struct {
		name, message, body, want string
	}{
		{"limits are kept", "This model's maximum context length is 131072 tokens. However, you requested 131082 tokens.", body, "This model's maximum context length is 131072 tokens. However, you requested 131082 tokens."},
		{"names are kept", "The model `meta-llama/Llama-3.1-8B-Instruct` does not know \"max_completion_tokens\"", body, "The model `meta-llama/Llama-3.1-8B-Instruct` does not know \"max_completion_tokens\""},
		{"an echo is taken out", "bad input: '" + secret + "' at 5", body, "bad input: '[...]' at 5"},
		{"a piece of the prompt is removed", "bad input near my left knee has hurt since: no", body, "bad input near[...]: no"},
		{"an echo across the pieces of a large body", "bad input: <" + secret + ">", big, "bad input: <[...]>"},
		{"an echo that the cut would have shortened", strings.Repeat("e", 190) + " " + secret, body, strings.Repeat("e", 190) + " [...]"},
		{"other scripts are masked", "bad: 你好世界 ok", body, "bad: ? ok"},
		{"control characters are masked", "a\x1b[31mb\r\n\tc", body, "a?[31mb c"},
		{"keys are hidden", "key sk-1234567890 is wrong", body, "key [hidden] is wrong"},
		{"a message is cut off at 200 bytes", strings.Repeat("ab ", 200), "", strings.TrimRight(strings.Repeat("ab ", 200)[:200], " ")},
		{"an endless word of the prompt is removed", "bad " + strings.Repeat("QUJD", 30), `{"image":"` + strings.Repeat("QUJD", 40) + `"}`, "bad [...]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, open := range []func() io.Reader{
				func() io.Reader { return strings.NewReader(c.body) },
				func() io.Reader { return iotest.HalfReader(strings.NewReader(c.body)) },
			} {
				got := cleaned(c.message, []string{"sk-1234567890"}, Body{Size: int64(len(c.body)), Open: open}, maxServerMessage)
				if got != c.want {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			}
		})
	}
}

func FuzzCleaned(f *testing.F) {
	f.Add("bad input: the quick brown fox jumps", "the quick brown fox jumps over the dog")
	f.Fuzz(func(t *testing.T, message, body string) {
		got := cleaned(message, nil, Body{Size: int64(len(body)), Open: func() io.Reader { return strings.NewReader(body) }}, maxServerMessage)
		if len(got) > maxServerMessage || strings.ContainsFunc(got, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Fatalf("%q", got)
		}
		// No run of 16 bytes that is in the body and is more than one word is left, except runs that only the removal has formed.
		for part := range strings.SplitSeq(got, echoed) {
			for i := 0; i+echoRun <= len(part); i++ {
				run := part[i : i+echoRun]
				if !isWord([]byte(run)) && strings.Contains(body, run) && strings.Contains(printable(message, 4*maxMessage), run) {
					t.Fatalf("%q is still in %q", run, got)
				}
			}
		}
	})
}

// TestNothingLeaks sends requests whose secrets come back in every part of a reply that a server controls.
func TestNothingLeaks(t *testing.T) {
	for name, by := range ways {
		t.Run(name, func(t *testing.T) {
			const prompt, key, header = "canary prompt of several words", "canary-key-0123456789", "canary-header-0123456789"
			all := prompt + " " + key + " " + header
			for _, reply := range []string{
				answer("400 Bad Request", "application/json", `{"error":{"message":"`+all+`","type":"`+all+`","code":"`+all+`"}}`),
				answer("400 Bad Request", "application/json", `{"detail":[{"msg":"`+all+`","input":"`+all+`"}]}`),
				answer("500 Oops", "text/plain", all),
				answer("500 "+all, "text/plain", ""),
				answer("200 OK", "text/html", all),
				answer("200 OK", strings.ReplaceAll(all, " ", "-")+"/x", all),
				answer("307 "+all, "text/plain", ""),
				sse(`{"error":{"message":"` + all + `"}}`),
				sse(`{"error":"` + all + `"}`),
				sse(all),
				all + "\r\n",
				"HTTP/1.1 200 OK\r\n" + all + "\r\n\r\n",
				sseHead + all + "\r\n",
			} {
				x := once(t, post(`{"prompt":"`+prompt+`"}`), Config{way: by, APIKey: key, Header: map[string][]string{"X-Secret": {header}}}, reply, false)
				if x.Err == nil {
					t.Fatalf("served: %q", reply)
				}
				for _, text := range []string{x.Err.Error(), x.Err.Code, x.Err.Message} {
					for _, secret := range []string{prompt, key, header} {
						if strings.Contains(text, secret) {
							t.Errorf("%q in %q", secret, text)
						}
					}
				}
			}
		})
	}
}
