"""`tcbuild.toml`: read, checked key by key, with the nearest known name for a typo."""

import difflib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..formats.precision import IEEE
from .dims import POLICIES, Dim, Dynamic, Pad, Specialize
from .errors import ModelError, SpecError
from .method import Method
from .model_source import load_callable
from .spec import EMBEDDED, OFF, Call, Spec, no_inputs
from .training import Training
from .tune import Tune

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Every key of the file, with the types its value may have.
KEYS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "model": {
        "source": str,
        "inputs": str,
        "name": str,
        "optional": list,
        "training": list,
        "grad": list,
    },
    "build": {
        "targets": list,
        "mode": str,
        "emulate_precision_casts": bool,
        "pack_weights": bool,
        "fp32_precision": str,
        "weights": str,
    },
    "tune": {"minutes": (int, float), "candidates": int},
    "training": {
        "inference": bool,
        "partition": str,
        "activation_memory_budget": (int, float),
    },
    "fallback": {"embed": bool},
    "verify": {"enabled": bool, "tolerance": (int, float)},
}
DIM_KEYS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "specialize": {"policy": str, "values": list},
    "pad": {"policy": str, "sizes": list, "min": int, "fill": dict},
    "dynamic": {"policy": str, "min": int, "max": int, "tune": int},
}
METHOD_KEYS: Mapping[str, type | tuple[type, ...]] = {
    "inputs": str,
    "optional": list,
    "shapes": dict,
    "values": dict,
}
TABLES = (*KEYS, "methods", "dims", "shapes", "values")


def read(path: str | os.PathLike[str]) -> Spec:
    """Read a spec file; see Spec.load."""
    where = str(path)
    try:
        data = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(where, found=error.strerror, expected="a file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(where, found=str(error), expected="TOML") from None
    _check_keys(where, data, {name: dict for name in TABLES})
    tables = {name: _table(where, data, name) for name in KEYS}
    model, build = tables["model"], tables["build"]
    folder = Path(path).resolve().parent
    for key in ("source",) if "methods" in data else ("source", "inputs"):
        if key not in model:
            expected = f"[model] {key} = 'module:callable'"
            raise SpecError(where, found=f"no {key} under [model]", expected=expected)
    methods = data.get("methods", {})
    return Spec(
        name=model.get("name", folder.name),
        model=load_callable(model["source"], folder, f"{where}: model.source"),
        inputs=_inputs(where, "model", model["inputs"], folder) if "inputs" in model else no_inputs,
        methods={name: _method(where, name, value, folder) for name, value in methods.items()},
        dims={name: _dim(where, name, value) for name, value in data.get("dims", {}).items()},
        shapes=_shapes(where, "", data),
        values=_values(where, "", data),
        optional=tuple(model.get("optional", ())),
        training=tuple(model.get("training", (False,))),
        grad=tuple(model.get("grad", (OFF,))),
        step=Training(**tables["training"]) if "training" in data else None,
        source=model["source"],
        targets=tuple(build.get("targets", ("cpu",))),
        mode=build.get("mode", "default"),
        tune=Tune(**tables["tune"]),
        emulate_precision_casts=build.get("emulate_precision_casts", False),
        pack_weights=build.get("pack_weights", True),
        fp32_precision=build.get("fp32_precision", IEEE),
        weights=build.get("weights", EMBEDDED),
        embed_graph=tables["fallback"].get("embed", True),
        verify=tables["verify"].get("enabled", True),
        tolerance=float(tables["verify"].get("tolerance", 2.0)),
    )


def _method(where: str, name: str, value: Any, folder: Path) -> Method:
    place = f"methods.{name}"
    if not isinstance(value, dict):
        expected = f"a table [{place}]"
        raise SpecError(f"{where}: {place}", found=repr(value), expected=expected)
    _check_keys(f"{where}: {place}", value, METHOD_KEYS)
    if "inputs" not in value:
        expected = f"[{place}] inputs = 'module:callable'"
        raise SpecError(where, found=f"no inputs under [{place}]", expected=expected)
    return Method(
        inputs=_inputs(where, place, value["inputs"], folder),
        shapes=_shapes(where, f"{place}.", value),
        values=_values(where, f"{place}.", value),
        optional=tuple(value.get("optional", ())),
    )


def _inputs(
    where: str, table: str, source: str, folder: Path
) -> Callable[[Mapping[str, int]], Call]:
    """Wrap the user's function: it gets the sizes of the dims that it has parameters for."""
    where = f"{where}: {table}.inputs"
    function = load_callable(source, folder, where)
    parameters = inspect.signature(function).parameters.values()
    takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    names = {p.name for p in parameters}

    def inputs(sizes: Mapping[str, int]) -> Call:
        try:
            made = function(**{k: v for k, v in sizes.items() if takes_all or k in names})
        except Exception as error:
            raise ModelError(
                where,
                found=f"{type(error).__name__}: {error}",
                expected=f"an example call for {dict(sizes)}",
            ) from error
        if isinstance(made, tuple) and len(made) == 2:
            args, kwargs = made
            if isinstance(args, tuple | list) and isinstance(kwargs, dict):
                return tuple(args), kwargs
        raise ModelError(where, found=f"a {type(made).__name__}", expected="(args, kwargs)")

    return inputs


def _dim(where: str, name: str, value: Any) -> Dim:
    place = f"{where}: dims.{name}"
    if not isinstance(value, dict):
        raise SpecError(place, found=value, expected=f"a table [dims.{name}]")
    policy = value.get("policy")
    if not isinstance(policy, str) or policy not in POLICIES:
        near = difflib.get_close_matches(str(policy), POLICIES, n=1)
        tip = f"did you mean {near[0]!r}?" if near else None
        raise SpecError(
            f"{place}.policy", found=repr(policy), expected=" or ".join(POLICIES), tip=tip
        )
    _check_keys(place, value, DIM_KEYS[policy])
    if policy == Dynamic.policy:
        return Dynamic(min=value.get("min", 2), max=value.get("max"), tune=value.get("tune"))
    if policy == Pad.policy:
        sizes, fill = _sizes(place, value, "sizes"), value.get("fill", {})
        for path, filler in fill.items():
            if type(filler) not in (int, float, bool):
                raise SpecError(f"{place}.fill.{path}", found=repr(filler), expected="a number")
        return Pad(sizes=sizes, min=value.get("min", 1), fill=fill)
    return Specialize(values=_sizes(place, value, "values"))


def _sizes(place: str, value: Mapping[str, Any], key: str) -> tuple[int, ...]:
    if key not in value:
        raise SpecError(place, found=f"no {key}", expected=f"{key} = [sizes]")
    for size in value[key]:
        if type(size) is not int:
            raise SpecError(f"{place}.{key}", found=repr(size), expected="sizes")
    return tuple(value[key])


def _shapes(where: str, within: str, table: Mapping[str, Any]) -> dict[str, tuple[str | None, ...]]:
    shapes = {}
    for name, value in table.get("shapes", {}).items():
        if not isinstance(value, list) or not all(isinstance(axis, str | int) for axis in value):
            expected = 'a list with a dim name for each axis, "_" for one that does not vary'
            raise SpecError(f"{where}: {within}shapes.{name}", found=value, expected=expected)
        shapes[name] = tuple(
            axis if isinstance(axis, str) and axis != "_" else None for axis in value
        )
    return shapes


def _values(where: str, within: str, table: Mapping[str, Any]) -> dict[str, tuple[object, ...]]:
    values = {}
    for name, value in table.get("values", {}).items():
        if not isinstance(value, list):
            place = f"{where}: {within}values.{name}"
            raise SpecError(place, found=value, expected="a list of values")
        values[name] = tuple(value)
    return values


def _table(where: str, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    _check_keys(f"{where}: [{name}]", table, KEYS[name])
    return dict(table)


def _check_keys(
    where: str, table: Mapping[str, Any], known: Mapping[str, type | tuple[type, ...]]
) -> None:
    for key, value in table.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            expected = f"one of {', '.join(known)}"
            tip = f"did you mean {near[0]!r}?" if near else None
            raise SpecError(f"{where}: {key}", found="an unknown key", expected=expected, tip=tip)
        allowed = known[key]
        kinds = allowed if isinstance(allowed, tuple) else (allowed,)
        if type(value) not in kinds:
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise SpecError(
                f"{where}: {key}", found=repr(value), expected=f"a value of type {expected}"
            )
