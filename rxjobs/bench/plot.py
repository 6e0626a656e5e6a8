"""The rate by concurrency and by backlog, as a picture. It needs matplotlib, which the extra `bench` brings."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rxjobs.bench.figures import Figure
from rxjobs.bench.run import Report
from rxjobs.bench.scenarios import Scenario
from rxjobs.bench.tables import where
from rxjobs.errors import InvalidOption

SUFFIXES = (".svg", ".png")
DRAWN: dict[Scenario, str] = {"throughput": "jobs at once", "backlog": "jobs queued"}
"""What is drawn, and what stands at its axis."""
COLOURS = {"rxjobs": "tab:blue", "raw": "tab:grey"}


def check(path: Path, scenarios: Sequence[Scenario]) -> None:
    """Refuse what will not be drawn before anything is measured; raises InvalidOption."""
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidOption(f"--plot takes a file whose name ends in .svg or .png, not {str(path)!r}")
    if not path.resolve().parent.is_dir():
        raise InvalidOption(f"--plot: there is no folder {str(path.resolve().parent)!r}")
    if not any(scenario in DRAWN for scenario in scenarios):
        raise InvalidOption(f"--plot draws {' and '.join(DRAWN)}: name one of them beside {', '.join(scenarios)}")
    if find_spec("matplotlib") is None:
        raise InvalidOption('--plot needs matplotlib, which is not installed: pip install "rxjobs[bench]"')


def plot(report: Report, path: Path) -> None:
    """Draw it into a file; raises InvalidOption where that cannot be written."""
    # an extra, and slow to import; without pyplot, which would want a screen
    from matplotlib.figure import Figure as Picture

    drawn = [scenario for scenario in report.wanted.scenarios if scenario in DRAWN]
    picture = Picture(figsize=(1 + 5 * len(drawn), 4.5), layout="constrained")
    for scenario, axes in zip(drawn, picture.subplots(1, len(drawn), squeeze=False)[0], strict=True):
        _draw(axes, scenario, [one for one in report.figures if one.scenario == scenario and one.measure == "rate"])
    picture.suptitle(where(report), fontsize=8)
    try:
        picture.savefig(path)
    except OSError as error:
        raise InvalidOption(f"--plot: {str(path)!r} cannot be written: {error}") from error


def _draw(axes: Any, scenario: Scenario, figures: Sequence[Figure]) -> None:
    for runner, colour in COLOURS.items():
        ours = [one for one in figures if one.runner == runner and one.x is not None]
        if ours:
            x = [one.x for one in ours]
            axes.plot(x, [one.found.median for one in ours], marker="o", color=colour, label=runner)
            axes.fill_between(x, [one.found.least for one in ours], [one.found.most for one in ours], color=colour, alpha=0.2)
    axes.set(title=f"{scenario}", xlabel=DRAWN[scenario], ylabel="jobs/s", xscale="log", ylim=(0, None))
    ticks = sorted({one.x for one in figures if one.x is not None})
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
