# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0
"""app.py BASE_URL CONVERSATIONS SEED FILE: a chat application as people write them.

It holds conversations through the official client, instrumented by OpenInference, and half of the replies are streams. Where
its spans go the OTEL_ variables say. FILE gets what the engine itself counted, a JSON line for each request.
"""
import json
import random
import sys
import threading
import time

from openai import OpenAI
from openinference.instrumentation.openai import OpenAIInstrumentor
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

base, conversations, seed, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
provider = TracerProvider(resource=Resource.create({"service.name": "shop-assistant"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
trace.set_tracer_provider(provider)
OpenAIInstrumentor().instrument()
client = OpenAI(base_url=base + "/v1", api_key="none", timeout=300, max_retries=0)

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
    arguments = dict(
        model="tiny", messages=messages, max_tokens=tokens,
        extra_body={"ignore_eos": True},
    )
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
    time.sleep(r.expovariate(0.1))
    messages = [{"role": "system", "content": SYSTEM}]
    for _ in range(1 + min(6, int(r.expovariate(0.4)))):
        messages.append({"role": "user", "content": text(r, min(9000, r.lognormvariate(7, 0.8)))})
        try:
            content, usage = request(messages, r.randint(8, 64), r.random() < 0.5)
        except Exception as error:  # counted, and the conversation ends as a user's would
            with lock:
                failed += 1
            print("failed:", type(error).__name__, file=sys.stderr)
            return
        messages.append({"role": "assistant", "content": content})
        details = usage.prompt_tokens_details
        with lock:
            json.dump({
                "input": usage.prompt_tokens, "output": usage.completion_tokens,
                "cached": (details.cached_tokens or 0) if details else None,
            }, log)
            log.write("\n")
        time.sleep(r.expovariate(0.5))


threads = [threading.Thread(target=conversation, args=(i,)) for i in range(conversations)]
for t in threads:
    t.start()
for t in threads:
    t.join()
provider.shutdown()
log.close()
sys.exit(failed > 0)
