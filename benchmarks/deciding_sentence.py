"""Whether sentence attention finds the sentence that decides, in the generated reviews of the recipe `documents`.

    regard train documents --out runs/documents
    python benchmarks/deciding_sentence.py runs/documents

Prints, over the test documents, how often the deciding sentence has the highest attention, its mean attention, and the
accuracy of the labels. The largest of equal weights, as a mean instead of attention would have, is right 1 time in 7.
"""

import argparse

import regard
from regard.text.generators import generate
from regard.text.reviews import deciding_sentence


def measure(run: str, options: dict[str, int], device: str = "auto") -> dict[str, float]:
    """Return shares of the test documents, in percent."""
    pairs = list(generate("reviews/test", options))
    predictor = regard.load(run, device=device)
    found = predictor.attention([pair.source for pair in pairs])
    decides = [deciding_sentence(pair.source) for pair in pairs]
    weights = [one.sentences for one in found]
    count = len(pairs)
    return {
        "deciding sentence first": 100
        * sum(w.index(max(w)) == at for w, at in zip(weights, decides, strict=True))
        / count,
        "its mean attention": 100 * sum(w[at] for w, at in zip(weights, decides, strict=True)) / count,
        "accuracy": 100 * sum(one.label == pair.target for one, pair in zip(found, pairs, strict=True)) / count,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--shortest", type=int, default=4, help="sentences of a document")
    parser.add_argument("--longest", type=int, default=10)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    options = {"shortest": arguments.shortest, "longest": arguments.longest}
    for name, value in measure(arguments.run, options, arguments.device).items():
        print(f"{name:24} {value:5.1f} %")
