"""Files of translations to compare."""

import random

import pytest

from tests.metrics.test_significance import WORDS


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with the outputs of three systems, two references, and sources."""
    path, draw = tmp_path_factory.mktemp("files"), random.Random(5)

    def changed(lines, share):
        return [
            " ".join(draw.choice(WORDS) if draw.random() < share else word for word in line.split()) for line in lines
        ]

    reference = [" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) for _ in range(25)]
    texts = {
        "ref.txt": reference,
        "ref2.txt": changed(reference, 0.2),
        "a.txt": changed(reference, 0.4),
        "b.txt": changed(reference, 0.25),
        "source.txt": [" ".join(word[::-1] for word in line.split()) for line in reference],
    }
    texts["c.txt"] = changed(texts["a.txt"], 0.1)
    for name, lines in texts.items():
        (path / name).write_text("".join(f"{line}\n" for line in lines))
    return path
