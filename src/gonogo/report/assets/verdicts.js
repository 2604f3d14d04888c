// Sections of verdicts on a user's kernels, of a batch of solutions, and of the atlas of torch's ops.

const badge = (decision) => h("span", { class: "verdict " + decision }, decision);
// Below the limit in the colour of what is fine, above it, with a step, in that of what is not, darker by powers of
// ten. Without a limit in the map's own gauge, by the largest reading.
function shade(reading, limit, most) {
  if (reading < 0) return "transparent";
  const value = readingOf(reading);
  if (limit === null) return `rgba(var(--heat), ${(value > 0 ? Math.min(1, 0.1 + 0.9 * value / most) : 0.04).toFixed(3)})`;
  if (value <= limit) return `rgba(var(--heat), ${(0.06 + 0.24 * value / limit).toFixed(3)})`;
  return `rgba(var(--miss), ${Math.min(1, 0.7 + 0.06 * Math.log10(value / limit)).toFixed(3)})`;
}

function tellRange(at, pieces, size) {
  const start = Math.floor(at * size / pieces), end = Math.floor((at + 1) * size / pieces) - 1;
  return start >= end ? `${start}` : `${start} to ${end}`;
}

function drawMap(map, limit, axes) {
  const rows = map.tiles.length, columns = map.tiles[0].length, high = map.shape.at(-2) ?? 1, wide = map.shape.at(-1);
  const finite = map.tiles.flat().map(readingOf).filter(Number.isFinite), most = Math.max(1e-300, ...finite);
  const words = map.index.length ? `slice [${map.index.join(", ")}, :, :]` : "the whole output";
  const figure = chart(`Where the error lies in ${words} of an output of shape ${map.shape.join(" × ")}`, 0, (svg, width) => {
    const across = Math.min(26, (Math.min(width, 620) - 60) / columns), down = Math.min(26, 420 / rows), left = 44, top = 24;
    map.tiles.forEach((row, y) => row.forEach((reading, x) => svg.append(h("rect", told(
      `rows ${tellRange(y, rows, high)}, columns ${tellRange(x, columns, wide)}: ${reading < 0 ? "not judged" : `reads ${number(readingOf(reading))}${limit === null ? "" : `, limit ${number(limit)}`}`}`,
      { class: "tile", x: left + x * across, y: top + y * down, width: across - 0.6, height: down - 0.6, style: `fill: ${shade(reading, limit, most)}`,
        stroke: "var(--grid)", "stroke-width": 0.5 })))));
    svg.append(h("text", { x: left, y: 14, class: "soft" }, `${axes.at(-1) ?? "last axis"}: 0 … ${wide - 1}`),
      h("text", { x: left - 6, y: top + 12, "text-anchor": "end", class: "soft" }, "0"),
      h("text", { x: left - 6, y: top + rows * down, "text-anchor": "end", class: "soft" }, String(high - 1)));
    return top + rows * down + 12;
  });
  return h("div", {}, h("h3", {}, `Worst case, ${map.leaf ? `leaf ${map.leaf}, ` : ""}${words}`),
    limit === null ? h("p", { class: "note" }, "In the gauge bound; the limit is in another, and is not drawn.")
      : legend([["within the limit", 0, 1], ["above it, darker by powers of ten", 1, 1]]), figure,
    map.tiles.flat().some((reading) => reading < 0) ? h("p", { class: "note" }, "Blank: not judged.") : null);
}

function drawAxis(values, size, name, limit) {
  const finite = values.filter((v) => Number.isFinite(v) && v > 0), around = limit === null ? finite : [limit / 30, limit * 3, ...finite];
  const high = Math.max(1e-30, ...around) * 1.5, low = Math.min(high / 100, ...around);
  return chart(`Largest reading by place along ${name}`, 190, (svg, width) => {
    const box = { left: 58, right: Math.min(width, 620) - 10, top: 24, bottom: 150 }, y = scale(low, high, box.bottom, box.top, true);
    const step = (box.right - box.left) / values.length;
    svg.append(...y.ticks.map((t) => h("text", { class: "soft", x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, power(t))),
      ...values.map((v, at) => h("rect", told(`${name} ${tellRange(at, values.length, size)}: ${v < 0 ? "not judged" : `reads ${number(v)}`}`,
        { class: limit !== null && v > limit ? "k1" : "k0", x: box.left + at * step, width: Math.max(1, step - 1),
          y: v > 0 ? y(v) : box.bottom, height: v > 0 ? Math.max(1, box.bottom - y(v)) : 0 }))),
      limit === null ? "" : h("line", { class: "limit", x1: box.left, x2: box.right, y1: y(limit), y2: y(limit) }),
      h("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      h("text", { class: "soft", x: box.left, y: box.bottom + 16 }, "0"), h("text", { class: "soft", x: box.right, y: box.bottom + 16, "text-anchor": "end" }, String(size - 1)),
      h("text", { x: (box.left + box.right) / 2, y: box.bottom + 32, "text-anchor": "middle" }, name),
      h("text", { x: box.left, y: 14, class: "soft" }, limit === null ? "largest reading" : "largest reading; the line is the limit"));
  });
}

function drawAlong(map, limit, axes) {
  const shown = map.along.map((values, axis) => ({ values: values.map(readingOf), size: map.shape[axis], name: axes[axis] ?? `axis ${axis}` }))
    .filter((axis) => axis.size > 1 || map.shape.length === 1);
  const lines = shown.flatMap((axis) => axis.values.map((value, at) => ({ name: axis.name, place: tellRange(at, axis.values.length, axis.size), value, at })));
  return [...shown.map((axis) => drawAxis(axis.values, axis.size, axis.name, limit)), behind(() => makeTable([
    { name: "axis", value: (l) => l.name, show: (l) => l.name }, { name: "place", value: (l) => l.at, show: (l) => l.place },
    { name: "largest reading", value: (l) => l.value, show: (l) => l.value < 0 ? "not judged" : number(l.value) },
  ], lines, { caption: "Largest reading by place along each axis", tall: true }))];
}

// The largest reading of its limit; none where a case failed without a reading, which is further off than any.
function largestShare(verdict) {
  if (verdict.verdicts.some((c) => c.decision === "no-go" && c.share === null)) return null;
  return Math.max(0, ...verdict.verdicts.map((c) => readingOf(c.share) ?? 0));
}

const MOST_KERNELS = 100, MOST_CASES = 200; // of very many tests, a page that opens at once says more than all of them

function tabulateCases(verdict) {
  const cases = [...verdict.verdicts].sort((a, b) => (readingOf(b.share) ?? Infinity) - (readingOf(a.share) ?? Infinity));
  const words = (name) => ({ name, class: "text", value: (c) => c[name], show: (c) => c[name] });
  return makeTable([
    { name: "case", value: (c) => c.case, show: (c) => h("code", {}, c.case) }, { name: "decision", class: "text", value: (c) => c.decision, show: (c) => badge(c.decision) },
    { name: "reading", value: (c) => readingOf(c.reading) }, { name: "limit", value: (c) => c.limit }, { name: "of its limit", value: (c) => readingOf(c.share) },
    { name: "sizes", class: "text", value: (c) => JSON.stringify(c.sizes), show: (c) => Object.entries(c.sizes).map(([k, v]) => `${k} ${v}`).join(", ") },
    words("distribution"), words("layout"), { ...words("message"), class: "wrap text" },
  ], cases.slice(0, MOST_CASES), { caption: `${Math.min(MOST_CASES, cases.length)} of ${cases.length} cases, those furthest off first`, tall: cases.length > 14 });
}

function drawVerdict(verdict, at) {
  const { map, worst } = verdict, raised = verdict.verdicts.find((c) => c.error)?.error;
  const sizes = verdict.verdicts.find((c) => c.case === worst?.case)?.sizes ?? {}, shape = Object.values(sizes);
  const isNamed = map && shape.length === map.shape.length && shape.every((size, axis) => size === map.shape[axis]);
  const axes = isNamed ? Object.keys(sizes) : [], limit = worst?.gauge === "bound" && worst.limit ? worst.limit : null;
  return section(`kernel-${at}`, verdict.name, null, h("p", {}, badge(verdict.decision), ` ${verdict.failed} of ${verdict.cases} cases failed; contract ${verdict.contract}; limit: ${verdict.limit_from}`),
    h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, verdict.lines.map(([name, text]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "wrap text" }, text)))))),
    raised ? h("details", {}, h("summary", {}, "What it raised"), h("pre", { class: "scroll" }, raised)) : null,
    map ? h("div", { class: "two" }, drawMap(map, limit, axes), h("div", {}, h("h3", {}, "Along each axis"), drawAlong(map, limit, axes))) : null,
    verdict.decision === "go" ? behind(() => tabulateCases(verdict), "All cases") : tabulateCases(verdict));
}

function drawVerdicts(verdicts) {
  const counts = {}, single = verdicts.map((verdict, at) => ({ verdict, at })).filter(({ verdict }) => verdict.decision !== "go" || verdicts.length <= MOST_KERNELS).slice(0, MOST_KERNELS);
  for (const each of verdicts) counts[each.decision] = (counts[each.decision] ?? 0) + 1;
  const shown = new Set(single.map(({ verdict }) => verdict));
  const link = (v) => shown.has(v) ? h("a", { href: `#kernel-${verdicts.indexOf(v)}` }, v.name) : v.name;
  const list = makeTable([
    { name: "kernel", value: (v) => v.name, show: link }, { name: "decision", class: "text", value: (v) => v.decision, show: (v) => badge(v.decision) },
    { name: "op", class: "text", value: (v) => v.op, show: (v) => v.op }, { name: "contract", class: "text", value: (v) => v.contract, show: (v) => v.contract },
    { name: "cases", value: (v) => v.cases }, { name: "failed", value: (v) => v.failed }, { name: "suspect", value: (v) => v.suspect },
    { name: "largest, of its limit", value: (v) => largestShare(v) ?? Infinity, show: (v) => number(largestShare(v)) },
    { name: "pattern", class: "wrap text", value: (v) => v.pattern ?? "", show: (v) => v.pattern ?? "–" },
  ], verdicts, { caption: Object.entries(counts).map(([word, n]) => `${n} ${word}`).join(", ") });
  const left = verdicts.length - single.length;
  return [section("verdicts", "Verdicts", "No-go first. A reading is an error in units of what a correct kernel may be off by; its limit is what correct kernels stay below."
    + (left ? ` ${left} have no part of their own here.` : ""), list), ...single.map(({ verdict, at }) => drawVerdict(verdict, at))];
}

function drawSolutions(batch) {
  const { solutions, models } = batch;
  const words = (s) => `${s.problem} ${s.solution} ${s.why} ${s.decision} ${s.comparison}`;
  const decisions = ["go", "suspect", "no-go", "refused"];
  const figure = chart("Verdicts by model, as shares of its solutions", 0, (svg, width) => {
    const left = Math.min(190, width * 0.4), step = 30, right = width - 20;
    models.forEach((model, at) => {
      let x = left;
      svg.append(h("text", { x: left - 8, y: 20 + at * step, "text-anchor": "end" }, fit(model.model || "all", left - 8)));
      decisions.forEach((decision, place) => {
        const share = (right - left) * model[decision] / model.solutions;
        if (!share) return;
        svg.append(h("rect", told(`${model.model}: ${model[decision]} of ${model.solutions} ${decision}`, { class: ["k0", "k4", "fails", "k6"][place] + " mark", x, y: 6 + at * step, width: Math.max(1, share - 1), height: step - 10 })),
          share > 26 ? h("text", { x: x + 5, y: 20 + at * step, style: "fill: var(--paper)" }, String(model[decision])) : "");
        x += share;
      });
    });
    return 16 + models.length * step;
  });
  const byModel = makeTable([{ name: "model", value: (m) => m.model, show: (m) => m.model || "–" }, ...["solutions", ...decisions].map((name) => ({ name, value: (m) => m[name] })),
    { name: "own check passes", value: (m) => m.own }, { name: "own check too loose", value: (m) => m.loose }, { name: "too strict", value: (m) => m.strict }], models, { caption: "By model" });
  const [search, table] = searchable("softmax gpt no-go", "solutions", solutions, words, (found) => makeTable([
    { name: "problem", value: (s) => s.problem, show: (s) => s.problem }, { name: "solution", class: "text", value: (s) => s.solution, show: (s) => s.solution },
    { name: "gonogo", class: "text", value: (s) => s.decision, show: (s) => badge(s.decision) },
    { name: "own check", class: "text", value: (s) => String(s.own), show: (s) => s.own === null ? "–" : s.own ? "passes" : "fails" },
    { name: "own check is", class: "text", value: (s) => s.comparison, show: (s) => s.comparison }, { name: "contract that fits", class: "text", value: (s) => s.fits ?? "", show: (s) => s.fits ?? "–" },
    { name: "why", class: "wrap text", value: (s) => s.why, show: (s) => s.why || "–" },
  ], found, { caption: `${found.length} of ${batch.count} solutions${batch.count > solutions.length ? `; those on which the two verdicts differ, and the first others: ${solutions.length} are listed` : ""}`, tall: true }));
  return [section("solutions", "Solutions of a benchmark", `${batch.told}. gonogo’s verdict stands beside the benchmark’s own: too loose where it passes what gonogo does not.`,
    legend([["go", 0, 1], ["suspect", 4, 1], ["no-go", 1, 1], ["refused", 6, 1]]), figure, byModel, h("div", { class: "row" }, search), table)];
}

const MOST_LINES = 400; // that a table is drawn of; the search looks at all

function drawAtlas(atlas) {
  const { columns, names, rows: lines } = atlas; // texts are numbers of names
  atlas.findings ??= lines.map((line) => Object.fromEntries(line.map((value, at) => [columns[at], columns[at] in names ? names[columns[at]][value] : value])));
  const kinds = [...new Set(atlas.findings.map((f) => `${f.device}, ${f.dtype}, ${f.kind}`))];
  const found = atlas.findings.filter((f) => f.deterministic !== null && readingOf(f.deterministic) > 0);
  const figure = chart("The largest deterministic reading of each of torch’s ops, by device, dtype and pass; above 1 is more than rounding explains", 0, (svg, width) => {
    const left = Math.min(250, width * 0.45), step = 24, box = { left, right: width - 16, top: 12, bottom: 16 + step * kinds.length };
    const x = scale(1e-3, 10, box.left, box.right, true);
    svg.append(...frame(box, x, null, { xTick: power, x: "largest error over the deterministic bound" }).filter(Boolean), h("line", { class: "limit", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom }));
    kinds.forEach((kind, at) => svg.append(h("text", { x: left - 8, y: box.top + at * step + 16, "text-anchor": "end" }, fit(kind, left - 8))));
    for (const f of found) svg.append(h("circle", { class: `dot k${colourOf(f.dtype)}`, cx: x(readingOf(f.deterministic)), cy: box.top + kinds.indexOf(`${f.device}, ${f.dtype}, ${f.kind}`) * step + 12, r: 2.6, opacity: 0.85 }));
    return box.bottom + 44;
  });
  const words = (f) => `${f.op} ${f.kind} ${f.dtype} ${f.device} ${f.state} ${f.reason}`;
  const findings = [...atlas.findings].sort((a, b) => (readingOf(b.deterministic) ?? -1) - (readingOf(a.deterministic) ?? -1));
  const [search, table] = searchable("softmax cuda", "atlas", findings, words, (lines) => makeTable([
    { name: "op", value: (f) => f.op, show: (f) => f.op }, ...["kind", "dtype", "device", "state"].map((name) => ({ name, class: "text", value: (f) => f[name], show: (f) => f[name] })),
    { name: "deterministic", value: (f) => readingOf(f.deterministic) }, { name: "bound", value: (f) => readingOf(f.bound) }, { name: "why", class: "wrap text", value: (f) => f.reason, show: (f) => f.reason || "–" },
  ], lines.slice(0, MOST_LINES), { caption: `${Math.min(MOST_LINES, lines.length)} of ${lines.length} lines`, tall: true }));
  return [section("atlas", "Atlas of torch’s ops", atlas.told, figure, h("div", { class: "row" }, search), table)];
}
