"""The lock: what is written is read back, the same limits are the same bytes, and every refusal in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gonogo.errors import InputError
from gonogo.limits import EVERY_OP, Limit
from gonogo.limits.changes import Change, diff_limits, tell_change
from gonogo.limits.lock import read_lock, write_lock
from gonogo.records.writing import write_atomically

SOFTMAX = Limit(
    op="softmax",
    contract="float32",
    kernel=None,
    dtype=None,
    gauge="bound",
    rule="pooled",
    parameters={"margin": 3.0, "floor": 2.0},
    value=2.25,
    cases=2_400,
    exceeding=0,
    fp_upper95=0.0012474,
    runs=("h200-1", "h200-2"),
)
MATMUL = replace(
    SOFTMAX,
    op="matmul",
    kernel="triton_tf32",
    dtype="bfloat16",
    gauge="absolute",
    rule="paper",
    parameters={"percentile": 95.0, "factor": 1.5},
    value=1e-05,
    exceeding=31,
    runs=(),
)
TEXT = """\
format = 1

[provenance]
gonogo = "0.3.0"
seed = 7

[[limit]]
op = "matmul"
contract = "float32"
kernel = "triton_tf32"
dtype = "bfloat16"
gauge = "absolute"
rule = "paper"
parameters = {factor = 1.5, percentile = 95.0}
value = 1e-05
cases = 2400
exceeding = 31
fp_upper95 = 0.0012474
runs = []

[[limit]]
op = "softmax"
contract = "float32"
gauge = "bound"
rule = "pooled"
parameters = {floor = 2.0, margin = 3.0}
value = 2.25
cases = 2400
exceeding = 0
fp_upper95 = 0.0012474
runs = ["h200-1", "h200-2"]
"""

numbers = st.floats(allow_nan=False, allow_infinity=False)
limit_lists = st.lists(
    st.builds(
        Limit,
        op=st.sampled_from(["add", "softmax", ""]) | st.text(),
        contract=st.text(max_size=3),
        kernel=st.none() | st.text(max_size=3),
        dtype=st.none() | st.sampled_from(["float16", "bfloat16", ""]),
        gauge=st.sampled_from(["bound", "ulp"]),
        rule=st.text(),
        parameters=st.dictionaries(st.text(), numbers, max_size=3),
        value=st.floats(min_value=0, allow_nan=False, allow_infinity=False),
        cases=st.integers(),
        exceeding=st.integers(),
        fp_upper95=numbers,
        runs=st.lists(st.text(), max_size=3).map(tuple),
    ),
    max_size=5,
    unique_by=lambda limit: (limit.op, limit.contract, limit.kernel, limit.dtype, limit.gauge),
)
provenances = st.dictionaries(st.text(), st.text() | st.integers(), max_size=4)


def find_key(limit: Limit) -> tuple[str, ...]:
    return limit.op, limit.contract, limit.kernel or "", limit.dtype or "", limit.gauge


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("gonogo.lock")


def test_text(path: Path) -> None:
    write_lock(path, [SOFTMAX, MATMUL], {"seed": 7, "gonogo": "0.3.0"})
    assert path.read_text() == TEXT
    assert [file.name for file in Path().iterdir()] == ["gonogo.lock"]


def test_absent_comes_before_empty(path: Path) -> None:
    limits = [replace(SOFTMAX, kernel=kernel, dtype=dtype) for kernel in (None, "") for dtype in (None, "")]
    write_lock(path, limits[::-1], {})
    assert read_lock(path) == (limits, {})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=limit_lists, provenance=provenances, data=st.data())
def test_round_trip(path: Path, limits: list[Limit], provenance: dict[str, str | int], data: st.DataObject) -> None:
    write_lock(path, limits, provenance)
    first = path.read_bytes()
    found, found_provenance = read_lock(path)
    assert found_provenance == provenance
    assert list(map(find_key, found)) == sorted(map(find_key, limits))
    assert sorted(map(repr, found)) == sorted(repr(with_sorted_parameters(limit)) for limit in limits)
    write_lock(path, data.draw(st.permutations(limits)), dict(reversed(provenance.items())))
    assert path.read_bytes() == first


def with_sorted_parameters(limit: Limit) -> Limit:
    return replace(limit, parameters=dict(sorted(limit.parameters.items())))


def test_scalars_of_numpy(path: Path) -> None:
    write_lock(path, [replace(SOFTMAX, value=np.float64(0.1), cases=np.int64(3))], {})
    (found,), _ = read_lock(path)
    assert found == replace(SOFTMAX, value=0.1, cases=3)
    assert (type(found.value), type(found.cases)) == (float, int)


def test_whole_numbers_by_hand(path: Path) -> None:
    path.write_text(TEXT.replace("value = 2.25", "value = 4"))
    limits, _ = read_lock(path)
    assert repr(limits[1].value) == "4.0"


def test_a_lock_without_limits(path: Path) -> None:
    write_lock(path, [], {})
    assert path.read_text() == "format = 1\n\n[provenance]\n"
    assert read_lock(path) == ([], {})


AGAIN = "Make it again with: gonogo calibrate RUNS"
KEYS = "op, contract, kernel, dtype, gauge, rule, parameters, value, cases, exceeding, fp_upper95, runs, worst"
SECOND = "gonogo.lock: limit 2 (softmax/float32/bound)"
CONFLICT = """\
<<<<<<< HEAD
value = 2.25
=======
value = 2.5
>>>>>>> theirs"""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("value = 2.25", "value = ", f"gonogo.lock is not TOML: Invalid value (at line 27, column 9). {AGAIN}"),
        (
            "value = 2.25",
            CONFLICT,
            "gonogo.lock holds a merge conflict at line 27. Keep one side whole, or make it again with: "
            "gonogo calibrate RUNS",
        ),
        ("format = 1", "format = 9", "gonogo.lock has lock format 9, this gonogo reads 1. Update gonogo"),
        ("format = 1", "format = 0", f"gonogo.lock has lock format 0, this gonogo reads 1. {AGAIN}"),
        ("format = 1", 'format = "1"', f"gonogo.lock has lock format '1', this gonogo reads 1. {AGAIN}"),
        ("format = 1", "format = true", f"gonogo.lock has lock format True, this gonogo reads 1. {AGAIN}"),
        ("format = 1", "", f"gonogo.lock does not say its lock format; this gonogo reads 1. {AGAIN}"),
        ("format = 1", "format = 1\nextra = 2",
         "gonogo.lock: unknown key 'extra'; known: format, provenance, limit"),
        (TEXT, "format = 1\n[provenance]\n[limit]\nop = 'add'",
         "gonogo.lock: 'limit' is not a list of tables: write every limit under its own [[limit]]"),
        (TEXT, "format = 1\n", f"gonogo.lock has no [provenance] table. {AGAIN}"),
        ("seed = 7", "seed = 7.5", "gonogo.lock: provenance 'seed' is 7.5, not a text or a whole number"),
        ("seed = 7", "seed = true", "gonogo.lock: provenance 'seed' is True, not a text or a whole number"),
        ("value = 2.25\n", "", f"{SECOND} has no 'value'. {AGAIN}"),
        ('op = "softmax"\n', "", f"gonogo.lock: limit 2 (float32/bound) has no 'op'. {AGAIN}"),
        ("value = 2.25", 'value = "2.25"', f"{SECOND}: 'value' is '2.25', not a finite number >= 0"),
        ("value = 2.25", "value = inf", f"{SECOND}: 'value' is inf, not a finite number >= 0"),
        ("value = 2.25", "value = nan", f"{SECOND}: 'value' is nan, not a finite number >= 0"),
        ("value = 2.25", "value = -2.0", f"{SECOND}: 'value' is -2.0, not a finite number >= 0"),
        ("value = 2.25", "value = true", f"{SECOND}: 'value' is True, not a finite number >= 0"),
        ("exceeding = 0", "exceeding = 0.0", f"{SECOND}: 'exceeding' is 0.0, not a whole number"),
        ('rule = "pooled"', "rule = 3", f"{SECOND}: 'rule' is 3, not a text"),
        ("floor = 2.0", "floor = 'low'",
         f"{SECOND}: 'parameters' is {{'floor': 'low', 'margin': 3.0}}, not a table of finite numbers"),
        ('["h200-1", "h200-2"]', '"h200-1"', f"{SECOND}: 'runs' is 'h200-1', not a list of texts"),
        ('rule = "pooled"', 'rule = "pooled"\ndytpe = "float16"',
         f"{SECOND}: unknown key 'dytpe'; known: {KEYS}"),
        (TEXT[TEXT.index('\n[[limit]]\nop = "softmax"') :],
         2 * TEXT[TEXT.index('\n[[limit]]\nop = "softmax"') :],
         "gonogo.lock: limit 3 (softmax/float32/bound) is there twice. Keep one of them"),
    ],
)  # fmt: skip
def test_refusals(path: Path, old: str, new: str, text: str) -> None:
    assert TEXT.count(old) == 1
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_lock(path)
    assert str(caught.value) == text


def test_refusals_of_files(path: Path) -> None:
    with pytest.raises(InputError) as missing:
        read_lock(path)
    assert str(missing.value) == "there is no gonogo.lock. Make one with: gonogo calibrate RUNS"
    path.write_bytes(b"format = 1\n\xff")
    with pytest.raises(InputError) as binary:
        read_lock(path)
    assert str(binary.value) == f"gonogo.lock is not UTF-8 text: byte 11. {AGAIN}"
    with pytest.raises(InputError) as folder:
        read_lock(path.absolute().parent)
    assert str(folder.value) == f"{path.absolute().parent} cannot be read: Is a directory"


def test_a_refused_lock_leaves_the_old_one(path: Path) -> None:
    path.write_text(TEXT)
    refused: list[tuple[list[Limit], dict[str, str | int], str]] = [
        ([replace(SOFTMAX, value=float("inf"))], {},
         "gonogo.lock: limit 1 (softmax/float32/bound): 'value' is inf, not a finite number >= 0"),
        ([SOFTMAX, replace(SOFTMAX, value=3.0)], {},
         "gonogo.lock: limit 2 (softmax/float32/bound) is there twice. Keep one of them"),
        ([SOFTMAX], {"dirty": True}, "gonogo.lock: provenance 'dirty' is True, not a text or a whole number"),
    ]  # fmt: skip
    for limits, provenance, text in refused:
        with pytest.raises(InputError) as caught:
            write_lock(path, limits, provenance)
        assert str(caught.value) == text
        assert path.read_text() == TEXT


def test_diff() -> None:
    add = replace(SOFTMAX, op="add", dtype="float16")
    old = [SOFTMAX, MATMUL, add]
    new = [
        replace(SOFTMAX, value=2.5, cases=9_600),
        replace(SOFTMAX, gauge="ulp", value=7.0),
        replace(MATMUL, value=9e-6),
        replace(add, dtype=None),
    ]
    changes = diff_limits(old, new)
    assert [replace(change, before_cases=None, after_cases=None) for change in changes] == [
        Change("add", "float32", None, None, "bound", None, 2.25),
        Change("add", "float32", None, "float16", "bound", 2.25, None),
        Change("matmul", "float32", "triton_tf32", "bfloat16", "absolute", 1e-05, 9e-6),
        Change("softmax", "float32", None, None, "bound", 2.25, 2.5),
        Change("softmax", "float32", None, None, "ulp", None, 7.0),
    ]
    assert (changes[3].before_cases, changes[3].after_cases) == (SOFTMAX.cases, 9_600)
    assert [change.kind for change in changes] == ["new", "gone", "tightened", "loosened", "new"]
    assert diff_limits(old, [replace(limit, cases=limit.cases + 5, rule="wilks") for limit in old]) == []


def test_a_limit_from_fewer_cases_is_worth_less() -> None:
    (change,) = diff_limits([SOFTMAX], [replace(SOFTMAX, cases=3)])
    assert change.kind == "fewer"
    assert tell_change(change).endswith(f": 2.25 → 2.25, from {SOFTMAX.cases:,} → 3 cases")


def test_diff_of_a_kernel_named_on_one_side() -> None:
    named, looser = replace(SOFTMAX, kernel="softmax_torch"), replace(SOFTMAX, value=2.5)
    assert diff_limits([named], [SOFTMAX]) == []
    (change,) = diff_limits([named], [looser])
    assert (change.kernel, change.before, change.after) == ("softmax_torch", 2.25, 2.5)
    # Which of two is meant, nobody can tell; nor are two names one kernel, or two dtypes one limit.
    both = [named, replace(SOFTMAX, kernel="softmax_triton")]
    assert [change.kind for change in diff_limits(both, [SOFTMAX])] == ["new", "gone", "gone"]
    for other in (replace(SOFTMAX, kernel="mine"), replace(SOFTMAX, dtype="float16")):
        assert len(diff_limits([named], [other])) == 2


def test_a_universal_limit_is_one_per_contract(tmp_path: Path) -> None:
    """First in the file, told apart by contract alone: made from one op more it is the same limit, changed."""
    universal = replace(SOFTMAX, op=EVERY_OP, kernel="28 ops", rule="universal", value=16.5, cases=88_784)
    path = tmp_path / "gonogo.lock"
    write_lock(path, [SOFTMAX, universal], {"gonogo": "0.3.0"})
    assert read_lock(path)[0] == [universal, SOFTMAX]
    assert '[[limit]]\nop = "*"\ncontract = "float32"\nkernel = "28 ops"\ngauge = "bound"' in path.read_text()
    more = replace(universal, kernel="29 ops", value=17.0)
    counts = universal.cases, more.cases
    assert diff_limits([universal], [more]) == [Change("*", "float32", None, None, "bound", 16.5, 17.0, *counts)]
    assert diff_limits([universal], [replace(more, value=16.5)]) == []
    with pytest.raises(InputError, match=r"limit 2 \(\*/float32/29 ops/bound\) is there twice. Keep one of them"):
        write_lock(path, [universal, more], {})


@given(limit_lists, limit_lists)
def test_diff_turns_around(old: list[Limit], new: list[Limit]) -> None:
    opposite = {"new": "gone", "gone": "new", "tightened": "loosened", "loosened": "tightened"}
    there, back = (
        [change for change in diff_limits(*pair) if change.kind != "fewer"] for pair in ((old, new), (new, old))
    )
    turned = [
        Change(c.op, c.contract, c.kernel, c.dtype, c.gauge, c.after, c.before, c.after_cases, c.before_cases)
        for c in there
    ]
    assert turned == back
    assert [opposite[change.kind] for change in there] == [change.kind for change in back]
    assert diff_limits(old, old[::-1]) == []


def test_a_byte_order_mark_is_no_part_of_a_lock(tmp_path: Path) -> None:
    """Some editors put one in front when they save."""
    write_lock(tmp_path / "plain", [SOFTMAX], {"gonogo": "0.1.0"})
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "plain").read_bytes())
    assert read_lock(tmp_path / "marked") == read_lock(tmp_path / "plain")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "gonogo.lock"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert [file.read_text(encoding="utf-8") for file in tmp_path.iterdir()] == ["old"]
