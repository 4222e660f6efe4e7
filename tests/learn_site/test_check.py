"""`regard learn start`, `check` and `notebook`: programs that fail, print, never end or crash; files that are kept."""

import json
import re
import sys

import pytest

from regard.learn.check import check_file, checked_events
from regard.learn.exercise_files import exercises
from regard.learn.expecting import show
from regard.learn.notebook import notebook_text
from regard.learn.sources import PAGES, read
from tests.commands import python, regard
from tests.learn_site.test_snippets import FENCED

CHAPTERS = sorted(path.stem for path in (PAGES / "en").glob("*.md"))


def checked(tmp_path, source, exercise="schedule"):
    """The report of a program, run in a process that is forked instead of started."""
    path = tmp_path / f"{exercise}.py"
    path.write_text(source, encoding="utf-8")
    program = f"from regard.learn.check_process import main\nmain({exercise!r}, {str(path)!r})"
    result = python(program, cwd=tmp_path)
    events = [json.loads(line) for line in result.stdout.splitlines()]
    return checked_events(exercise, events, "ended")


def test_an_error_shows_the_line_of_the_learner_and_not_ours(tmp_path):
    check = checked(tmp_path, "def lrate(step_num, d_model, warmup_steps):\n    rate = 1 / 0\n    return rate\n")
    assert {test.wrong for test in check.tests} == {
        "schedule.py, line 2: rate = 1 / 0\nZeroDivisionError: division by zero"
    }


def test_an_error_in_a_library_shows_the_line_that_called_it(tmp_path):
    source = "import torch\n\ndef attention(Q, K, V, mask=None):\n    return Q @ K\n"
    check = checked(tmp_path, source, "attention")
    wrong = [test.wrong for test in check.tests if test.wrong]
    assert any(one.startswith("attention.py, line 4: return Q @ K\nRuntimeError: ") for one in wrong)
    assert not [one for one in wrong if "Traceback" in one or "hidden_tests" in one]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def lrate(:\n", "schedule.py, line 1: def lrate(:\ninvalid syntax"),
        ("import nowhere\n", "schedule.py, line 1: import nowhere\nModuleNotFoundError: No module named 'nowhere'"),
        ("import sys\nsys.exit(3)\n", "schedule.py, line 2: sys.exit(3)\nSystemExit: 3"),
        ("import os\nos._exit(3)\n", "ended"),
    ],
)
def test_a_program_that_cannot_be_run_says_why(tmp_path, source, message):
    check = checked(tmp_path, source)
    assert check.failed == message
    assert not check.passed
    assert "The program cannot be run:" in check.text()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process")
def test_a_program_that_asks_for_all_of_the_memory_is_refused_it(tmp_path):
    check = checked(tmp_path, "much = bytearray(5 * 10**9)\n")
    assert check.failed == "schedule.py, line 1: much = bytearray(5 * 10**9)\nMemoryError (a program may use 4 GB)"


def test_a_missing_function_is_named(tmp_path):
    check = checked(tmp_path, "def rate(): pass\n")
    assert check.tests[0].wrong == "schedule.py has no lrate; keep the name that the task gives it"


def test_wrong_arguments_are_reported(tmp_path):
    check = checked(tmp_path, "def lrate(step_num): pass\n")
    assert check.tests[0].wrong == "TypeError: lrate() takes 1 positional argument but 3 were given"


def test_nothing_returned_is_said(tmp_path):
    check = checked(tmp_path, "def lrate(*_): pass\n")
    assert check.tests[0].wrong.splitlines()[1:] == [
        "expected the number 0.05",
        "found    None (does the function return its result?)",
    ]


def test_what_a_program_prints_is_repeated_up_to_a_limit(tmp_path):
    source = "print('hello')\n" + read("src/regard/learn/exercises/schedule/solution.py")
    check = checked(tmp_path, source)
    assert check.passed
    assert check.printed == "hello\n"
    assert len(checked(tmp_path, "print('x' * 10**6)\n").printed) == 2000


def test_a_program_that_ends_during_a_test_is_wrong_at_that_test(tmp_path):
    source = "import os\n\ndef lrate(step, *_):\n    if step == 50: os._exit(1)\n    return 0.05\n"
    check = checked(tmp_path, source)
    assert [test.wrong for test in check.tests] == [None, "ended"]
    assert not check.passed


@pytest.mark.slow
def test_files_next_to_a_program_can_be_imported_and_hide_nothing(tmp_path):
    (tmp_path / "mine.py").write_text("POWER = -0.5\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "schedule.py").write_text(
        "from mine import POWER\n\ndef lrate(step_num, d_model, warmup_steps):\n"
        "    return d_model**POWER * min(step_num**POWER, step_num * warmup_steps**-1.5)\n"
    )
    assert check_file("schedule", tmp_path / "schedule.py").passed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["json.py", "mine.py", "schedule.py"]


@pytest.mark.slow
def test_a_program_that_never_ends_is_stopped(tmp_path):
    (tmp_path / "schedule.py").write_text("import time\n\nwhile True:\n    time.sleep(1)\n")
    check = check_file("schedule", tmp_path / "schedule.py", limit=5)
    assert check.failed == "the program has not ended after 5 seconds, and was stopped"


@pytest.mark.slow
def test_a_program_whose_child_never_ends_is_checked(tmp_path):
    """The child has the standard output too, and keeps it open after its parent has ended. It is not waited for."""
    solution = read("src/regard/learn/exercises/schedule/solution.py")
    sleeping = "import time; time.sleep(1000)"
    child = f"import subprocess\nimport sys\n\nsubprocess.Popen([sys.executable, '-c', {sleeping!r}])\n"
    (tmp_path / "schedule.py").write_text(f"{child}\n{solution}")
    assert check_file("schedule", tmp_path / "schedule.py").passed


def test_files_are_written_once_and_kept(tmp_path):
    first = regard("learn", "start", "attention", "--out", "mine", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    text = (tmp_path / "mine" / "attention.py").read_text(encoding="utf-8")
    assert text.startswith('"""Scaled dot-product attention\n\nSection 3.2.1.')
    assert "Check it with:  regard learn check attention --folder mine" in text
    (tmp_path / "mine" / "attention.py").write_text("# my work\n")
    again = regard("learn", "start", "attention", "--out", "mine", cwd=tmp_path)
    assert again.returncode == 1
    assert "mine/attention.py is there already" in again.stderr
    every = regard("learn", "start", "--all", "--out", "mine", cwd=tmp_path)
    assert every.returncode == 0
    assert {path.stem for path in (tmp_path / "mine").iterdir()} == set(exercises())
    assert (tmp_path / "mine" / "attention.py").read_text() == "# my work\n"


@pytest.mark.parametrize("name", list(exercises()))
def test_what_is_written_is_a_program_with_its_task(name, tmp_path):
    from regard.learn.exercise_files import write_stubs

    [path], _ = write_stubs([name], tmp_path)
    text = path.read_text(encoding="utf-8")
    docstring = compile(text, name, "exec").co_consts[0]
    assert docstring.startswith(exercises()[name].title)
    assert "hint" not in docstring.lower()
    assert not re.search(r"\]\(|`|\$", docstring)
    assert max(len(line) for line in text.splitlines() if str(tmp_path) not in line) <= 125


@pytest.mark.slow
def test_the_commands_check_a_folder(tmp_path):
    regard("learn", "start", "schedule", cwd=tmp_path)
    wrong = regard("learn", "check", "schedule", cwd=tmp_path)
    assert wrong.returncode == 1
    assert "0 of 7 tests are right." in wrong.stdout
    solution = read("src/regard/learn/exercises/schedule/solution.py")
    (tmp_path / "exercises" / "schedule.py").write_text(solution, encoding="utf-8")
    right = regard("learn", "check", cwd=tmp_path)
    assert right.returncode == 0, right.stdout
    assert "7 of 7 tests are right." in right.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("check", "attention"), "exercises/attention.py is not there; write it with: regard learn start attention"),
        (("check", "atention"), "there is no exercise 'atention'; did you mean 'attention'?"),
        (("check", "--folder", "mine"), "mine has no exercises; write them with: regard learn start --all --out mine"),
        (("check",), "exercises has no exercises; write them with: regard learn start --all"),
        (("start", "masked"), "there is no exercise 'masked'"),
        (("notebook", "atention"), "there is no chapter or exercise 'atention'; did you mean 'attention'?"),
    ],
)
def test_a_mistake_in_a_command_is_one_sentence(arguments, message, tmp_path):
    result = regard("learn", *arguments, cwd=tmp_path)
    assert result.returncode == 1
    assert message in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def code_of(cells):
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def blocks_of(chapter):
    """The code of a chapter that is run."""
    text = (PAGES / "en" / f"{chapter}.md").read_text(encoding="utf-8")
    return [code.rstrip() for kind, code in FENCED.findall(text) if kind == "run"]


def run_cells(cells, cwd):
    """Run code cells in order, as Jupyter does: in one namespace, with what __future__ has changed."""
    program = (
        "import codeop\nnames, compiler = {'__name__': '__main__'}, codeop.Compile()\n"
        f"for number, source in enumerate({code_of(cells)!r}):\n"
        "    exec(compiler(source + '\\n', f'cell-{number}', 'exec'), names)\n"
    )
    return python(program, cwd=cwd, timeout=300)


@pytest.mark.parametrize("name", [*exercises(), *CHAPTERS])
def test_a_notebook_is_valid(name):
    made = json.loads(notebook_text(name))
    assert (made["nbformat"], made["nbformat_minor"]) == (4, 5)
    assert set(made) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    ids = [cell["id"] for cell in made["cells"]]
    assert len(set(ids)) == len(ids) > 0
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in ids)
    for cell in made["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        extra = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert set(cell) == {"id", "cell_type", "metadata", "source"} | extra
        assert all(isinstance(line, str) for line in cell["source"])
        assert "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            assert not re.search(r"\{\{|^```(?:results|live|drawing)", "".join(cell["source"]), flags=re.M)


@pytest.mark.slow(unless=["attention"])
@pytest.mark.parametrize("name", [*exercises(), *CHAPTERS])
def test_the_code_cells_of_a_notebook_run(name, tmp_path):
    cells = json.loads(notebook_text(name))["cells"]
    if name not in exercises() and code_of(cells) == blocks_of(name):
        return  # test_snippets.py runs the same
    result = run_cells(cells, tmp_path)
    assert result.returncode == 0, result.stderr
    if name in exercises():
        assert "tests are right." in result.stdout


def test_a_notebook_with_the_solution_is_right(tmp_path):
    cells = json.loads(notebook_text("schedule"))["cells"]
    [stub] = [cell for cell in cells if "def lrate" in "".join(cell["source"])]
    stub["source"] = [read("src/regard/learn/exercises/schedule/solution.py")]
    assert "7 of 7 tests are right." in run_cells(cells, tmp_path).stdout


def test_the_command_writes_a_notebook_and_replaces_none(tmp_path):
    assert regard("learn", "notebook", "masks", "--out", "a.ipynb", cwd=tmp_path).returncode == 0
    before = (tmp_path / "a.ipynb").read_text(encoding="utf-8")
    assert "masks" in before
    again = regard("learn", "notebook", "attention", "--out", "a.ipynb", cwd=tmp_path)
    assert again.returncode == 1
    assert (tmp_path / "a.ipynb").read_text(encoding="utf-8") == before


def test_values_are_shown_readably():
    import torch

    assert show(torch.tensor([[0.123456, 1.0], [2.0, 3.0]])) == "[[0.1235, 1],\n [2, 3]]"
    assert show(torch.zeros(10, 10)) == "a tensor of the shape [10, 10]"
    assert show([True, 2, 0.5]) == "[True, 2, 0.5]"
