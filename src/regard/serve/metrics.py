"""What has happened, as Prometheus reads it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # upper ends of the histogram's buckets


class Metrics:
    """Counts of requests, and how long they took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.buckets: Counter[float] = Counter()
        self.total_seconds, self.count = 0.0, 0

    def add(self, route: str, status: int, seconds: float) -> None:
        """One request that has been answered."""
        with self._lock:
            self.requests[route, status] += 1
            self.total_seconds += seconds
            self.count += 1
            for end in SECONDS:
                if seconds <= end:
                    self.buckets[end] += 1

    def text(self, gauges: Mapping[str, float]) -> str:
        """All of it, and some numbers of the moment."""
        with self._lock:
            lines = ["# TYPE regard_requests_total counter"]
            lines += [
                f'regard_requests_total{{route="{route}",status="{status}"}} {count}'
                for (route, status), count in sorted(self.requests.items())
            ]
            lines.append("# TYPE regard_request_seconds histogram")
            lines += [f'regard_request_seconds_bucket{{le="{end}"}} {self.buckets[end]}' for end in SECONDS]
            lines.append(f'regard_request_seconds_bucket{{le="+Inf"}} {self.count}')
            lines += [f"regard_request_seconds_sum {self.total_seconds}", f"regard_request_seconds_count {self.count}"]
        for name, value in gauges.items():
            lines += [f"# TYPE regard_{name} gauge", f"regard_{name} {value}"]
        return "\n".join([*lines, ""])
