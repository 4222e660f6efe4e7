"""Images as text, the shapes that we draw, and what of a stranger's file is refused."""

import base64
import io
import random
import struct
import zlib

import numpy as np
import pytest

from regard.errors import DataError
from regard.text.corpus import Pair
from regard.text.generators import generate
from regard.text.images import MAX_BYTES, image_uri, patches_of, png_bytes, read_image, with_files
from regard.text.shapes import KINDS, RELATIONS, Scene, Shape, ShapeOptions, caption, draw, is_held_out, scenes

PIXELS = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)


def uri(content, kind="png"):
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def test_a_image_survives_being_written_and_read():
    assert np.array_equal(read_image(image_uri(PIXELS)), PIXELS)


def test_pillow_reads_what_we_write_and_we_read_what_it_writes():
    image = pytest.importorskip("PIL.Image")
    assert np.array_equal(np.asarray(image.open(io.BytesIO(png_bytes(PIXELS)))), PIXELS)
    for kind in ("PNG", "JPEG"):
        file = io.BytesIO()
        image.fromarray(np.full((8, 8, 3), 200, dtype=np.uint8)).save(file, format=kind)
        assert abs(read_image(uri(file.getvalue(), kind.lower())).astype(int) - 200).max() <= 2


def test_patches_are_read_row_by_row():
    patches = patches_of(PIXELS, 2)
    assert patches.shape == (6, 12)
    # The first patch has rows 0 and 1 of columns 0 and 1; a pixel has three numbers, and a row of the image 18.
    assert patches[0].tolist() == [0, 1, 2, 3, 4, 5, 18, 19, 20, 21, 22, 23]
    assert patches[1, 0] == 6 and patches[3, 0] == 36


def bomb(side):
    """A small PNG file of many pixels."""

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    header = struct.pack(">II5B", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("images/1.png", "is not an image"),
        ("/etc/passwd", "is not an image"),
        ("data:text/html;base64,AAAA", "is not an image"),
        ("data:image/png;base64,A*", "not in base64"),
        ("data:image/png;base64," + "A" * (2 * MAX_BYTES), "more than 1,048,576 bytes"),
        (uri(b"\x89PNG\r\n\x1a\n" + bytes(100)), "damaged, or no PNG"),
        (uri(png_bytes(PIXELS)[:-50]), "damaged, or no PNG"),
        (uri(bomb(2000)), "2000 x 2000 pixels; at most 1024"),
    ],
)
def test_what_is_no_image_is_refused_in_one_sentence(line, says):
    pytest.importorskip("PIL")
    with pytest.raises(DataError, match=says) as caught:
        read_image(line)
    assert "\n" not in str(caught.value)


def test_a_data_file_may_name_images_below_the_data_folder_alone(tmp_path):
    (tmp_path / "one.png").write_bytes(png_bytes(PIXELS))
    [pair, other] = with_files([Pair("one.png", "a"), Pair(image_uri(PIXELS), "b")], [tmp_path])
    assert np.array_equal(read_image(pair.source), PIXELS) and pair.target == "a" and other.target == "b"
    for name in ("../one.png", str(tmp_path / "one.png"), "two.png"):
        with pytest.raises(DataError, match="image"):
            with_files([Pair(name, "a")], [tmp_path])


# Shapes


def test_a_square_left_of_a_smaller_cross_is_drawn_and_described():
    scene = Scene((Shape(0, 0, 8, 16, 5), Shape(1, 1, 24, 16, 3)), relation=0, ground=30)
    assert caption(scene) == "a red square left of a blue cross"
    [pixels] = draw([scene], 32)
    assert pixels[16, 8].tolist() == [220, 50, 40] and pixels[16, 24].tolist() == [50, 90, 220]
    assert pixels[0, 0].tolist() == [30, 30, 30]
    # 0.85 of a radius of 5 on each side of 8: the centres of the pixels from 4 to 11.
    assert np.flatnonzero((pixels[16, :16] != 30).any(axis=1)).tolist() == list(range(4, 12))


def test_every_kind_is_drawn_differently():
    drawn = draw([Scene((Shape(0, kind, 16, 16, 8),), 0, 20) for kind in range(len(KINDS))], 32)
    assert len({image.tobytes() for image in drawn}) == len(KINDS) == 16


@pytest.mark.parametrize("held_out", [False, True])
def test_two_shapes_stand_as_their_caption_says_and_inside_the_image(held_out):
    every = scenes(random.Random(1), ShapeOptions(size=48), held_out=held_out)
    for _ in range(300):
        scene = next(every)
        for shape in scene.shapes:
            assert shape.radius <= shape.x <= 48 - shape.radius and shape.radius <= shape.y <= 48 - shape.radius
        if len(scene.shapes) == 1:
            continue
        first, second = scene.shapes
        dx, dy = list(RELATIONS.values())[scene.relation]
        along, across = first.x - second.x, first.y - second.y
        if dy:
            along, across = across, along
        assert (dx + dy) * along > first.radius + second.radius > abs(across)
        assert is_held_out(first.colour, first.kind, scene.relation) == held_out


def test_each_epoch_has_new_images_and_the_same_ones_again():
    def of_epoch(epoch):
        return list(generate("shapes/train", {"count": 5}, epoch=epoch))

    assert of_epoch(1) == of_epoch(1) != of_epoch(2)
    assert list(generate("shapes/valid", {"count": 5}, epoch=1)) == list(generate("shapes/valid", {"count": 5}))


def test_options_that_would_exhaust_memory_are_refused():
    for options in ({"size": 4096}, {"count": 10**9}, {"colours": 1}, {"kinds": 99}):
        with pytest.raises(Exception, match="must be from"):
            list(generate("shapes/train", options))
