# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0

"""Agents in production: app.py URL RUNS.

A team in LangGraph, each run of which is one OTel trace with the spans of OpenInference's instrumentation:

    plan ─┬─ scout ── (search tool) ── scout ───────────────────┬─ review ── write
          ├─ miner ── (query tool) ── checker, an agent ── miner ┤
          └─ critic ─────────────────────────────────────────────┘

All talk to the engine at URL, which calls the tools: the simulator does as a header says. What it answers has no other part in what they
do, so that each run has the same graph. Runs begin at intervals and overlap.

The same spans go to the address in ORPHANS without a parent and without links: what is left of them is their trace, their times, and the
ids of tool calls.
"""

import asyncio
import copy
import operator
import os
import sys
from typing import Annotated, TypedDict

from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


class Orphans(SpanProcessor):
    """Exports spans without what leads from one to another, all at the end: no agent waits for that."""

    def __init__(self):
        self.spans = []

    def on_end(self, span):
        self.spans.append(span)

    def shutdown(self):
        exporter = OTLPSpanExporter(endpoint=os.environ["ORPHANS"] + "/v1/traces")
        for span in self.spans:
            span = copy.copy(span)
            span._parent, span._links = None, ()
            exporter.export([span])
        exporter.shutdown()


url, runs = sys.argv[1], int(sys.argv[2])
provider = TracerProvider(resource=Resource.create({"service.name": "team"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=60_000))
provider.add_span_processor(Orphans())
LangChainInstrumentor().instrument(tracer_provider=provider)

llm = ChatOpenAI(base_url=url + "/v1", api_key="none", model="simulated", max_retries=0)


class State(TypedDict):
    topic: str
    notes: Annotated[list[str], operator.add]
    talk: Annotated[list, operator.add]  # what an agent has said of a tool, and what the tool has


def agent(who: str, tokens: int, of=None):
    """A step that asks the engine; of is the tool that it may call, and does."""

    async def node(state: State) -> dict:
        text = f"You are the {who} of a team. " * 40 + state["topic"] + "".join(state["notes"])
        told = state.get("talk") or [HumanMessage(text)]
        model = llm if of is None else llm.bind_tools([of]).bind(extra_headers={"X-Simulate-Tool-Calls": "1"})
        reply = await model.bind(max_tokens=tokens).ainvoke(told)
        return {"notes": [f" {who}: {str(reply.content)[:40]}"], "talk": [*told[len(state.get("talk") or []) :], reply]}

    return node


@tool
async def search(text: str) -> str:
    """Searches for a while."""
    await asyncio.sleep(0.35)
    return "found"


@tool
async def query(text: str) -> str:
    """Asks a database."""
    await asyncio.sleep(0.15)
    return "rows"


def team(*steps):
    """A graph of steps one after the other: an agent."""
    graph = StateGraph(State)
    before = START
    for i, step in enumerate(steps):
        graph.add_node(f"step{i}", step)
        graph.add_edge(before, f"step{i}")
        before = f"step{i}"
    graph.add_edge(before, END)
    return graph.compile()


checker = team(agent("checker", 20))


async def look(state: State) -> dict:
    return {"talk": [await search.ainvoke(state["talk"][-1].tool_calls[0])]}


async def dig(state: State) -> dict:
    rows = await query.ainvoke(state["talk"][-1].tool_calls[0])
    await checker.ainvoke({"topic": state["topic"], "notes": []})
    return {"talk": [rows]}


scout = team(agent("scout", 30, search), look, agent("scout", 25))
miner = team(agent("miner", 60, query), dig, agent("miner", 15))


def part(of):
    async def node(state: State) -> dict:
        out = await of.ainvoke({"topic": state["topic"], "notes": []})
        return {"notes": out["notes"][-1:]}

    return node


whole = StateGraph(State)
whole.add_node("plan", agent("planner", 40))
whole.add_node("scout", part(scout))
whole.add_node("miner", part(miner))
whole.add_node("critic", agent("critic", 10))
whole.add_node("review", agent("reviewer", 35))
whole.add_node("write", agent("writer", 80))
whole.add_edge(START, "plan")
for name in ("scout", "miner", "critic"):
    whole.add_edge("plan", name)
whole.add_edge(["scout", "miner", "critic"], "review")
whole.add_edge("review", "write")
whole.add_edge("write", END)
whole = whole.compile()


async def main() -> None:
    await llm.ainvoke("warm up")  # imports and the first connection take their time
    await asyncio.sleep(0.5)

    async def one(i: int) -> None:
        await asyncio.sleep(1.5 * i)
        await whole.ainvoke({"topic": f"topic {i}", "notes": []})

    await asyncio.gather(*(one(i) for i in range(runs)))


asyncio.run(main())
provider.shutdown()
