"""Which device and which precision: what is picked, and what is refused with what would do."""

import pytest
import torch

from regard.errors import ConfigError
from regard.nn import device as devices
from regard.nn.device import autocast, cpu_has_bfloat16, pick_device, pick_precision, use_threads

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpus(monkeypatch):
    """A machine that seems to have some GPUs."""

    def pretend(count, *, bfloat16=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)

    return pretend


def refusal(name):
    with pytest.raises(ConfigError) as caught:
        pick_device(name)
    return str(caught.value)


def test_auto_takes_a_gpu_where_there_is_one(gpus):
    gpus(0)
    assert pick_device("auto") == CPU
    gpus(1)
    assert pick_device("auto") == CUDA


def test_the_cpu_is_taken_when_asked_for_even_beside_a_gpu(gpus):
    gpus(1)
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("cuda:7", 2)])
def test_a_gpu_that_is_not_there_is_refused_with_how_many_there_are(gpus, name, count):
    gpus(count)
    assert refusal(name) == (
        f"{name!r} was asked for but this machine shows {count} CUDA devices; use device=cpu or auto"
    )


def test_a_gpu_that_is_there_is_taken_by_its_number(gpus):
    gpus(2)
    assert pick_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "tpu", "", "CPU", "cuda:x", "cuda:-1"])
def test_a_name_that_is_no_device_is_refused_with_what_is(name):
    assert refusal(name) == f"there is no kind of device called {name!r}; use auto, cpu, cuda or cuda:N"


@pytest.mark.parametrize("name", ["meta", "mps", "xla"])
def test_a_device_that_pytorch_knows_and_we_do_not_is_refused(name):
    assert refusal(name) == f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N"


@pytest.mark.parametrize(
    ("wanted", "has", "picked"),
    [
        ("auto", True, torch.bfloat16),
        ("auto", False, torch.float32),
        ("float32", True, torch.float32),
        ("bfloat16", True, torch.bfloat16),
        ("bfloat16", False, torch.bfloat16),
    ],
)
def test_a_gpu_works_in_bfloat16_where_it_has_it_or_is_told_to(gpus, wanted, has, picked):
    gpus(1, bfloat16=has)
    assert pick_precision(wanted, CUDA) == picked


@pytest.mark.parametrize("has", [True, False])
def test_a_cpu_works_in_float32_unless_told_otherwise(monkeypatch, has):
    monkeypatch.setattr(devices, "cpu_has_bfloat16", lambda: has)
    assert pick_precision("auto", CPU) == pick_precision("float32", CPU) == torch.float32


def test_a_cpu_without_bfloat16_refuses_it(monkeypatch):
    monkeypatch.setattr(devices, "cpu_has_bfloat16", lambda: True)
    assert pick_precision("bfloat16", CPU) == torch.bfloat16
    monkeypatch.setattr(devices, "cpu_has_bfloat16", lambda: False)
    with pytest.raises(ConfigError, match=r"this CPU has no bfloat16 instructions; use float32 or auto"):
        pick_precision("bfloat16", CPU)


@pytest.mark.parametrize(
    ("flags", "has"), [({}, False), ({"avx2": True, "avx512_bf16": False}, False), ({"amx_bf16": True}, True)]
)
def test_the_cpus_flags_say_whether_it_has_bfloat16(monkeypatch, flags, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)
    assert cpu_has_bfloat16() is has


def test_products_run_in_the_precision_picked():
    a = torch.ones(2, 2)
    with autocast(CPU, torch.float32):
        assert (a @ a).dtype == torch.float32
    with autocast(CPU, torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_zero_threads_leave_pytorchs_choice(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    use_threads(0)
    assert asked == []
    use_threads(3)
    assert asked == [3]


@pytest.mark.gpu
def test_the_gpu_of_this_machine_is_taken():
    assert torch.ones(2, device=pick_device("auto")).device.type == "cuda"
