"""Compare the server under load with the plain command on the same sentences: throughput, latency, memory.

python benchmarks/serve.py --data ~/data --out benchmarks/results/serve.json

64 clients send one sentence per request (or --each), until all are translated; every answer is checked. All three compute
with 8-bit integers, which is the default of `regard serve` on a CPU, or with --no-int8 in float32.
The command is timed from start to end. "In one go" is a single call on all sentences (offline), without loading the model.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import report
from harness import say
from machine import machine_seconds
from regard import loading
from regard.text.lines import stream_lines
from regard.text.segmenter import segment


class InOneGo:
    """Call `Translator.translate` on all sentences, as `regard translate` does, without the time for loading."""

    def __init__(self, beam: int | None, engine: str, int8: bool) -> None:
        self.translator = loading.load("de-en", device="cpu", engine=engine, int8=int8)
        self.options = self.translator.options.replace(beam=beam)

    def __call__(self, sentences: list[str]) -> tuple[list[str], float]:
        """Return the translations and the seconds."""
        began = time.perf_counter()
        found = self.translator.translate(sentences, options=self.options)
        return found, time.perf_counter() - began


def by_command(sentences: list[str], beam: int | None, engine: str, int8: bool) -> tuple[list[str], float]:
    """Run `regard translate`; return its translations and the seconds from start to end."""
    words = [sys.executable, "-m", "regard", "translate", "de-en", "-", "--device", "cpu", "--engine", engine]
    words += ["--int8"] if int8 else []
    words += [] if beam is None else ["--beam", str(beam)]
    began = time.perf_counter()
    done = subprocess.run(words, input="\n".join(sentences) + "\n", stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines(), time.perf_counter() - began


def resident_of(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Served:
    """A server process on its own port."""

    def __init__(self, engine: str, int8: bool) -> None:
        command = [
            sys.executable,
            "-m",
            "regard",
            "serve",
            "de-en",
            "--port",
            "0",
            "--device",
            "cpu",
            "--engine",
            engine,
            "--int8" if int8 else "--no-int8",
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.url = next(found[1] for line in self.process.stderr if (found := re.search(r"at (http://\S+)", line)))

    def resident(self) -> int:
        return resident_of(self.process.pid)

    def resident_of_workers(self) -> list[int]:
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            return [resident_of(int(pid)) for pid in file.read().split()]

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def by_clients(
    url: str, sentences: list[str], clients: int, beam: int | None, each: int
) -> tuple[list[str], float, list[float]]:
    """Send the sentences from `clients` concurrent clients, `each` per request.

    Return the translations, the total seconds, and the latency of each request. The clients share the machine with the
    server, so they use plain sockets: a full HTTP client library would take half of it.
    """
    requests = [sentences[at : at + each] for at in range(0, len(sentences), each)]
    answers: list[list[str]] = [[] for _ in requests]
    latencies, numbers = [0.0] * len(requests), iter(range(len(requests)))
    host, _, port = url.removeprefix("http://").partition(":")

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in numbers:
            began = time.perf_counter()
            body = json.dumps({"text": requests[number]} | ({} if beam is None else {"beam": beam})).encode()
            head = ["POST /v1/translate HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
            head += [f"Content-Length: {len(body)}", "", ""]
            writer.write("\r\n".join(head).encode() + body)
            answered = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answered.partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            latencies[number] = time.perf_counter() - began
            answers[number] = [one["text"] for one in answer["translations"]]
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(ask() for _ in range(clients)))

    began = time.perf_counter()
    asyncio.run(all_of_them())
    seconds = time.perf_counter() - began
    return [text for answer in answers for text in answer], seconds, latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    report.add_flags(parser)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--each", type=int, default=1, help="sentences per request")
    parser.add_argument("--beam", type=int, help="the recipe's value if not given")
    parser.add_argument("--engine", choices=["engine", "torch"], default="engine", help="what computes")
    parser.add_argument(
        "--int8", action=argparse.BooleanOptionalAction, default=True, help="8-bit integers, or float32"
    )
    arguments = parser.parse_args()
    how = {"engine": arguments.engine, "int8": arguments.int8}
    lines = [line for line in stream_lines(arguments.data / "tatoeba_en_de/test.de.gz") if line.strip()]
    sentences = [line for line in lines if segment(line).sentences == [line]][: arguments.sentences]
    in_one_go, server = InOneGo(arguments.beam, **how), Served(**how)
    rounds: list[dict[str, Any]] = []
    try:
        in_one_go(sentences[:200])
        by_clients(server.url, sentences[:200], arguments.clients, arguments.beam, arguments.each)
        for _ in range(arguments.rounds):  # in turn, so that all see the same machine load
            expected, plain = in_one_go(sentences)
            printed, command = by_command(sentences, arguments.beam, **how)
            assert printed == expected
            busy = machine_seconds()
            answers, seconds, latencies = by_clients(
                server.url, sentences, arguments.clients, arguments.beam, arguments.each
            )
            ordered = sorted(latencies)
            rounds.append(
                {
                    "in_one_go": len(sentences) / plain,
                    "command": len(sentences) / command,
                    "served": len(sentences) / seconds,
                    "p50_ms": 1000 * statistics.median(ordered),
                    "p99_ms": 1000 * ordered[int(0.99 * len(ordered))],
                    "resident_mib": server.resident() / 2**20,
                    "workers_mib": [size / 2**20 for size in server.resident_of_workers()],
                    "not_as_in_one_go": sum(one != other for one, other in zip(answers, expected, strict=True)),
                    "busy_seconds": machine_seconds() - busy,
                    "seconds": seconds,
                }
            )
            said = {key: round(value, 1) for key, value in rounds[-1].items() if key != "workers_mib"}
            said["workers_mib"] = [round(size) for size in rounds[-1]["workers_mib"]]
            say(f"{arguments.clients} clients: {said}")
    finally:
        server.stop()
    in_all = {key: statistics.median(one[key] for one in rounds) for key in ("in_one_go", "command", "served")}
    ratios = {key: in_all["served"] / in_all[key] for key in ("in_one_go", "command")}
    wrong = sum(one["not_as_in_one_go"] for one in rounds)
    if wrong:
        raise SystemExit(f"{wrong} answers differ from those in one go")
    result = {
        "study": "serve",
        "sentences": len(sentences),
        "clients": arguments.clients,
        "int8": arguments.int8,
        "sentences_a_request": arguments.each,
        "sentences_per_second": in_all,
        "served_over": ratios,
        "rounds": rounds,
    }
    columns = ("in_one_go", "command", "served", "p50_ms", "p99_ms", "resident_mib")
    table = [
        "| in one go, sentences/s | by the command, its start included | served | p50, ms | p99, ms | memory, MiB |",
        "|---:|---:|---:|---:|---:|---:|",
        *("| " + " | ".join(f"{one[key]:.0f}" for key in columns) + " |" for one in rounds),
    ]
    said = (
        f"Served over in one go: {ratios['in_one_go']:.2f}; over the command: {ratios['command']:.2f}. Medians of each."
    )
    report.write(arguments.out, result, "\n".join([*table, "", said, ""]))


if __name__ == "__main__":
    main()
