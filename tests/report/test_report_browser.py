"""Pages in a real browser, offline: what is drawn, what filters do, what a keyboard reaches."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest
from command import gonogo
from counted_by_sql import RECORDS, count_by_sql
from evaluate.made_records import make_row, write_run

CHROMIUM = shutil.which("chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
pytestmark = pytest.mark.slow
if CHROMIUM is None and os.environ["GONOGO_TESTED_BY"] != "CI":
    pytest.skip("chromium is not installed: apt-get install chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    out = tmp_path_factory.mktemp("report") / "report.html"
    made = gonogo("report", RECORDS, "-o", out)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture
def visit(browser):
    """Open a page in a new profile; at its end it has said nothing and asked for nothing."""
    contexts, said, asked = [], [], []

    def open_page(path, fragment="", width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"file://{path}{fragment}")
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert [url for url in asked if not url.startswith(("file://", "data:"))] == []


def open_details(page):
    """Tables behind pictures are made when they are asked for."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.wait_for_function("[...document.querySelectorAll('details')].every((each) => each.children.length > 1)")


def read_counts(page):
    numbers = re.findall(r"\d[\d,]*", page.text_content("#counted"))
    return [int(number.replace(",", "")) for number in numbers]


def test_every_chart_has_its_marks_and_figures_are_those_of_evaluate(report, visit):
    page = visit(report)
    found = json.loads(gonogo("evaluate", RECORDS, "--json").stdout)["policies"]
    open_details(page)
    assert page.locator("#headline path.mark").count() == len([each for each in found if each["control_cases"]])
    ours = next(each for each in found if each["name"] == "gonogo")
    cells = page.locator("#headline tr.ours").locator("th, td").all_text_contents()
    assert cells[2] == f"{ours['false_positives']:,}/{ours['control_cases']:,}"
    assert cells[4] == f"{100 * ours['fp_upper95']:.3f} %"
    assert cells[5:8] == [f"{100 * ours[f'recall_{name}']:.2f} %" for name in ("all", "differing", "manifest")]
    assert cells[8] == " … ".join(f"{100 * share:.2f} %" for share in ours["recall_manifest_interval"])
    assert page.locator("#tightening rect.mark").count() == page.locator("#tightening tbody tr").count() > 20
    assert page.locator("#recall tbody tr").count() > 100
    assert page.locator("#recall thead th").count() == 1 + len(found)
    assert page.locator("#readings path.dot").count() > 20
    assert page.locator("#readings line.limit").count() >= 2
    assert page.locator("#signal polyline").count() == len(found)
    assert page.locator("#sweeps path.mark").count() > 30
    assert page.locator("#sweeps caption:has-text('Limits made from')").count() == 1
    assert page.locator("#cases tbody tr").count() > 100
    assert page.locator("#provenance tbody tr").count() >= 5
    for picture in page.locator(".chart svg").all():
        assert picture.get_attribute("aria-label")


@pytest.mark.parametrize(
    ("chosen", "where"),
    [
        ({}, "1"),
        ({"op": "softmax", "dtype": "float16"}, "op = 'softmax' AND dtype = 'float16'"),
        ({"distribution": "spike", "device": "NVIDIA H200"}, "distribution = 'spike' AND run LIKE 'h200%'"),
        ({"op": "gelu", "kernel": "gelu_half_cube"}, "kernel = 'gelu_half_cube'"),
    ],
    ids=["all", "op and dtype", "values and device", "kernel"],
)
def test_filters_change_counts_to_what_sql_says(chosen, where, report, visit):
    page = visit(report)
    for name, value in chosen.items():
        page.select_option(f'#filters select[data-filter="{name}"]', value)
    counted = read_counts(page)
    assert tuple(counted[:2]) == count_by_sql(where)
    assert counted[1] >= counted[2] >= counted[3]
    told = page.evaluate("location.hash")
    for name, value in chosen.items():
        assert f"{name}={value.replace(' ', '+')}" in told
    again = visit(report, told)
    assert read_counts(again) == counted
    assert again.locator("#headline tbody").text_content() == page.locator("#headline tbody").text_content()


def test_a_click_on_the_heat_map_filters_to_a_kernel(report, visit):
    page = visit(report)
    line = page.locator("#recall tbody tr").nth(40)
    kernel = line.get_attribute("data-kernel")
    line.locator("button").click()
    assert page.input_value('#filters select[data-filter="kernel"]') == kernel
    assert page.locator("#recall tbody tr").count() == 1
    assert read_counts(page)[0] == 0
    page.locator("#recall tbody button").click()
    assert page.input_value('#filters select[data-filter="kernel"]') == ""
    page.click("#filters button")
    assert page.evaluate("location.hash") == ""


def test_filtered_rates_and_intervals_are_those_of_evaluate(report, visit, tmp_path):
    """An op's pooled limits are its own: evaluate finds the same without the other ops."""
    page = visit(report, "#op=softmax")
    found = json.loads(gonogo("evaluate", RECORDS, "--op", "softmax", "--json").stdout)["policies"]
    shown = {line[0]: line for line in (
        row.locator("th, td").all_text_contents() for row in page.locator("#headline tbody tr").all()
    )}  # fmt: skip
    for each in found:
        if each["manifest"] and each["control_cases"]:
            line = shown[each["name"]]
            assert line[2] == f"{each['false_positives']:,}/{each['control_cases']:,}"
            assert line[4] == f"{100 * each['fp_upper95']:.3f} %"
            assert line[8] == " … ".join(f"{100 * share:.2f} %" for share in each["recall_manifest_interval"])


@pytest.mark.parametrize("width", [360, 1280, 2560])
def test_no_width_scrolls_sideways(width, report, visit, tmp_path):
    page = visit(report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"{width}.png", full_page=True)


@pytest.mark.parametrize(
    "fragment",
    ["bin=x", "bin=control", "gauge=zzz", "gauge=kernel", "kernel=nope", "op=nonsense", "dtype=zz", "kind=y",
     "shown=q", "op=softmax&kernel=gelu_half_cube", "%E0%A4%A"],
)  # fmt: skip
def test_a_link_to_what_is_not_there_shows_what_is(fragment, report, visit):
    page = visit(report, f"#{fragment}")
    assert page.locator("main > section").count() == 8
    assert read_counts(page)[0] > 0
    for name in ("op", "dtype", "kernel"):
        chosen = page.input_value(f'#filters select[data-filter="{name}"]')
        assert chosen in ("", "softmax")


def test_what_is_chosen_outlives_links_and_focus(report, visit):
    page = visit(report, "#op=softmax")
    page.locator("a.skip").focus()
    page.keyboard.press("Enter")
    page.click("#contents a >> nth=2")
    assert page.evaluate("location.hash") == "#op=softmax"
    assert page.input_value('#filters select[data-filter="op"]') == "softmax"
    page.locator('#recall button:text-is("differing")').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.textContent") == "differing"
    page.locator("#recall tbody button").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('tr').dataset.kernel") in page.evaluate("location.hash")


CORNERS = {
    "one record": [make_row("a")],
    "only controls": [make_row("a") for _ in range(20)],
    "zeros": [make_row("a", absolute=0.0, max_abs=0.0, ulp=0.0, bound=0.0, deterministic=0.0) for _ in range(20)],
    "no ulp, other dtypes": [make_row("a", ulp=None, dtype=dtype) for dtype in ("float64", "float8_e4m3fn") * 10],
    "infinite": [make_row("a") for _ in range(20)] + [make_row("b", "faulty", ulp=math.inf, bound=math.inf)],
    "one name in two ops": [make_row("a", op=op, case=f"{op}:f16:8:c:uniform:{at}")
                            for op in ("softmax", "gelu") for at in range(20)],
}  # fmt: skip


@pytest.mark.parametrize("name", CORNERS)
def test_few_and_odd_records_are_drawn_in_every_gauge(name, visit, tmp_path):
    run = write_run(tmp_path / "run", CORNERS[name])
    made = gonogo("report", run, "-o", tmp_path / "page.html")
    assert made.returncode == 0, made.stderr
    for gauge in ("absolute", "ulp", "bound", "deterministic"):
        page = visit(tmp_path / "page.html", f"#gauge={gauge}")
        assert page.locator("main > section").count() == 8
    if name == "one name in two ops":
        page = visit(tmp_path / "page.html", "#op=gelu")
        assert read_counts(page)[0] == 20
        assert page.locator("#readings path.dot").count() > 0


def test_dark_and_light_follow_the_system(report, visit):
    colours = [
        visit(report, color_scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    assert colours == ["rgb(255, 255, 255)", "rgb(17, 22, 29)"]


def test_a_keyboard_reaches_every_control(report, visit):
    page = visit(report, "#op=tanh")
    open_details(page)
    count = page.evaluate("""() => {
        const controls = [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
            .filter((each) => each.offsetParent !== null || each instanceof SVGElement);
        controls.forEach((each) => { each.dataset.reached = ''; });
        document.addEventListener('focusin', (event) => { delete event.target.dataset.reached; });
        return controls.length;
    }""")
    assert count > 60
    for _ in range(count + 5):
        page.keyboard.press("Tab")
    left = page.evaluate(
        "[...document.querySelectorAll('[data-reached]')].map((each) => each.outerHTML.slice(0, 120))"
    )
    assert left == []


def test_the_search_finds_and_a_click_sorts(report, visit):
    page = visit(report)
    before = page.locator("#cases tbody tr").count()
    page.fill('#cases input[type="search"]', "layernorm f32")
    found = page.locator("#cases tbody tr").all_text_contents()
    assert 0 < len(found) < before
    assert all("layernorm" in line for line in found)
    page.click("#cases thead th:nth-child(4) button")
    assert page.locator("#cases th[aria-sort=descending]").count() == 1


NAME = "<img src=x onerror=alert(1)>"


def test_names_and_messages_are_shown_and_not_run(visit, tmp_path):
    rows = [make_row(NAME) for _ in range(30)] + [make_row(f"{NAME}{NAME}", "faulty", bound=9e3) for _ in range(5)]
    run = write_run(tmp_path / "run</script>", rows)
    made = gonogo("report", run, "-o", tmp_path / "page.html", "--title", NAME)
    assert made.returncode == 0, made.stderr
    page = visit(tmp_path / "page.html")
    assert page.text_content("h1") == NAME
    assert page.locator(f'#recall tr[data-kernel="{NAME}{NAME}"]').count() == 1
    assert page.locator("main img").count() == 0


def test_a_run_that_lacks_records_is_named(visit, tmp_path):
    run = write_run(tmp_path / "run", [make_row("softmax_torch") for _ in range(40)], planned=41)
    made = gonogo("report", run, "-o", tmp_path / "page.html")
    assert made.returncode == 0, made.stderr
    told = visit(tmp_path / "page.html").locator("#provenance > p", has_text="incomplete").text_content()
    assert told.startswith(f"{run} is incomplete: it has 40 of 41 records. ")


def test_solutions_and_the_atlas_are_shown(visit, tmp_path):
    facts = {"fits": None, "why": "reads 9, limit 5"}
    answers = [
        facts | {"key": str(at), "problem": f"p{at}", "solution": f"model{at % 2}:{at}", "decision": decision,
                 "own": own, "comparison": comparison}
        for at, (decision, own, comparison) in enumerate(
            [("go", True, "agree"), ("no-go", True, "too loose"), ("refused", None, "–"), ("no-go", False, "agree")]
        )
    ]  # fmt: skip
    (tmp_path / "kept.jsonl").write_text("\n".join(map(json.dumps, answers)))
    out = tmp_path / "page.html"
    made = gonogo("report", "--solutions", tmp_path / "kept.jsonl", "--atlas", RECORDS / "atlas" / "cpu", "-o", out)
    assert made.returncode == 0, made.stderr
    page = visit(out)
    assert page.locator("#filters").is_hidden()
    assert page.locator("#solutions rect.mark").count() == 3  # go and refused of one model, no-go of the other
    assert "p1" in page.locator("#solutions .tall tbody tr").first.text_content()  # where the two verdicts differ
    page.fill("#solutions input", "refused")
    assert page.locator("#solutions .tall tbody tr").count() == 1
    assert page.locator("#atlas circle.dot").count() > 500
    page.fill("#atlas input", "softmax")
    assert 0 < page.locator("#atlas tbody tr").count() < 100


KERNEL = """
import torch

def softmax(x):
    y = torch.softmax(x.float(), -1)
    y[..., -1:] *= 1.01
    return y.to(x.dtype)
"""


def test_a_verdict_shows_where_the_error_lies(visit, tmp_path):
    (tmp_path / "kernel.py").write_text(KERNEL)
    out = tmp_path / "verdict.html"
    words = ("kernel.py", "--op", "softmax", "--dtype", "float32", "--cases", 8, "--seed", 1, "--device", "cpu")
    judged = gonogo("check", *words, "--report", out, cwd=tmp_path)
    assert judged.returncode == 1, judged.stderr
    page = visit(out)
    assert page.locator("#verdicts .verdict.no-go").count() == 1
    text = page.text_content("#kernel-0")
    assert "the worst element is always in the last column" in text
    assert re.search(r"gonogo check \S*kernel\.py:softmax --op softmax --only", text)
    assert page.locator("#kernel-0 rect.tile").count() > 0
    assert page.locator("#kernel-0 line.limit").count() == 3  # one for each axis
    page.click("#verdicts tbody a")
    assert page.evaluate("document.activeElement.textContent") == "kernel.py:softmax"
    narrow = visit(out, width=360)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 360


CRASHES = """
def softmax(x):
    raise ValueError("<img src=x onerror=alert(1)>")
"""


def test_a_kernel_without_a_reading_is_no_better_than_others(visit, tmp_path):
    (tmp_path / "kernel.py").write_text(CRASHES)
    words = ("kernel.py", "--op", "softmax", "--dtype", "float32", "--cases", 2, "--seed", 1, "--device", "cpu")
    judged = gonogo("check", *words, "--report", tmp_path / "verdict.html", cwd=tmp_path)
    assert judged.returncode == 1, judged.stderr
    page = visit(tmp_path / "verdict.html")
    assert page.locator("#verdicts tbody tr").locator("th, td").nth(7).text_content() == "–"
    assert "<img src=x onerror=alert(1)>" in page.text_content("#kernel-0")
    assert page.locator("main img").count() == 0


TESTS = """
import torch

def bad(x):
    return torch.softmax(x, -1) * 1.01

def test_good(gonogo):
    gonogo.verify(lambda x: torch.softmax(x, -1), "softmax")

def test_bad(gonogo):
    gonogo.verify(bad, "softmax")

def test_early(gonogo):
    raise RuntimeError
"""


def test_pytest_writes_the_page_of_all_verdicts(visit, tmp_path):
    (tmp_path / "test_kernels.py").write_text(TESTS)
    words = ["-q", "-p", "no:cacheprovider", "--gonogo-limits", "shipped", "--gonogo-cases", "4",
             "--gonogo-report", "out/page.html"]  # fmt: skip
    ended = subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 1, ended.stdout
    page = visit(tmp_path / "out" / "page.html")
    assert page.locator("#verdicts tbody tr").count() == 2
    first = page.locator("#verdicts tbody tr").first.text_content()
    assert "test_kernels.py::test_bad" in first
    assert "failed without a verdict: test_kernels.py::test_early" in page.text_content("#subtitle")
    assert "no-go" in first
    assert page.locator("rect.tile").count() > 0
