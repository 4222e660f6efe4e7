"""The cores that a process may use, with control groups that a test writes."""

import os

import pytest

from regard.cores import cpu_quota, usable_cores

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def written(folder, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.max").write_text(text)


@pytest.fixture
def member_of(tmp_path):
    def write(group):
        (tmp_path / "membership").write_text(f"1:name=systemd:/other\n0::{group}\n")
        return {"cgroups": tmp_path / "cgroup", "membership": tmp_path / "membership"}

    return write


@pytest.mark.parametrize(
    ("text", "quota", "cores"),
    [("50000 100000\n", 0.5, 1), ("150000 100000\n", 1.5, min(2, CORES)), ("max 100000\n", None, CORES)],
)
def test_a_part_of_a_core_counts_as_one(tmp_path, member_of, text, quota, cores):
    files = member_of("/")
    written(tmp_path / "cgroup", text)
    assert cpu_quota(**files) == quota
    assert usable_cores(**files) == cores


def test_the_smallest_quota_of_a_group_and_those_above_it_counts(tmp_path, member_of):
    files = member_of("/kube/pod/container")
    written(tmp_path / "cgroup/kube", "400000 100000")
    written(tmp_path / "cgroup/kube/pod", "200000 100000")
    written(tmp_path / "cgroup/kube/pod/container", "max 100000")
    written(tmp_path / "cgroup/another", "1000 100000")
    assert cpu_quota(**files) == 2


def test_the_root_counts_where_a_container_does_not_see_its_path(tmp_path, member_of):
    files = member_of("/../docker/1234")
    written(tmp_path / "cgroup", "100000 100000")
    assert cpu_quota(**files) == 1


def test_a_quota_larger_than_the_machine_changes_nothing(tmp_path, member_of):
    files = member_of("/")
    written(tmp_path / "cgroup", "100000000 100000")
    assert usable_cores(**files) == CORES


@pytest.mark.parametrize("text", ["", "\x00", "max", "1 0", "-1 100000", "1 2 3", "a b"])
def test_what_is_no_quota_is_none(tmp_path, member_of, text):
    files = member_of("/")
    written(tmp_path / "cgroup", text)
    assert cpu_quota(**files) is None


def test_without_control_groups_there_is_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "none", tmp_path / "none") is None
