// What the data holds is drawn, again whenever something is chosen.

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
  const names = { ...records.names, op: records.ops, dtype: records.dtypes, kernel: records.kernels.filter((k) => !state.op || k.op === state.op).map((k) => k.name).sort() };
  const change = (name) => (value) => update(name === "op" ? { op: value, kernel: "" } : { [name]: value });
  form.replaceChildren(...FILTERS.map((name) => choose(name, names[name], state[name], change(name), "all")),
    h("button", { type: "button", onclick: () => update({ ...USUAL }) }, "reset"), h("p", { id: "counted", "aria-live": "polite" }));
}

function draw() {
  const kept = document.activeElement?.dataset?.filter, place = scrollY;
  drawings.length = 0;
  drawFilters();
  const sections = [...(DATA.verdicts ? drawVerdicts(DATA.verdicts) : []), ...(records ? drawRecords(records, update) : []),
                    ...(DATA.solutions ? drawSolutions(DATA.solutions) : []), ...(DATA.atlas ? drawAtlas(DATA.atlas) : [])];
  main.replaceChildren(...sections);
  document.getElementById("contents").replaceChildren(...sections.map((each) => h("a", { href: "#" + each.id, onclick: (event) => {
    event.preventDefault(); // the fragment holds what is chosen
    each.scrollIntoView();
    each.querySelector("h2").tabIndex = -1;
    each.querySelector("h2").focus({ preventScroll: true });
  } }, each.querySelector("h2").textContent)));
  for (const redraw of drawings) redraw();
  if (kept) document.querySelector(`[data-filter="${kept}"]`)?.focus({ preventScroll: true });
  scrollTo(0, place);
}

document.getElementById("subtitle").textContent = DATA.subtitle;
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => { readFragment(); draw(); });
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; for (const redraw of drawings) redraw(); } });
readFragment();
draw();
document.body.dataset.ready = "yes";
