"""Find the user's app: the current folder is importable, and what fails is said with the user's own line."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from rxjobs.app import App
from rxjobs.errors import InvalidOption

DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
NOT_THEIRS = (
    "<frozen ",
    str(Path(__file__).parents[1]),
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""Where the frames of a traceback come from that are not the user's own."""


def load_app(path: str) -> App:
    """The app at MODULE:APP; raises InvalidOption that says where it was looked for, or where its module fails."""
    name, _, attribute = path.partition(":")
    if name.endswith(".py") or not DOTTED.fullmatch(name) or not DOTTED.fullmatch(attribute):
        raise InvalidOption(f"an app is named as MODULE:APP, such as shop.jobs:app, not {path!r}")
    module = _import(name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidOption(f"module {name!r} has no {attribute!r}; {_apps_in(module)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise InvalidOption(f"{path} is no rxjobs.App but of type {type(found).__qualname__}; {_apps_in(module)}")
    return found


def _import(name: str) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            raise InvalidOption(
                f"there is no module {error.name!r}; start rxjobs in the folder that {name!r} is imported from, this is {folder}"
            ) from error
        raise InvalidOption(f"module {name!r} cannot be imported, it fails at {_place_and_reason(error)}") from error


def _place_and_reason(error: BaseException) -> str:
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {kind}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(NOT_THEIRS)]
    last = (theirs or frames)[-1]
    return f"{last.filename}:{last.lineno}: {kind}: {error}"


def _apps_in(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f"its apps are: {', '.join(apps)}" if apps else "it has no app, which is made by app = rxjobs.App()"
