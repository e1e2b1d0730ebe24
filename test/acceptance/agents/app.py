# Copyright The moonloop authors
# SPDX-License-Identifier: Apache-2.0

"""Agents in production: app.py URL RUNS.

A team in LangGraph, each run of which is one OTel trace with the spans of OpenInference's instrumentation:

    plan ─┬─ scout ── (search tool) ── scout ───────────────────┬─ review ── write
          ├─ miner ── (query tool) ── checker, an agent ── miner ┤
          └─ critic ─────────────────────────────────────────────┘

All talk to the engine at URL. What the engine answers has no part in what they do, so that each run has the same graph. Runs begin at
intervals and overlap.
"""

import asyncio
import operator
import sys
from typing import Annotated, TypedDict

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

url, runs = sys.argv[1], int(sys.argv[2])
provider = TracerProvider(resource=Resource.create({"service.name": "team"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
LangChainInstrumentor().instrument(tracer_provider=provider)

llm = ChatOpenAI(base_url=url + "/v1", api_key="none", model="simulated", max_retries=0)


class State(TypedDict):
    topic: str
    notes: Annotated[list[str], operator.add]


async def ask(who: str, state: State, tokens: int) -> dict:
    text = f"You are the {who} of a team. " * 40 + state["topic"] + "".join(state["notes"])
    reply = await llm.bind(max_tokens=tokens).ainvoke(text)
    return {"notes": [f" {who}: {str(reply.content)[:40]}"]}


def agent(who: str, tokens: int):
    async def node(state: State) -> dict:
        return await ask(who, state, tokens)

    return node


@tool
async def search(query: str) -> str:
    """Searches for a while."""
    await asyncio.sleep(0.35)
    return "found"


@tool
async def query(question: str) -> str:
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
    await search.ainvoke({"query": state["topic"]})
    return {"notes": [" found"]}


async def dig(state: State) -> dict:
    await query.ainvoke({"question": state["topic"]})
    await checker.ainvoke({"topic": state["topic"], "notes": []})
    return {"notes": [" dug"]}


scout = team(agent("scout", 30), look, agent("scout", 25))
miner = team(agent("miner", 60), dig, agent("miner", 15))


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
