"""Which device and precision are picked, and which are refused with advice."""

import pytest
import torch

from regard.errors import ConfigError
from regard.nn import device as devices
from regard.nn.device import autocast, cpu_has_bfloat16, pick_device, pick_precision, use_threads

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def gpus(monkeypatch):
    """A machine that seems to have this many GPUs."""

    def pretend(count, *, bfloat16=True, capability=(7, 5)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)

    return pretend


def refusal(name):
    with pytest.raises(ConfigError) as caught:
        pick_device(name)
    return str(caught.value)


def test_auto_is_a_gpu_if_there_is_one(gpus):
    gpus(0)
    assert pick_device("auto") == CPU
    gpus(1)
    assert pick_device("auto") == CUDA


def test_cpu_is_the_cpu_even_if_there_is_a_gpu(gpus):
    gpus(1)
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize(("name", "count"), [("cuda", 0), ("cuda:0", 0), ("cuda:1", 1), ("cuda:7", 2)])
def test_a_missing_gpu_is_refused_with_the_number_of_gpus(gpus, name, count):
    gpus(count)
    assert refusal(name) == (f"device is {name!r}, but this machine has {count} CUDA devices; use device=cpu or auto")


def test_a_gpu_is_picked_by_its_number(gpus):
    gpus(2)
    assert pick_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "tpu", "", "CPU", "cuda:x", "cuda:-1"])
def test_an_unknown_device_is_refused_with_the_known_ones(name):
    assert refusal(name) == f"there is no kind of device called {name!r}; use auto, cpu, cuda or cuda:N"


@pytest.mark.parametrize("name", ["meta", "mps", "xla"])
def test_a_device_that_only_pytorch_supports_is_refused(name):
    assert refusal(name) == f"device {name!r} is not supported; use auto, cpu, cuda or cuda:N"


@pytest.mark.parametrize(
    ("wanted", "has", "picked"),
    [
        ("auto", True, torch.bfloat16),
        ("auto", False, torch.float16),
        ("float16", True, torch.float16),
        ("float32", True, torch.float32),
        ("bfloat16", True, torch.bfloat16),
        ("bfloat16", False, torch.bfloat16),
    ],
)
def test_a_gpu_uses_bfloat16_if_it_supports_it_or_on_request(gpus, wanted, has, picked):
    gpus(1, bfloat16=has)
    assert pick_precision(wanted, CUDA) == picked


def test_a_gpu_that_is_slow_in_float16_uses_float32(gpus):
    gpus(1, bfloat16=False, capability=(6, 1))
    assert pick_precision("auto", CUDA) == torch.float32


@pytest.mark.parametrize("has", [True, False])
def test_a_cpu_uses_float32_by_default(monkeypatch, has):
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
def test_bfloat16_support_is_read_from_the_flags_of_the_cpu(monkeypatch, flags, has):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: flags, raising=False)
    assert cpu_has_bfloat16() is has


def test_products_run_in_the_precision_of_the_context():
    a = torch.ones(2, 2)
    with autocast(CPU, torch.float32):
        assert (a @ a).dtype == torch.float32
    with autocast(CPU, torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    assert (a @ a).dtype == torch.float32


def test_zero_threads_keep_pytorchs_choice(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    use_threads(0)
    assert asked == []
    use_threads(3)
    assert asked == [3]


@pytest.mark.gpu
def test_auto_picks_the_gpu_of_this_machine():
    assert torch.ones(2, device=pick_device("auto")).device.type == "cuda"
