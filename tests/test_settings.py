"""Settings: which of three places wins, and what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.settings import Settings, load


def in_pyproject(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(f"[tool.rxjobs]\n{text}\n")
    return folder


def test_arguments_win_over_variables_and_those_over_pyproject(tmp_path):
    folder = in_pyproject(tmp_path, "lease_seconds = 60\nheartbeat_seconds = 3")
    environ = {"RXJOBS_LEASE_SECONDS": "50", "RXJOBS_RESCUE_SECONDS": "4"}
    assert load({}, {}, folder).lease_seconds == 60
    assert load({}, environ, folder).lease_seconds == 50
    how = load({"lease_seconds": 40}, environ, folder)
    assert (how.lease_seconds, how.rescue_seconds, how.heartbeat_seconds) == (40, 4, 3)


def test_without_any_the_defaults_hold(tmp_path):
    how = load({}, {}, tmp_path)
    assert how == Settings()
    assert (how.lease_seconds, how.heartbeat_seconds, how.rescue_seconds, how.poll_seconds) == (30, 10, 5, 1)
    assert (how.shutdown_grace, how.max_args_bytes, how.keep, how.notify, how.schema) == (25, 1024 * 1024, 86400, True, "rxjobs")


@pytest.mark.parametrize("name", [field.name for field in fields(Settings)])
def test_every_setting_has_a_variable(name, tmp_path):
    values = {"dsn": "postgresql://host/db", "schema": "other", "node": "label", "notify": "off", "migrate": "on"}
    how = load({}, {f"RXJOBS_{name.upper()}": values.get(name, "7" if name != "lease_seconds" else "70")}, tmp_path)
    assert getattr(how, name) != getattr(Settings(), name)


def test_an_empty_variable_and_an_argument_of_none_set_nothing(tmp_path):
    assert load({"poll_seconds": None}, {"RXJOBS_POLL_SECONDS": ""}, tmp_path).poll_seconds == 1


@pytest.mark.parametrize(("text", "value"), [(text, True) for text in ("true", "1", "on", "yes", "TRUE", " On ")])
def test_what_is_true(text, value, tmp_path):
    assert load({}, {"RXJOBS_MIGRATE": text}, tmp_path).migrate is value


@pytest.mark.parametrize("text", ["false", "0", "off", "no", "False"])
def test_what_is_false(text, tmp_path):
    assert load({}, {"RXJOBS_NOTIFY": text}, tmp_path).notify is False


@pytest.mark.parametrize(
    "name",
    ["lease_seconds", "heartbeat_seconds", "rescue_seconds", "leader_seconds", "poll_seconds", "restart_window", "ageing_seconds"],
)
@pytest.mark.parametrize("value", [0, -1, "0", float("nan"), float("inf")])
def test_seconds_that_are_none_are_refused(name, value, tmp_path):
    with pytest.raises(rj.InvalidOption, match=name):
        load({name: value}, {}, tmp_path)


@pytest.mark.parametrize("name", ["shutdown_grace", "keep", "keep_discarded", "max_args_bytes", "max_restarts"])
def test_less_than_nothing_is_refused_and_nothing_is_not(name, tmp_path):
    assert getattr(load({name: 0}, {}, tmp_path), name) == 0
    with pytest.raises(rj.InvalidOption, match=f"{name} is at least 0, not -1"):
        load({name: -1}, {}, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        ({"colour": 1}, {}, "App has no setting 'colour'; there are dsn, schema"),
        ({"lease_seconds": "soon"}, {}, r"lease_seconds='soon' in App\(\.\.\.\) is no number"),
        ({"lease_seconds": True}, {}, "lease_seconds=True"),
        ({}, {"RXJOBS_AGEING_SECONDS": "often"}, "ageing_seconds='often' in RXJOBS_AGEING_SECONDS is no number"),
        ({"ageing_seconds": True}, {}, "ageing_seconds=True in App"),
        ({"notify": "maybe"}, {}, r"notify='maybe' in App\(\.\.\.\) is no boolean \(true or false\)"),
        ({}, {"RXJOBS_POLL_SECONDS": "often"}, "poll_seconds='often' in RXJOBS_POLL_SECONDS is no number"),
        ({}, {"RXJOBS_MAX_ARGS_BYTES": "1.5"}, "max_args_bytes='1.5' in RXJOBS_MAX_ARGS_BYTES is no whole number"),
        ({}, {"RXJOBS_MIGRATE": "2"}, "migrate='2' in RXJOBS_MIGRATE is no boolean"),
        ({"schema": "Jobs"}, {}, "schema is a lower-case PostgreSQL name of at most 48 characters, not 'Jobs'"),
        ({"schema": "a" * 49}, {}, "schema is"),
        ({"schema": 'x"; DROP TABLE jobs'}, {}, "schema is"),
        ({"schema": ""}, {}, "schema is"),
        ({"node": "a\x00b"}, {}, "node is a label"),
        ({"node": "n" * 129}, {}, "node is a label"),
        ({"lease_seconds": 9, "heartbeat_seconds": 4}, {}, "is more than a third of lease_seconds"),
    ],
)
def test_what_is_refused_is_named_with_where_it_was_set(arguments, environ, message, tmp_path):
    with pytest.raises(rj.InvalidOption, match=message):
        load(arguments, environ, tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", r"\[tool.rxjobs\] in pyproject.toml has no setting 'colour'"),
        ('poll_seconds = "often"', "poll_seconds='often' in pyproject.toml is no number"),
        ("poll_seconds = true", "poll_seconds=True in pyproject.toml is no number"),
        ("poll_seconds = ", "pyproject.toml could not be read"),
    ],
)
def test_a_wrong_pyproject_is_refused(text, message, tmp_path):
    with pytest.raises(rj.InvalidOption, match=message):
        load({}, {}, in_pyproject(tmp_path, text))


def test_a_pyproject_without_our_table_sets_nothing(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n')
    assert load({}, {}, tmp_path) == Settings()


def test_settings_are_frozen():
    how: Any = Settings()
    with pytest.raises(FrozenInstanceError):
        how.schema = "other"


def test_a_shorter_lease_alone_brings_a_heartbeat_that_fits_it():
    assert load({"lease_seconds": 3}, {}).heartbeat_seconds == 1
    assert load({"lease_seconds": 300}, {}).heartbeat_seconds == 10
    with pytest.raises(rj.InvalidOption, match="more than a third"):
        load({"lease_seconds": 3, "heartbeat_seconds": 2}, {})


@pytest.mark.parametrize(
    ("given", "kept"),
    [({}, 7 * 86400), ({"keep": 60}, 7 * 86400), ({"keep": 30 * 86400}, 30 * 86400), ({"keep": 9e6, "keep_discarded": 5}, 5)],
)
def test_dead_letters_are_kept_for_a_week_and_no_less_than_others_unless_it_is_said(given, kept, tmp_path):
    assert load(given, {}, tmp_path).keep_discarded == kept
