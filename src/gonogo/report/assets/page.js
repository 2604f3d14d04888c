// What the data holds is drawn; what is of records again whenever something is chosen.

const records = DATA.records ? new Records(DATA.records) : null;
const main = document.getElementById("main");

function update(changes) {
  Object.assign(state, changes);
  writeFragment();
  draw();
}

function drawFilters() {
  const form = document.getElementById("filters");
  form.hidden = !records;
  if (!records) return;
  const kernels = records.kernels
    .filter((kernel) => !state.op || kernel.op === state.op)
    .map((kernel) => kernel.name);
  const names = { ...records.names, op: records.ops, dtype: records.dtypes, kernel: [...new Set(kernels)].sort() };
  const change = (name) => (value) => update(name === "op" ? { op: value, kernel: "" } : { [name]: value });
  form.replaceChildren(
    ...FILTERS.map((name) =>
      choose(name, names[name], state[name], change(name), "all", records.merged.includes(name)),
    ),
    h("button", { type: "button", onclick: () => update({ ...USUAL }) }, "reset"),
    h("p", { id: "counted", "aria-live": "polite" }),
  );
}

function goTo(target) {
  target.tabIndex = -1;
  target.scrollIntoView();
  target.focus({ preventScroll: true });
}

// Once: searches and sorting in these last.
const others = [
  ...(DATA.solutions ? drawSolutions(DATA.solutions) : []),
  ...(DATA.atlas ? drawAtlas(DATA.atlas) : []),
];
const verdicts = DATA.verdicts ? drawVerdicts(DATA.verdicts) : [];
const once = drawings.length;

function draw() {
  const kept = document.activeElement?.dataset?.filter,
    place = scrollY;
  drawings.length = once;
  drawFilters();
  const sections = [...verdicts, ...(records ? drawRecords(records, update) : []), ...others];
  main.replaceChildren(...sections);
  const listed = DATA.verdicts ? sections.filter((each) => !each.id.startsWith("kernel-")) : sections; // the first table has links to these
  document
    .getElementById("contents")
    .replaceChildren(
      ...listed.map((each) => h("a", { href: "#" + each.id }, each.querySelector("h2").textContent)),
    );
  for (const redraw of drawings) redraw();
  if (kept) document.querySelector(`[data-filter="${CSS.escape(kept)}"]`)?.focus({ preventScroll: true });
  scrollTo(0, place);
}

function restore() {
  readFragment(records ? records.options : {});
  if (records && state.kernel && !records.kernelOf(state.kernel)) state.kernel = "";
  draw();
}

document.getElementById("subtitle").textContent = DATA.subtitle;
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (!link) return;
  event.preventDefault(); // the fragment holds what is chosen
  const target = document.getElementById(link.getAttribute("href").slice(1));
  if (target) goTo(target.querySelector("h2") ?? target);
});
addEventListener("hashchange", restore);
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    for (const redraw of drawings) redraw();
  }
});
restore();
document.body.dataset.ready = "yes";
