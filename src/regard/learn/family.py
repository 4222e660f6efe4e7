"""The drawings of the family tree. In the first five, the highlighted path leads from the first input to an output."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from regard.learn.drawing import Drawing, Point
from regard.learn.numbers import scores_by_length

STEP = 62.0  # between neighbouring positions
BELOW = "₁₂₃₄₅₆₇₈"


def row(count: int, y: float, *, left: float = 40) -> list[Point]:
    """Return places of nodes side by side."""
    return [(left + STEP * number, y) for number in range(count)]


def nodes(drawing: Drawing, places: list[Point], letter: str = "", *, kind: str = "inner") -> None:
    for number, place in enumerate(places):
        drawing.node(place, f"{letter}{BELOW[number]}" if letter else "", kind=kind)


def recurrent(attention: bool) -> Drawing:
    """Encoder, decoder, and between them one vector or attention."""
    drawing = Drawing(630, 190)
    inputs, states = row(4, 160), row(4, 95)
    left = 40 + STEP * (5 if attention else 6)
    decoder, outputs = row(4, 95, left=left), row(4, 30, left=left)
    last = len(decoder) - 1
    for number, (place, state) in enumerate(zip(inputs, states, strict=True)):
        drawing.arrow(place, state, path=number == 0)
        if number:
            drawing.arrow(states[number - 1], state, path=not attention)
    for number, (state, output) in enumerate(zip(decoder, outputs, strict=True)):
        drawing.arrow(state, output, path=number == last)
        if number:
            drawing.arrow(decoder[number - 1], state, path=not attention)
    if attention:
        # Attention of the last step reaches over the encoder's states: a collector above them.
        collector = (states[1][0] + STEP / 2, 30.0)
        for number, state in enumerate(states):
            drawing.arrow(state, collector, path=number == 0, width=1.2)
        drawing.arrow(collector, decoder[last], path=True)
        drawing.node(collector, "Σ")
        drawing.arrow(states[-1], decoder[0])
    else:
        vector = (40 + STEP * 4.5, 95.0)
        drawing.arrow(states[-1], (vector[0] - 4, 95), path=True)
        drawing.arrow((vector[0] + 6, 95), decoder[0], path=True)
        drawing.box(vector, (34, 58), "c")
    nodes(drawing, inputs, "x", kind="in")
    nodes(drawing, states)
    nodes(drawing, decoder)
    nodes(drawing, outputs, "y", kind="out")
    return drawing


def convolutional(dilated: bool) -> Drawing:
    """Three layers: each sees its neighbours, or positions at distances of 1, 2 and 4."""
    count = 8 if dilated else 7
    drawing = Drawing(500 if dilated else 460, 265)
    layers = [row(count, 235 - 70 * number) for number in range(4)]
    way = [0, 1, 3, 7] if dilated else [0, 1, 2, 3]
    for number, (below, above) in enumerate(pairwise(layers)):
        for position, place in enumerate(above):
            reach = (0, -(2**number)) if dilated else (-1, 0, 1)
            for offset in reach:
                if 0 <= position + offset < count:
                    on_way = position == way[number + 1] and position + offset == way[number]
                    drawing.arrow(below[position + offset], place, path=on_way, width=1)
    nodes(drawing, layers[0], "x", kind="in")
    nodes(drawing, layers[1])
    nodes(drawing, layers[2])
    nodes(drawing, layers[3], "y", kind="out")
    return drawing


def transformer() -> Drawing:
    """Every position sees every other one in one layer."""
    drawing = Drawing(400, 160)
    inputs, outputs = row(6, 130), row(6, 30)
    for end, above in enumerate(outputs):
        for start, below in enumerate(inputs):
            drawing.arrow(below, above, path=start == 0 and end == 5, width=0.8)
    nodes(drawing, inputs, "x", kind="in")
    nodes(drawing, outputs, "y", kind="out")
    return drawing


def non_autoregressive() -> Drawing:
    """Each input is copied as often as its fertility says, and all outputs are computed at once."""
    drawing = Drawing(400, 230)
    inputs, copies, outputs = row(4, 200, left=102), row(6, 115), row(6, 30)
    fertilities = [1, 2, 0, 3]
    source = [number for number, times in enumerate(fertilities) for _ in range(times)]
    for number, (copied, output) in enumerate(zip(copies, outputs, strict=True)):
        drawing.arrow(inputs[source[number]], copied)
        drawing.arrow(copied, output, path=True)
        drawing.node(copied, f"x{BELOW[source[number]]}", kind="inner")
    nodes(drawing, inputs, "x", kind="in")
    nodes(drawing, outputs, "y", kind="out")
    for place, times in zip(inputs, fertilities, strict=True):
        drawing.text((place[0] + 22, place[1] - 4), str(times))
    return drawing


def pointer() -> Drawing:
    """Points, and arrows along the corners of their hull."""
    drawing = Drawing(420, 230)
    points = [
        *((60, 150), (110, 60), (150, 180), (190, 110), (230, 40), (240, 200)),
        *((280, 120), (330, 70), (360, 170), (205, 150), (300, 150), (130, 120)),
    ]
    corners = hull([(float(x), float(y)) for x, y in points])
    for corner, after in zip(corners, [*corners[1:], corners[0]], strict=True):
        drawing.arrow(corner, after, path=True, gap=6)
    for point in points:
        drawing.dot(point, kind="corner" if point in corners else "dot")
    middle = (sum(x for x, _ in corners) / len(corners), sum(y for _, y in corners) / len(corners))
    for number, (x, y) in enumerate(corners):
        outside = (x + (x - middle[0]) * 0.14, y + (y - middle[1]) * 0.16)
        drawing.text(outside, str(number + 1))
    return drawing


def hull(points: list[Point]) -> list[Point]:
    """Return the corners of the convex hull (monotone chain, Andrew 1979)."""

    def half(ordered: list[Point]) -> list[Point]:
        found: list[Point] = []
        for x, y in ordered:
            while len(found) > 1 and (found[-1][0] - found[-2][0]) * (y - found[-2][1]) <= (
                found[-1][1] - found[-2][1]
            ) * (x - found[-2][0]):
                found.pop()
            found.append((x, y))
        return found[:-1]

    ordered = sorted(points)
    return half(ordered) + half(ordered[::-1])


def entity_network() -> Drawing:
    """Sentences by slots: each sentence opens the gate of one slot, and the question reads one."""
    drawing = Drawing(430, 220)
    opened = [1, 4, 1, 3]
    for sentence, chosen in enumerate(opened):
        y = 30 + 36 * sentence
        drawing.text((28, y), f"s{BELOW[sentence]}")
        for slot in range(6):
            strength = 0.95 if slot == chosen else 0.08
            drawing.box((80 + 52 * slot, y), (44, 26), kind="cell", opacity=strength)
    asked = (80 + 52 * 1, 30 + 36 * 2)
    drawing.text((28, 192), "q")
    drawing.arrow((32, 192), (asked[0], 192))
    drawing.arrow((asked[0], 192), asked, path=True, gap=10)
    drawing.arrow((asked[0], 192), (416, 192), path=True)
    drawing.node((asked[0], 192), "w", kind="inner")
    drawing.node((416, 192), "y", kind="out")
    return drawing


def turing_machine() -> Drawing:
    """Locations of the memory over time: written along a diagonal, then read along the same one."""
    drawing = Drawing(480, 190)
    for time in range(12):
        for location in range(6):
            strength = 0.95 if time % 6 == location else 0.07
            drawing.box((52 + 34 * time, 28 + 25 * location), (29, 20), kind="cell", opacity=strength)
    drawing.line([(52 + 34 * 5.5, 14), (52 + 34 * 5.5, 166)], kind="rule")
    for number in range(6):
        drawing.text((52 + 34 * number, 178), f"x{BELOW[number]}")
        drawing.text((52 + 34 * (number + 6), 178), f"y{BELOW[number]}")
    return drawing


def hierarchical() -> Drawing:
    """Words make sentences, and sentences a document; the width of an arrow is its weight."""
    drawing = Drawing(560, 230)
    document = (280.0, 30.0)
    for sentence, weight in enumerate((0.1, 0.8, 0.1)):
        middle = (100.0 + 180 * sentence, 115.0)
        drawing.arrow(middle, document, path=weight > 0.5, width=1)
        for word, share in enumerate((0.1, 0.1, 0.1, 0.7)):
            place = (middle[0] - 66 + 44 * word, 200.0)
            drawing.arrow(place, middle, path=weight > 0.5 and share > 0.5, width=1)
            drawing.node(place, kind="in")
        drawing.node(middle, f"s{BELOW[sentence]}")
    drawing.node(document, "y", kind="out")
    return drawing


def language_model(masked: bool) -> Drawing:
    """A hidden word from both sides; or each next word from those before it."""
    drawing = Drawing(460, 165)
    inputs, outputs = row(7, 135), row(7, 30)
    for end, above in enumerate(outputs):
        if masked and end != 3:
            continue
        for start, below in enumerate(inputs):
            if masked or start <= end:
                drawing.arrow(below, above, path=start != 3 if masked else end == 6, width=0.9)
    for number, place in enumerate(inputs):
        hidden = masked and number == 3
        drawing.node(place, "?" if hidden else f"x{BELOW[number]}", kind="inner" if hidden else "in")
    for number, place in enumerate(outputs):
        if masked and number == 3:
            drawing.node(place, "x₄", kind="out")
        elif not masked:
            drawing.node(place, f"x{BELOW[number + 1]}", kind="out")
    return drawing


def bleu_by_length() -> Drawing:
    """BLEU by the length of the reference, with attention and without: from the study rivals."""
    drawing = Drawing(520, 240)
    groups = scores_by_length("rivals")

    def place(number: int, bleu: float) -> Point:
        return 70 + 85 * number, 200 - bleu * 3.8

    for level in (0, 10, 20, 30, 40):
        drawing.line([place(0, level), place(4, level)], kind="rule")
        drawing.text((52, place(0, level)[1]), str(level), anchor="end")
    for number, tokens in enumerate(groups):
        drawing.text((place(number, 0)[0], 222), tokens.replace("-", "–"))
    for row_name, mark in (("RNN, additive attention", "Σ"), ("RNN, no attention", "c")):
        highlighted, found = mark == "Σ", [scores[row_name] for scores in groups.values()]
        points = [place(number, bleu) for number, bleu in enumerate(found)]
        drawing.line(points, kind="path" if highlighted else "edge")
        for point in points:
            drawing.dot(point, kind="corner" if highlighted else "dot")
        drawing.text((points[-1][0] + 10, points[-1][1]), f"{mark}  {found[-1]:.1f}", anchor="start")
    return drawing


FAMILY: dict[str, Callable[[], Drawing]] = {
    "rnn": lambda: recurrent(attention=False),
    "attention": lambda: recurrent(attention=True),
    "bleu-by-length": bleu_by_length,
    "convs2s": lambda: convolutional(dilated=False),
    "bytenet": lambda: convolutional(dilated=True),
    "transformer": transformer,
    "nat": non_autoregressive,
    "pointer": pointer,
    "entnet": entity_network,
    "ntm": turing_machine,
    "han": hierarchical,
    "bert": lambda: language_model(masked=True),
    "gpt": lambda: language_model(masked=False),
}
