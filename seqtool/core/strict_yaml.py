"""YAML that says what it says: values and sections, and no more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from seqtool.core.errors import ConfigError

_MAX_DEPTH = 50
_MAX_CHARACTERS = 100  # of a number, and of a value in a message


def read_yaml(text: str, path: Path | None = None) -> Any:
    """Return what YAML says: texts, numbers, yes and no, lists, and sections that have names.

    Aliases, tags and dates are not read, and no name may be given twice.

    Raises:
        ConfigError: it is anything else, or no YAML, with the line where it is in a file.
    """
    problem, line = "", None
    try:
        return _Loader(text).get_single_data()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or ""
        line = error.problem_mark.line + 1 if error.problem_mark else None
    except yaml.reader.ReaderError as error:  # which has no line
        problem = f"the character {chr(error.character)!r} is not allowed"
        line = text.count("\n", 0, error.position) + 1
    what, hint = f"not valid YAML: {problem}", "mend that line" if path else "quote it"
    raise ConfigError(what, hint=hint, path=path, line=line if path else None)


_SCALARS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str")}


class _Loader(yaml.SafeLoader):
    """YAML that can neither grow, nor refer to itself, nor stand for other than it says."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as its base has them
        first: [pair for pair in pairs if pair[0] in _SCALARS]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            raise _refusal("an alias is not read: write the value itself", event)
        if len(self.states) > _MAX_DEPTH:
            raise _refusal("nested too deeply", event)
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.construct_object(item) for item in node.value]
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._section(node)
        if node.tag not in _SCALARS or not isinstance(node, yaml.ScalarNode):
            raise _refusal(f"{node.tag} is not read", node)
        is_number = node.tag.endswith((":int", ":float"))
        try:
            if is_number and len(node.value) > _MAX_CHARACTERS:
                raise ValueError("a number of so many digits")
            return super().construct_object(node, deep)
        except (ValueError, LookupError) as error:  # !!bool x, 0x_
            shown = node.value[:_MAX_CHARACTERS]
            raise _refusal(f"{shown} is not what it begins as", node) from error

    def _section(self, node: Any) -> dict[str, Any]:
        section: dict[str, Any] = {}
        for key, value in node.value:
            name = self.construct_object(key)
            if not isinstance(name, str) or name in section:
                what = (
                    f"{name} is given twice" if isinstance(name, str) else "a setting has no name"
                )
                raise _refusal(what, key)
            section[name] = self.construct_object(value)
        return section


def _refusal(problem: str, at: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=at.start_mark)
