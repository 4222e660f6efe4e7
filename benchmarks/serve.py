"""The server under load beside the plain command on the same sentences: throughput, latency, memory.

python benchmarks/serve.py --data ~/data --out benchmarks/results/serve.json

64 clients ask for one sentence each, again and again, until all are translated; every answer is checked.
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

import studies
from harness import say
from machine import machine_seconds
from regard import api
from regard.text.corpus import stream_lines


def in_one_go(sentences: list[str], beam: int | None, rounds: int) -> tuple[list[str], list[float]]:
    """The translations by `Translator.translate`, and its seconds, loading left out."""
    from regard.decoding.translator import search_options

    translator = api.load("de-en", device="cpu")
    options, times = search_options(translator.config, beam=beam), []
    translator.translate(sentences[:64], options=options)
    for _ in range(rounds):
        began = time.perf_counter()
        found = translator.translate(sentences, options=options)
        times.append(time.perf_counter() - began)
    return found, times


class Served:
    """A server process on a port of its own."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "regard", "serve", "de-en", "--port", "0", "--device", "cpu"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.url = next(found[1] for line in self.process.stderr if (found := re.search(r"at (http://\S+)", line)))

    def resident(self) -> int:
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)


def by_clients(url: str, sentences: list[str], clients: int, beam: int | None) -> tuple[list[str], float, list[float]]:
    """The translations asked for one by one by so many at once, the seconds in all and of each.

    The clients share the machine with the server, so they are plain sockets: a comfortable client would use half of it.
    """
    answers, latencies = [""] * len(sentences), [0.0] * len(sentences)
    numbers = iter(range(len(sentences)))
    host, _, port = url.removeprefix("http://").partition(":")

    async def ask() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for number in numbers:
            began = time.perf_counter()
            body = json.dumps({"text": sentences[number]} | ({} if beam is None else {"beam": beam})).encode()
            head = f"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answered = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answered.partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = json.loads(await reader.readexactly(length))
            latencies[number] = time.perf_counter() - began
            answers[number] = answer["translations"][0]["text"]
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(ask() for _ in range(clients)))

    began = time.perf_counter()
    asyncio.run(all_of_them())
    return answers, time.perf_counter() - began, latencies


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies.add_flags(parser)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam", type=int, help="as the model's recipe says if not given")
    arguments = parser.parse_args()
    lines = [line for line in stream_lines(arguments.data / "tatoeba_en_de/test.de.gz") if line.strip()]
    sentences = [line for line in lines if not re.search(r"[.!?\u2026]\s", line)][: arguments.sentences]  # one each
    expected, plain = in_one_go(sentences, arguments.beam, arguments.rounds)
    say(f"in one go: {len(sentences) / min(plain):.0f} sentences/s")
    server = Served()
    try:
        by_clients(server.url, sentences[:200], arguments.clients, arguments.beam)
        rounds: list[dict[str, Any]] = []
        for _ in range(arguments.rounds):
            busy = machine_seconds()
            answers, seconds, latencies = by_clients(server.url, sentences, arguments.clients, arguments.beam)
            wrong = sum(one != other for one, other in zip(answers, expected, strict=True))
            ordered = sorted(latencies)
            rounds.append(
                {
                    "seconds": seconds,
                    "sentences_per_second": len(sentences) / seconds,
                    "p50_ms": 1000 * statistics.median(ordered),
                    "p99_ms": 1000 * ordered[int(0.99 * len(ordered))],
                    "resident_mib": server.resident() / 2**20,
                    "not_as_in_one_go": wrong,
                    "machine_seconds": machine_seconds() - busy,
                }
            )
            say(f"{arguments.clients} clients: {rounds[-1]}")
    finally:
        server.stop()
    ratio = statistics.median(one["sentences_per_second"] for one in rounds) / (
        len(sentences) / statistics.median(plain)
    )
    result = {
        "study": "serve",
        "sentences": len(sentences),
        "clients": arguments.clients,
        "in_one_go_sentences_per_second": len(sentences) / statistics.median(plain),
        "rounds": rounds,
        "served_over_in_one_go": ratio,
    }
    table = [
        "| | sentences/s | p50, ms | p99, ms | memory, MiB |",
        "|---|---:|---:|---:|---:|",
        f"| in one go | {result['in_one_go_sentences_per_second']:.0f} | | | |",
        *(
            f"| {arguments.clients} clients | {one['sentences_per_second']:.0f} | {one['p50_ms']:.0f} "
            f"| {one['p99_ms']:.0f} | {one['resident_mib']:.0f} |"
            for one in rounds
        ),
    ]
    studies.write(arguments.out, result, "\n".join([*table, "", f"Served over in one go: {ratio:.2f}", ""]))


if __name__ == "__main__":
    main()
