"""What is wrong with a collector's configuration, as far as its structure tells: Jaeger v2 is a collector too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

PLACES = {"receivers": ("receivers", "connectors"), "processors": ("processors",), "exporters": ("exporters", "connectors")}


def faults(config: Mapping[str, Any]) -> list[str]:
    """What is used and not declared, declared and not used, or connected at one end."""
    return [*_undeclared(config), *_unused(config), *_half_connected(config), *_storages(config)]


def _pipelines(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config["service"]["pipelines"]


def _undeclared(config: Mapping[str, Any]) -> Iterator[str]:
    for name, pipeline in _pipelines(config).items():
        yield from (f"pipeline {name} has unknown {part}" for part in pipeline.keys() - PLACES.keys())
        yield from (f"pipeline {name} has no {part}" for part in ("receivers", "exporters") if not pipeline.get(part))
        for part, places in PLACES.items():
            declared = {one for place in places for one in config.get(place) or ()}
            yield from (f"{part} of {name}: {one} is not declared" for one in pipeline.get(part, ()) if one not in declared)
    for one in config["service"].get("extensions", ()):
        if one not in (config.get("extensions") or ()):
            yield f"extension {one} is not declared"


def _unused(config: Mapping[str, Any]) -> Iterator[str]:
    used = {one for pipeline in _pipelines(config).values() for part in PLACES for one in pipeline.get(part, ())}
    used |= set(config["service"].get("extensions", ()))
    for place in ("receivers", "processors", "exporters", "connectors", "extensions"):
        yield from (f"{place}: {one} is not used" for one in config.get(place) or () if one not in used)
    yield from (f"unknown section {one}" for one in config.keys() - {*PLACES, "connectors", "extensions", "service"})


def _half_connected(config: Mapping[str, Any]) -> Iterator[str]:
    for connector in config.get("connectors") or ():
        for part in ("receivers", "exporters"):
            if not any(connector in pipeline.get(part, ()) for pipeline in _pipelines(config).values()):
                yield f"connector {connector} is not among the {part} of any pipeline"


def _storages(config: Mapping[str, Any]) -> Iterator[str]:
    """Jaeger's own: who reads or writes names a storage that there is."""
    extensions = config.get("extensions") or {}
    storage = extensions.get("jaeger_storage", {})
    asked = extensions.get("jaeger_query", {}).get("storage", {})
    wanted = {("backends", asked.get("traces")), ("metric_backends", asked.get("metrics"))}
    wanted |= {("backends", one.get("trace_storage")) for one in (config.get("exporters") or {}).values() if one}
    for place, name in wanted:
        if name is not None and name not in storage.get(place, {}):
            yield f"jaeger_storage has no {place} {name}"
