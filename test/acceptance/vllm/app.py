# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""app.py [--tools] [--tokens] [--system BYTES] [--gateway URL] [--propagate] BASE_URL INSTRUMENTATION CONVERSATIONS AT_ONCE SEED FILE: a chat application as people
write them.

It holds conversations of four or five turns through the official client, instrumented by openinference, openai-v2 or traceloop,
at most so many at once, and half of the replies are streams. Where its spans go the OTEL_ variables say.

The replies of a model with random weights are no text: they do not tokenise back to the tokens that were generated, as those of a
real model do, so the next turn would not hit them in the cache. So the model may say whole words only, which the engine's
own tokenizer chose, and each reply is tokenised by the engine to see that it is what was generated.

FILE gets what the engine itself counted, a JSON line for each request; FILE.extra gets the members of a request's body that let a
replay's replies be such words too.

--tools: each request has tools, and one turn of each conversation calls one, whose result the model reads in the next request.
--gateway: requests go through that server; the engine is asked about its tokens directly.
--system: the length of the system text that all conversations begin with.
--tokens: FILE.tokens gets the tokens of each prompt and of its reply, as the engine's own tokenizer has them.
--propagate: requests carry the trace context, as they do where the HTTP client is instrumented, too.
"""
import argparse
import collections
import json
import os
import pydoc_data.topics
import random
import re
import sys
import threading
import time

import httpx

arguments = argparse.ArgumentParser()
for name in ("base", "instrumentation", "conversations", "at_once", "seed", "file"):
    arguments.add_argument(name)
arguments.add_argument("--gateway")
arguments.add_argument("--tools", action="store_true")
arguments.add_argument("--tokens", action="store_true")
arguments.add_argument("--propagate", action="store_true")
arguments.add_argument("--system", type=int, default=3000)
arguments = arguments.parse_args()
base, instrumentation, seed, file = arguments.base, arguments.instrumentation, arguments.seed, arguments.file
os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")  # openai-v2: spans with messages
os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
os.environ.setdefault("TRACELOOP_TRACE_CONTENT", "true")

from openai import OpenAI
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

if instrumentation == "openinference":
    from openinference.instrumentation.openai import OpenAIInstrumentor
elif instrumentation == "openai-v2":
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
elif instrumentation == "traceloop":
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor
else:
    sys.exit(f"app.py: {instrumentation}: want openinference, openai-v2 or traceloop")

provider = TracerProvider(resource=Resource.create({"service.name": "shop-assistant"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
OpenAIInstrumentor().instrument()
hooks = {"request": [lambda request: propagate.inject(request.headers)]} if arguments.propagate else {}
client = OpenAI(
    base_url=(arguments.gateway or base) + "/v1", api_key="none", max_retries=0, http_client=httpx.Client(timeout=300, event_hooks=hooks),
)
engine = httpx.Client(base_url=base, timeout=60)


def tokenize(text):
    """The tokens of a text, by vLLM or by llama.cpp."""
    reply = engine.post("/tokenize", json={"model": "tiny", "prompt": text, "content": text, "add_special_tokens": False, "add_special": False})
    reply.raise_for_status()
    return reply.json()["tokens"]


def tokenize_chat(messages):
    """The tokens of a prompt, with what the chat template adds, by vLLM or by llama.cpp."""
    reply = engine.post("/apply-template", json={"messages": messages})
    if reply.is_success:
        return tokenize(reply.json()["prompt"])
    reply = engine.post("/tokenize", json={"model": "tiny", "messages": messages, "add_generation_prompt": True})
    reply.raise_for_status()
    return reply.json()["tokens"]


def speakable(count):
    """Words that are one token each, after a space, alone and in company."""
    frequent = collections.Counter(re.findall(r"\b[a-z]{3,9}\b", " ".join(pydoc_data.topics.topics.values()))).most_common(4 * count)
    found = {}
    for word, _ in frequent:
        ids = tokenize(" " + word)
        if len(ids) == 1 and len(found) < count:
            found[word] = ids[0]
    words = list(found) * 4
    random.Random(1).shuffle(words)
    if len(found) < count or tokenize("".join(" " + w for w in words)) != [found[w] for w in words]:
        sys.exit(f"app.py: the engine's tokenizer has no {count} words that are one token each in company")
    return found


words = speakable(64)
EXTRA = {"ignore_eos": True, "logit_bias": {str(i): 100 for i in words.values()}}
with open(file + ".extra", "w", encoding="utf8") as extra:
    json.dump(EXTRA, extra)

PARTS = (
    "order parcel invoice refund colour delivery address warranty catalogue customer basket payment size fabric button "
    "return exchange voucher season stock branch courier label damage repair estimate Tuesday thirty-one nevertheless "
    "unfortunately 4711 A-38 café naïve über 12.50 € (see below) e-mail #2291"
).split(" ")


def text(r, length):
    """Sentences of about so many characters, as different as people's are."""
    out = []
    while sum(map(len, out)) + len(out) < length:
        words = [r.choice(PARTS) for _ in range(r.randint(3, 14))]
        out.append(" ".join(words).capitalize() + r.choice(".?!\n"))
    return " ".join(out)


SYSTEM = "You are the assistant of a shop. " + text(random.Random(99), arguments.system)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "strict": True,
            "description": f"Looks up {what} and returns what the shop knows of it, with the time of the last change.",
            "parameters": {
                "type": "object",
                "properties": {"region": {"type": "string", "enum": ["eu", "us", "asia"]}, "fresh": {"type": "boolean"}},
                "required": ["region", "fresh"],
                "additionalProperties": False,
            },
        },
    }
    for name, what in (("stock", "an article in the branches of a region"), ("parcels", "the customer's parcels"), ("price", "a price"))
]


def called(name):
    """Members of a request's body by which the model calls a tool: it is held to the tool's schema, within which it would say any white space."""
    call = '<tool_call>{"name": "%s", "arguments": {"region": "eu", "fresh": true}}</tool_call>' % name
    return {"logit_bias": {str(i): 100 for i in tokenize(call)}}


lock = threading.Lock()
log = open(file, "w", encoding="utf8")
said = []  # when a request began, its messages, and the text of the reply
failed = 0


def request(messages, tokens, stream, call=None):
    """Returns the reply as a message, and what the engine counted. call is the tool that the model must call."""
    body = dict(model="tiny", messages=messages, max_tokens=tokens, extra_body=EXTRA)
    if arguments.tools:
        body["tools"] = TOOLS
    if call:
        body["tool_choice"] = {"type": "function", "function": {"name": call}}
        body["extra_body"] = called(call)
    if not stream:
        reply = client.chat.completions.create(**body)
        message = reply.choices[0].message
        if message.tool_calls:
            return {
                "role": "assistant", "content": message.content or "",
                "tool_calls": [
                    {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
                    for c in message.tool_calls
                ],
            }, reply.usage
        return {"role": "assistant", "content": message.content}, reply.usage
    content, calls, usage = "", {}, None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **body):
        if chunk.choices:
            content += chunk.choices[0].delta.content or ""
            for part in chunk.choices[0].delta.tool_calls or []:
                whole = calls.setdefault(part.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
                whole["id"] = part.id or whole["id"]
                whole["function"]["name"] = part.function.name or whole["function"]["name"]
                whole["function"]["arguments"] += part.function.arguments or ""
        usage = chunk.usage or usage
    reply = {"role": "assistant", "content": content}
    if calls:
        reply["tool_calls"] = list(calls.values())
    return reply, usage


def conversation(i):
    global failed
    r = random.Random(f"{seed} {i}")
    messages = [{"role": "system", "content": SYSTEM}]

    def say(tokens, stream, call=None):
        """A request, which goes to the log with what the engine counted, and its reply."""
        began = time.time()
        reply, usage = request(messages, tokens, stream, call)
        said.append((began, list(messages), reply["content"]))
        messages.append(reply)
        details = usage.prompt_tokens_details
        with lock:
            json.dump({
                "conversation": i, "turn": turn, "began": began, "ended": time.time(),
                "input": usage.prompt_tokens, "output": usage.completion_tokens,
                "cached": (details.cached_tokens or 0) if details else None,
                "back": len(tokenize(reply["content"])) == usage.completion_tokens,
                "calls": len(reply.get("tool_calls", ())),
            }, log)
            log.write("\n")
        return reply

    for turn in range(r.choice([4, 4, 4, 5])):
        messages.append({"role": "user", "content": text(r, min(9000, r.lognormvariate(7, 0.8)))})
        tokens, stream = round(r.triangular(100, 600, 500)), r.random() < 0.5
        try:
            if arguments.tools and turn == 1:
                for call in say(100, stream, r.choice(TOOLS)["function"]["name"]).get("tool_calls", ()):
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": text(r, 400)})
            say(tokens, stream)
        except Exception as error:  # counted, and the conversation ends as a user's would
            with lock:
                failed += 1
            print("failed:", type(error).__name__, file=sys.stderr)
            return
        time.sleep(r.uniform(1, 3))


def worker(numbers):
    # One after the other, so that no two conversations begin at the same instant: which of two simultaneous requests finds
    # the other's blocks in the cache is chance, in production and in a replay.
    for i in numbers:
        time.sleep(random.Random(f"{seed} pause {i}").uniform(0.2, 1.5))
        conversation(i)


count = int(arguments.at_once)
threads = []
for n in range(count):
    threads.append(threading.Thread(target=worker, args=(range(n, int(arguments.conversations), count),)))
    threads[-1].start()
    time.sleep(1.1)
for t in threads:
    t.join()
provider.shutdown()
log.close()
if arguments.tokens:
    with open(file + ".tokens", "w", encoding="utf8") as out:
        for began, messages, reply in sorted(said, key=lambda one: one[0]):
            json.dump({"prompt": tokenize_chat(messages), "reply": tokenize(reply)}, out)
            out.write("\n")
sys.exit(failed > 0)
