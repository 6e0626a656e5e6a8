"""The files that the demo indexes."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from rxjobs.demo.library import PLENTY, find_files, is_python
from rxjobs.errors import InvalidOption


def test_there_are_more_than_a_thousand_python_files_each_once():
    files = find_files()
    assert sum(is_python(file.path) for file in files) >= PLENTY > 1_000
    assert len({file.name for file in files}) == len({file.path for file in files}) == len(files)
    assert not [file for file in files if "__pycache__" in file.path.parts]


def test_the_first_files_are_the_same_each_time():
    assert find_files(7) == find_files()[:7]


def test_a_library_without_its_tests_is_made_up_for_by_installed_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    library, installed = tmp_path / "library", tmp_path / "library" / "site-packages"
    installed.mkdir(parents=True)
    (library / "one.py").touch()
    (library / "notes.txt").touch()
    for number in range(PLENTY + 5):
        (installed / f"module{number}.py").touch()
        (installed / f"module{number}.txt").touch()
    paths = {"stdlib": str(library), "purelib": str(installed)}
    monkeypatch.setattr(sysconfig, "get_path", paths.__getitem__)
    files = find_files()
    assert [file.name for file in files[:2]] == ["notes.txt", "one.py"]
    assert sum(is_python(file.path) for file in files) == PLENTY == len(files) - 1


def test_a_python_without_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "library.zip"))
    with pytest.raises(InvalidOption, match=r"no files in .*library\.zip"):
        find_files()
