"""Nests against their own definition: what is taken apart by path is put together again."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gonogo.guest.nests import list_leaves, map_leaves

Point = namedtuple("Point", "x y")


@dataclass(frozen=True)
class Pair:
    first: Any
    second: Any
    made: int = field(default=3, init=False)


class Names(dict[str, Any]):
    __getattr__ = dict.__getitem__


NESTS = st.recursive(
    st.integers() | st.none() | st.text(max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.builds(Point, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3), st.builds(Pair, inner, inner),
        st.builds(lambda part: Names(k=part), inner), st.builds(lambda part: OrderedDict(k=part), inner),
    ),
    max_leaves=12,
)  # fmt: skip


@given(NESTS)
def test_what_is_taken_apart_is_put_together(nest: Any) -> None:
    leaves = list(list_leaves(nest))
    seen: list[tuple[str, Any]] = []

    def wrap(path: str, leaf: Any) -> Any:
        seen.append((path, leaf))
        return ("wrapped", leaf).__repr__()

    wrapped = map_leaves(wrap, nest)
    assert seen == leaves
    assert type(wrapped) is type(nest) or not leaves or leaves[0][0] == ""
    assert [path for path, _ in list_leaves(wrapped)] == [path for path, _ in leaves]
    assert map_leaves(lambda path, leaf: leaf, nest) is nest, "a nest that nothing is changed of is the nest"


def test_paths() -> None:
    nest = {"cache": Pair({"k": 1}, [2, Point(3, 4)])}
    assert [path for path, _ in list_leaves(nest)] == [
        "cache.first.k", "cache.second.0", "cache.second.1.x", "cache.second.1.y", "cache.made",
    ]  # fmt: skip
    assert list(list_leaves(5)) == [("", 5)]
