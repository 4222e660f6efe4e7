import random

import pytest

from regard.config import AugmentConfig
from regard.errors import ConfigError
from regard.text.augment import NOISES, TYPO_EVERY, augmented, with_placeholders
from regard.text.corpus import Pair
from regard.text.protected_spans import PLACEHOLDERS
from regard.toml import from_table

PAIRS = [Pair(f"Tom says: {number} öfters, please!", f"Tom sagt: {number} öfter, bitte!") for number in range(400)]


def test_noise_follows_from_the_seed_and_the_epoch():
    config = AugmentConfig(typos=0.5, lower=0.2, placeholders=0.3)
    first = augmented(PAIRS, config, seed=1, epoch=3)
    assert first == augmented(PAIRS, config, seed=1, epoch=3)
    assert first != augmented(PAIRS, config, seed=1, epoch=4)
    assert first != augmented(PAIRS, config, seed=2, epoch=3)


@pytest.mark.parametrize("name", NOISES)
def test_each_noise_changes_its_share_of_the_sources_and_no_target(name):
    config = AugmentConfig(**{name: 0.25})
    noisy = augmented(PAIRS, config, seed=1, epoch=0)
    changed = [new for new, old in zip(noisy, PAIRS, strict=True) if new.source != old.source]
    # 400 draws with a probability of a quarter: 100, and a standard deviation of 9.
    assert 60 < len(changed) < 140
    assert [pair.target for pair in noisy] == [pair.target for pair in PAIRS]


def test_what_each_noise_does():
    generator = random.Random(1)
    text = "Ein schönes Café, nicht wahr?"
    assert NOISES["lower"](text, generator) == "ein schönes café, nicht wahr?"
    assert NOISES["upper"](text + " ß", generator) == "EIN SCHÖNES CAFÉ, NICHT WAHR? ß"
    assert NOISES["diacritics"](text, generator) == "Ein schones Cafe, nicht wahr?"
    assert {NOISES["punctuation"](text, generator) for _ in range(20)} == {
        "Ein schönes Café, nicht wahr",
        "Ein schönes Café nicht wahr",
    }


def test_noise_keeps_placeholders():
    for name, noise in NOISES.items():
        changed = {noise("See ⟦12⟧", random.Random(seed)) for seed in range(20)}
        assert all("⟦12⟧" in text for text in changed), name


def test_typos_change_few_letters_and_no_space():
    text = "the quick brown fox jumps over the lazy dog " * 5
    letters = sum(one.isalpha() for one in text)
    for seed in range(20):
        changed = NOISES["typos"](text, random.Random(seed))
        assert changed != text or seed
        assert changed.count(" ") == text.count(" ")
        # Each typo adds or removes at most one letter, and there are at most twice as many as on average.
        assert abs(len(changed) - len(text)) <= 2 * letters / TYPO_EVERY + 1


def test_texts_that_noise_would_make_blank_stay():
    assert NOISES["punctuation"]("...", random.Random(1)) == "..."
    assert NOISES["typos"]("a", random.Random(4)).strip()
    assert NOISES["typos"]("123", random.Random(1)) == "123"


def test_both_sides_get_the_same_placeholders():
    for seed in range(200):
        source, target = with_placeholders(*PAIRS[seed], random.Random(seed))
        found = [sorted(one for one in PLACEHOLDERS if one in text) for text in (source, target)]
        assert found[0] == found[1] != []
        assert all(text.count(one) == 1 for one in found[0] for text in (source, target))


def test_placeholders_stand_for_what_both_sides_have_in_common():
    drawn = {with_placeholders("Tom has 5 dogs.", "Tom hat 5 Hunde.", random.Random(seed)) for seed in range(300)}
    stripped = {tuple("#".join(part.split("⟧")[-1] for part in text.split("⟦")) for text in pair) for pair in drawn}
    assert ("# has # dogs.", "# hat # Hunde.") in stripped
    assert ("Tom has # dogs.", "Tom hat # Hunde.") in stripped
    assert ("Tom has 5 dogs #.", "Tom hat 5 Hunde #.") in stripped  # there is always one at least
    assert all("dogs" in source and "Hunde" in target for source, target in drawn)


def test_a_share_is_from_0_to_1():
    with pytest.raises(ConfigError, match=r"typos is 1\.5; it is a share"):
        from_table(AugmentConfig, {"typos": 1.5}, where="data.augment")
