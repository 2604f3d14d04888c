"""Whatever a public function is called with: an answer, or an error of gonogo's own that says what is wrong."""

from __future__ import annotations

import inspect
import os
import traceback
import warnings
from collections import Counter

import pytest

torch = pytest.importorskip("torch")
from user.odd_arguments import RIGHT, make_call  # noqa: E402

import gonogo  # noqa: E402
from gonogo.errors import GonogoError  # noqa: E402

CALLS = int(os.environ.get("GONOGO_FUZZ_CALLS", "2000"))
"""Some seconds; by the variable as many as one likes, from whichever seed."""
FIRST = int(os.environ.get("GONOGO_FUZZ_FIRST", "0"))


def test_every_function_that_takes_a_users_words_is_called() -> None:
    plain = {"ErrorStats", "Format", "Gauge", "NoGo", "Reading", "Verification"}  # records, made by gonogo itself
    plain |= {"Client", "forget_cases"}  # needs a server: tests/service; takes nothing
    functions = {name for name in gonogo.__all__ if callable(getattr(gonogo, name))}
    assert functions - plain == set(RIGHT)


def call(seed: int) -> str | None:
    """What a call raises that it should not: where, and of which class."""
    name, given = make_call(seed)
    function = getattr(gonogo, name)
    try:
        function(**given)
    except GonogoError:
        return None
    except Exception as error:  # noqa: BLE001  which is what the test is about
        if isinstance(error, TypeError):
            try:
                inspect.signature(function).bind(**given)
            except TypeError:
                return None  # Python's own word for a parameter that is missing or unknown
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "gonogo" in frame.filename]
        where = f"{frames[-1].filename.partition('gonogo/')[2]}:{frames[-1].lineno}" if frames else "?"
        return f"{name}: {type(error).__name__} at {where}: {str(error)[:100]!r}, seed {seed}"
    return None


def test_what_is_raised_is_gonogos_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a record may be asked for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raised = [told for seed in range(FIRST, FIRST + CALLS) if (told := call(seed)) is not None]
    kinds = Counter(told.partition(": '")[0] for told in raised)
    assert not raised, f"{len(raised)} of {CALLS}: {kinds.most_common()}\n" + "\n".join(raised[:40])
