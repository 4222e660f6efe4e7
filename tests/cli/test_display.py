"""The display of training: plain lines for logs, a panel for terminals."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from regard.cli import display, terminal
from regard.cli.display import LiveDisplay, PlainDisplay, StatusLine, make_display
from regard.cli.terminal import command_name, format_duration
from regard.progress import describe_metrics, time_left
from regard.training.events import Example, Noted, Progress, Saved, Started, Validated

RIGHT = Example(source="b a", output="a b", reference="a b")
WRONG = Example(source="d [c]", output="d [c]", reference="[c] d")  # brackets must not be read as markup
STARTED = Started(step=0, steps=1_000, seconds=0.0, parameters=1_234_567, how="cpu, float32", machine={})
SAVED = Saved(step=100, folder=Path("runs/mine/checkpoints/step-00000100"))
VALIDATED = Validated(step=100, metrics={"loss": 1.5, "exact": 50.0}, examples=(RIGHT, WRONG), best=True)
NOTED = Noted(step=100, text="something [bold] to know")


def started(step=0, steps=1_000, seconds=0.0):
    return Started(step=step, steps=steps, seconds=seconds, parameters=10, how="cpu", machine={})


def progress(step=100, steps=1_000, seconds=50.0):
    return Progress(
        step=step,
        steps=steps,
        epoch=0,
        loss=1.2345,
        rate=3e-4,
        gradient_norm=0.5,
        tokens_per_second=12_345.6,
        seconds=seconds,
    )


@pytest.fixture
def console(monkeypatch):
    """A terminal that records what is printed."""
    recording = Console(record=True, file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(display, "console", recording)
    monkeypatch.setattr(terminal, "console", recording)
    return recording


@pytest.fixture
def lines(console):
    """Return the lines that a plain display prints for events."""

    def shown(*events):
        with PlainDisplay() as plain:
            for event in events:
                plain(event)
        return console.export_text().splitlines()

    return shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0:00"), (-5, "0:00"), (59.4, "0:59"), (59.6, "1:00"), (123, "2:03"), (3_599, "59:59"), (3_723, "1:02:03")],
)
def test_a_duration_has_hours_only_from_one_hour(seconds, shown):
    assert format_duration(seconds) == shown


def test_the_time_left_is_estimated_from_the_speed_of_this_process():
    # 40 steps took 20 seconds, and 60 are left.
    begun = started(step=10, steps=110, seconds=100.0)
    assert time_left(begun, progress(step=50, steps=110, seconds=120.0)) == 30.0
    assert time_left(begun, progress(step=110, steps=110, seconds=120.0)) == 0.0


def test_metrics_are_described_by_name_and_in_their_unit():
    metrics = {"loss": 1.23456, "bleu": 34.56, "chrf": 60.0, "exact": 99.96, "token_errors": 7.0}
    assert describe_metrics(metrics) == "dev loss 1.235, BLEU 34.6, chrF 60.0, exact match 100.0 %, token errors 7.0 %"


# Plain lines


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (STARTED, "1,234,567 parameters, cpu, float32, 1,000 steps"),
        (started(step=40), "10 parameters, cpu, 1,000 steps, resuming from step 40"),
        (SAVED, f"step 100  saved {Path('runs/mine/checkpoints/step-00000100')}"),
        (NOTED, "something [bold] to know"),
        (Validated(7, {"loss": 2.0}, (), False), "step 7  dev loss 2.000"),
        (Validated(7, {"loss": 2.0}, (), True), "step 7  dev loss 2.000  (best)"),
    ],
)
def test_an_event_is_one_line(lines, event, line):
    assert lines(event) == [line]


def test_progress_is_one_line_on_a_narrow_terminal(lines, console):
    console.width = 20
    _, line = lines(STARTED, progress())
    assert line.startswith("step 100/1000  loss 1.234  rate 3.00e-04  norm 0.50  12,346 tokens/s  ")
    assert line.endswith(" left")


def test_each_example_is_a_line_below_the_scores_with_its_verdict(lines):
    assert lines(VALIDATED) == [
        "step 100  dev loss 1.500, exact match 50.0 %  (best)",
        "    b a  ->  a b  (correct)",
        "    d [c]  ->  d [c]  (expected [c] d)",
    ]


def test_a_program_is_called_by_name_only_if_the_path_leads_to_it(tmp_path, monkeypatch):
    for folder in ("this", "other"):
        (tmp_path / folder).mkdir()
        for name in ("python", "regard"):
            (tmp_path / folder / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.executable", str(tmp_path / "this" / "python"))
    for script, place, command in [
        ("this/regard", "this", "regard"),
        ("this/regard", "other", "this/regard"),
        ("this/regard", "nowhere", "this/regard"),
        ("-c", "this", "python -m regard"),
        ("-c", "other", f"{tmp_path}/this/python -m regard"),
    ]:
        monkeypatch.setattr("sys.argv", [script])
        monkeypatch.setenv("PATH", str(tmp_path / place))
        assert command_name() == command


def test_messages_go_to_stderr_and_not_to_stdout(capsys):
    with PlainDisplay() as plain:
        plain(NOTED)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "something [bold] to know\n")


@pytest.mark.parametrize("steps", [800, 100])
def test_the_first_line_of_a_new_run_has_the_time_left(lines, steps):
    # Each step takes half a second, and the first line is printed after ten of them.
    _, line = lines(started(steps=steps), progress(step=10, steps=steps, seconds=5.0))
    assert line.endswith(f"  {format_duration((steps - 10) / 2)} left")


def test_the_time_left_of_a_resumed_run_ignores_earlier_processes(lines):
    # 100 steps took 10 seconds, after 500 steps that took an hour.
    last = lines(started(step=500, seconds=3_600.0), progress(step=600, seconds=3_610.0))[-1]
    assert last.endswith("  0:40 left")  # 400 steps of 0.1 s each


# The panel


def drawn(console, live):
    # Clears what was recorded before.
    console.export_text()
    console.print(live.render())
    return console.export_text()


def test_a_panel_is_drawn_before_the_first_event(console):
    assert drawn(console, LiveDisplay()).strip() == "starting ..."


def test_a_panel_shows_the_latest_numbers_scores_and_examples(console):
    live = LiveDisplay()
    for event in (STARTED, progress(step=50), VALIDATED, progress(step=150, seconds=75.0)):
        live(event)
    text = drawn(console, live)
    assert "step 150/1,000" in text and "step 50" not in text
    assert "loss 1.234" in text and "12,346 tokens/s" in text and "1:15 elapsed" in text
    assert "on the dev set at step 100: dev loss 1.500, exact match 50.0 %" in text
    marks = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line[:1] in "✓✗"}
    assert marks == {"✓": ["b", "a", "→", "a", "b"], "✗": ["d", "[c]", "→", "d", "[c]"]}


def test_a_panel_shows_the_time_left(console):
    live = LiveDisplay()
    live(STARTED)
    live(progress(step=10, seconds=5.0))
    assert "0:05 elapsed, 8:15 left" in drawn(console, live)  # 990 steps of 0.5 s each


def test_an_example_of_any_script_and_length_takes_one_line(console):
    live = LiveDisplay()
    live(STARTED)
    live(progress())
    live(Validated(1, {"loss": 1.0}, (Example("年" * 300, "é" * 300, ""), Example("", "", "")), False))
    assert len(drawn(console, live).splitlines()) == 1 + 1 + 2


def test_a_live_panel_accepts_all_events_of_a_run(console):
    with LiveDisplay() as live:
        for event in (STARTED, progress(), VALIDATED, SAVED, NOTED, progress(step=1_000)):
            live(event)
    text = console.export_text()
    assert "1,234,567 parameters" in text
    assert "something [bold] to know" in text
    assert "step 1,000/1,000" in text


def test_a_panel_does_not_hide_an_error(console):
    with pytest.raises(KeyError), LiveDisplay():
        raise KeyError
    assert not console._live_stack


def test_a_terminal_gets_a_panel_and_a_pipe_gets_lines(console, monkeypatch):
    assert isinstance(make_display(), LiveDisplay)
    monkeypatch.setattr(display, "console", Console(file=io.StringIO()))
    assert isinstance(make_display(), PlainDisplay)


# The progress of a translation


@pytest.mark.parametrize(
    ("done", "total", "seconds", "text"),
    [
        (50, 200, 10.0, "50/200 lines  5 lines/s  0:30 left"),
        (200, 200, 10.0, "200/200 lines  20 lines/s  0:00 left"),
        (0, 200, 0.0, "0/200 lines  0 lines/s"),
        (4096, None, 2.0, "4,096 lines  2,048 lines/s"),
    ],
)
def test_lines_are_described_with_their_rate_and_the_time_left(done, total, seconds, text):
    assert display.describe_lines(done, total, seconds).startswith(text)


def test_a_status_without_a_terminal_is_a_line_from_time_to_time(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    with display.LineProgress(40) as progress:
        for passed in (1.0, 3.0, 1.5, 1.0, 4.5):  # the third and the last are more than five seconds after a line
            now[0] += passed
            progress(8)
    assert capsys.readouterr().err == "24/40 lines  4 lines/s  0:04 left\n40/40 lines  4 lines/s  0:00 left\n"


def test_a_status_on_a_terminal_leaves_standard_output_alone(console, capsys):
    with display.LineProgress(8) as progress:
        progress(4)
        print("a translation")
    assert capsys.readouterr().out == "a translation\n"
    assert "4/8 lines" in console.export_text()


def test_a_line_of_status_that_has_not_changed_is_not_printed_again_without_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(display, "LINE_SECONDS", 0)
    with StatusLine() as status:
        for text in ("1 of 2", "1 of 2", "2 of 2"):
            status.show(text)
        status.show("2 of 2", last=True)
    assert capsys.readouterr().err == "1 of 2\n2 of 2\n2 of 2\n"
