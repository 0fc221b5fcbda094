"""The Python package's page, from its docstrings. Griffe reads the sources; nothing is imported."""

import griffe

from comments import as_markdown


def _signature(function, name):
    arguments, star = [], False
    for one in function.parameters:
        if one.name in ("self", "cls"):
            continue
        kind = one.kind.value if one.kind else ""
        if kind == "keyword-only" and not star:
            arguments.append("*")
            star = True
        star = star or kind == "variadic positional"
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        default = f"={one.default}" if one.default is not None and not stars else ""
        arguments.append(f"{stars}{one.name}{default}")
    return f"{name}({', '.join(arguments)})"


def _text(one):
    return as_markdown(one.docstring.value, "python") if one.docstring else ""


def _function(function, name, level):
    return [f"{'#' * level} {name}", "", "```python", _signature(function, name), "```", "",
            _text(function), ""]


def _shown(members):
    return [one for one in members.values()
            if not one.name.startswith("_") and not one.is_alias
            and (one.is_function or one.is_class)]


def _class(one, level, methods=True):
    out = [f"{'#' * level} {one.name}", ""]
    bases = ", ".join(str(base) for base in one.bases)
    if "__init__" in one.members and not one.members["__init__"].is_alias:
        out.extend(["```python", _signature(one.members["__init__"], one.name), "```", ""])
    elif bases:
        out.extend([f"`{bases}`", ""])
    out.append(_text(one))
    fields = [member for member in one.members.values()
              if member.is_attribute and not member.name.startswith("_")
              and (bases == "NamedTuple" or "class-attribute" in member.labels)]
    if fields:
        out.extend(["", "```python", *(
            member.name + (f": {member.annotation}" if member.annotation else "")
            + (f" = {member.value}" if member.value is not None else "") for member in fields),
            "```", ""])
    for member in one.members.values() if methods else ():
        if member.name.startswith("_") or member.is_alias:
            continue
        if member.is_function:
            out.extend(_function(member, f"{one.name}.{member.name}", level + 1))
        elif member.is_attribute and "property" in member.labels:
            out.extend([f"{'#' * (level + 1)} {one.name}.{member.name}", "", _text(member), ""])
    return out


def page(search_path, package, modules, adapters):
    """The package's exports, module by module, then these modules of it. Adapters are loaded and
    called by their engines: only what a person configures is shown."""
    whole = griffe.load(package, search_paths=[search_path])
    exported = [whole[name].final_target for name in whole.exports]
    homes = sorted({one.module.path for one in exported},
                   key=lambda path: (path != f"{package}.client", path))
    out = ["# Python", "", _text(whole), ""]
    for path in homes:
        module = whole[path.removeprefix(f"{package}.")]
        out.extend([f"## {path}", "", _text(module), ""])
        for one in exported:
            if one.module.path == path:
                out.extend(_class(one, 3) if one.is_class else _function(one, one.name, 3))
    for name in [*modules, *adapters]:
        out.extend([f"## {package}.{name}", "", _text(whole[name]), ""])
        for one in _shown(whole[name].members):
            if one.is_class:
                out.extend(_class(one, 3, methods=name in modules))
            elif name in modules:
                out.extend(_function(one, one.name, 3))
    return "\n".join(out)
