# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""app.py BASE_URL INSTRUMENTATION CONVERSATIONS AT_ONCE SEED FILE: a chat application as people write them.

It holds conversations of four or five turns through the official client, instrumented by openinference, openai-v2 or traceloop,
at most so many at once, and half of the replies are streams. Where its spans go the OTEL_ variables say.

The replies of a model with random weights are no text: they do not tokenise back to the tokens that were generated, as those of a
real model do, so the next turn would not hit them in the cache. So the model may say whole words only, which the engine's
own tokenizer chose, and each reply is tokenised by the engine to see that it is what was generated.

FILE gets what the engine itself counted, a JSON line for each request; FILE.extra gets the members of a request's body that let a
replay's replies be such words too.
"""
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

base, instrumentation, conversations, at_once, seed, file = sys.argv[1:7]
os.environ.setdefault("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")  # openai-v2: spans with messages
os.environ.setdefault("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "span_only")
os.environ.setdefault("TRACELOOP_TRACE_CONTENT", "true")

from openai import OpenAI
from opentelemetry import trace
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
client = OpenAI(base_url=base + "/v1", api_key="none", timeout=300, max_retries=0)
engine = httpx.Client(base_url=base, timeout=60)


def tokenize(text):
    """The tokens of a text, by vLLM or by llama.cpp."""
    reply = engine.post("/tokenize", json={"model": "tiny", "prompt": text, "content": text, "add_special_tokens": False, "add_special": False})
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


SYSTEM = "You are the assistant of a shop. " + text(random.Random(99), 3000)
lock = threading.Lock()
log = open(file, "w", encoding="utf8")
failed = 0


def request(messages, tokens, stream):
    arguments = dict(model="tiny", messages=messages, max_tokens=tokens, extra_body=EXTRA)
    if not stream:
        reply = client.chat.completions.create(**arguments)
        return reply.choices[0].message.content, reply.usage
    content, usage = "", None
    for chunk in client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **arguments):
        if chunk.choices and chunk.choices[0].delta.content:
            content += chunk.choices[0].delta.content
        usage = chunk.usage or usage
    return content, usage


def conversation(i):
    global failed
    r = random.Random(f"{seed} {i}")
    messages = [{"role": "system", "content": SYSTEM}]
    for turn in range(r.choice([4, 4, 4, 5])):
        messages.append({"role": "user", "content": text(r, min(9000, r.lognormvariate(7, 0.8)))})
        began = time.time()
        try:
            content, usage = request(messages, round(r.triangular(100, 600, 500)), r.random() < 0.5)
        except Exception as error:  # counted, and the conversation ends as a user's would
            with lock:
                failed += 1
            print("failed:", type(error).__name__, file=sys.stderr)
            return
        messages.append({"role": "assistant", "content": content})
        details = usage.prompt_tokens_details
        with lock:
            json.dump({
                "conversation": i, "turn": turn, "began": began, "ended": time.time(),
                "input": usage.prompt_tokens, "output": usage.completion_tokens,
                "cached": (details.cached_tokens or 0) if details else None,
                "back": len(tokenize(content)) == usage.completion_tokens,
            }, log)
            log.write("\n")
        time.sleep(r.uniform(1, 3))


def worker(numbers):
    # One after the other, so that no two conversations begin at the same instant: which of two simultaneous requests finds
    # the other's blocks in the cache is chance, in production and in a replay.
    for i in numbers:
        time.sleep(random.Random(f"{seed} pause {i}").uniform(0.2, 1.5))
        conversation(i)


count = int(at_once)
threads = []
for n in range(count):
    threads.append(threading.Thread(target=worker, args=(range(n, int(conversations), count),)))
    threads[-1].start()
    time.sleep(1.1)
for t in threads:
    t.join()
provider.shutdown()
log.close()
sys.exit(failed > 0)
