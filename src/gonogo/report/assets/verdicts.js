// Verdicts on a user's kernels, and where in an output the error lies.

const badge = (decision) => h("span", { class: "verdict " + decision }, decision);

// Below the limit in the colour of what is fine, above it, with a step, in that of what is not, darker by powers of
// ten. Without a limit in the map's own gauge, by the largest reading.
function shade(reading, limit, most) {
  if (reading < 0) return "transparent";
  const value = readingOf(reading);
  if (limit === null)
    return `rgba(var(--heat), ${(value > 0 ? Math.min(1, 0.1 + (0.9 * value) / most) : 0.04).toFixed(3)})`;
  if (value <= limit) return `rgba(var(--heat), ${(0.06 + (0.24 * value) / limit).toFixed(3)})`;
  return `rgba(var(--miss), ${Math.min(1, 0.7 + 0.06 * Math.log10(value / limit)).toFixed(3)})`;
}

function tellRange(at, pieces, size) {
  const start = Math.floor((at * size) / pieces),
    end = Math.floor(((at + 1) * size) / pieces) - 1;
  return start >= end ? `${start}` : `${start} to ${end}`;
}

function drawMap(map, limit, axes) {
  const rows = map.tiles.length,
    columns = map.tiles[0].length,
    high = map.shape.at(-2) ?? 1,
    wide = map.shape.at(-1);
  const finite = map.tiles.flat().map(readingOf).filter(Number.isFinite),
    most = Math.max(1e-300, ...finite);
  const words = map.index.length ? `slice [${map.index.join(", ")}, :, :]` : "the whole output";
  const figure = chart(
    `Where the error lies in ${words} of an output of shape ${map.shape.join(" × ")}`,
    0,
    (svg, width) => {
      const across = Math.min(26, (Math.min(width, 620) - 60) / columns),
        down = Math.min(26, 420 / rows),
        left = 44,
        top = 24;
      map.tiles.forEach((row, y) =>
        row.forEach((reading, x) =>
          svg.append(
            h(
              "rect",
              told(
                `rows ${tellRange(y, rows, high)}, columns ${tellRange(x, columns, wide)}: ${reading < 0 ? "not judged" : `reads ${number(readingOf(reading))}${limit === null ? "" : `, limit ${number(limit)}`}`}`,
                {
                  class: "tile",
                  x: left + x * across,
                  y: top + y * down,
                  width: across - 0.6,
                  height: down - 0.6,
                  style: `fill: ${shade(reading, limit, most)}`,
                  stroke: "var(--grid)",
                  "stroke-width": 0.5,
                },
              ),
            ),
          ),
        ),
      );
      svg.append(
        h("text", { x: left, y: 14, class: "soft" }, `${axes.at(-1) ?? "last axis"}: 0 … ${wide - 1}`),
        h("text", { x: left - 6, y: top + 12, "text-anchor": "end", class: "soft" }, "0"),
        h("text", { x: left - 6, y: top + rows * down, "text-anchor": "end", class: "soft" }, String(high - 1)),
      );
      return top + rows * down + 12;
    },
  );
  return h(
    "div",
    {},
    h("h3", {}, `Worst case, ${map.leaf ? `leaf ${map.leaf}, ` : ""}${words}`),
    limit === null
      ? h("p", { class: "note" }, "In the gauge bound; the limit is in another, and is not drawn.")
      : legend([
          ["within the limit", 0, 1],
          ["above it, darker by powers of ten", 1, 1],
        ]),
    figure,
    map.tiles.flat().some((reading) => reading < 0) ? h("p", { class: "note" }, "Blank: not judged.") : null,
  );
}

function drawAxis(values, size, name, limit) {
  const finite = values.filter((v) => Number.isFinite(v) && v > 0),
    around = limit === null ? finite : [limit / 30, limit * 3, ...finite];
  const high = Math.max(1e-30, ...around) * 1.5,
    low = Math.min(high / 100, ...around);
  return chart(`Largest reading by place along ${name}`, 190, (svg, width) => {
    const box = { left: 58, right: Math.min(width, 620) - 10, top: 24, bottom: 150 },
      y = scale(low, high, box.bottom, box.top, true);
    const step = (box.right - box.left) / values.length;
    svg.append(
      ...y.ticks.map((t) =>
        h("text", { class: "soft", x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, power(t)),
      ),
      ...values.map((v, at) =>
        h(
          "rect",
          told(`${name} ${tellRange(at, values.length, size)}: ${v < 0 ? "not judged" : `reads ${number(v)}`}`, {
            class: limit !== null && v > limit ? "k1" : "k0",
            x: box.left + at * step,
            width: Math.max(1, step - 1),
            y: v > 0 ? y(v) : box.bottom,
            height: v > 0 ? Math.max(1, box.bottom - y(v)) : 0,
          }),
        ),
      ),
      limit === null ? "" : h("line", { class: "limit", x1: box.left, x2: box.right, y1: y(limit), y2: y(limit) }),
      h("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
      h("text", { class: "soft", x: box.left, y: box.bottom + 16 }, "0"),
      h("text", { class: "soft", x: box.right, y: box.bottom + 16, "text-anchor": "end" }, String(size - 1)),
      h("text", { x: (box.left + box.right) / 2, y: box.bottom + 32, "text-anchor": "middle" }, name),
      h(
        "text",
        { x: box.left, y: 14, class: "soft" },
        limit === null ? "largest reading" : "largest reading; the line is the limit",
      ),
    );
  });
}

function drawAlong(map, limit, axes) {
  const shown = map.along
    .map((values, axis) => ({
      values: values.map(readingOf),
      size: map.shape[axis],
      name: axes[axis] ?? `axis ${axis}`,
    }))
    .filter((axis) => axis.size > 1 || map.shape.length === 1);
  const lines = shown.flatMap((axis) =>
    axis.values.map((value, at) => ({
      name: axis.name,
      place: tellRange(at, axis.values.length, axis.size),
      value,
      at,
    })),
  );
  return [
    ...shown.map((axis) => drawAxis(axis.values, axis.size, axis.name, limit)),
    behind(() =>
      makeTable(
        [
          text("axis", (l) => l.name, ""),
          { name: "place", value: (l) => l.at, show: (l) => l.place },
          {
            name: "largest reading",
            value: (l) => l.value,
            show: (l) => (l.value < 0 ? "not judged" : number(l.value)),
          },
        ],
        lines,
        { caption: "Largest reading by place along each axis", tall: true },
      ),
    ),
  ];
}

// The largest reading of its limit; none where a case failed without a reading, which is further off than any.
function largestShare(verdict) {
  if (verdict.verdicts.some((c) => c.decision === "no-go" && c.share === null)) return null;
  return Math.max(0, ...verdict.verdicts.map((c) => readingOf(c.share) ?? 0));
}

const MOST_KERNELS = 100,
  MOST_CASES = 200; // of very many tests, a page that opens at once says more than all of them

function tabulateCases(verdict) {
  const cases = [...verdict.verdicts].sort(
    (a, b) => (readingOf(b.share) ?? Infinity) - (readingOf(a.share) ?? Infinity),
  );
  const words = (name) => text(name, (c) => c[name]);
  return makeTable(
    [
      { name: "case", value: (c) => c.case, show: (c) => h("code", {}, c.case) },
      { name: "decision", class: "text", value: (c) => c.decision, show: (c) => badge(c.decision) },
      { name: "reading", value: (c) => readingOf(c.reading) },
      { name: "limit", value: (c) => c.limit },
      { name: "of its limit", value: (c) => readingOf(c.share) },
      {
        name: "sizes",
        class: "text",
        value: (c) => JSON.stringify(c.sizes),
        show: (c) =>
          Object.entries(c.sizes)
            .map(([k, v]) => `${k} ${v}`)
            .join(", "),
      },
      words("distribution"),
      words("layout"),
      { ...words("message"), class: "wrap text" },
    ],
    cases.slice(0, MOST_CASES),
    {
      caption: `${Math.min(MOST_CASES, cases.length)} of ${cases.length} cases, those furthest off first`,
      tall: cases.length > 14,
    },
  );
}

function drawVerdict(verdict, at) {
  const { map, worst } = verdict,
    raised = verdict.verdicts.find((c) => c.error)?.error;
  const sizes = verdict.verdicts.find((c) => c.case === worst?.case)?.sizes ?? {},
    shape = Object.values(sizes);
  const isNamed = map && shape.length === map.shape.length && shape.every((size, axis) => size === map.shape[axis]);
  const axes = isNamed ? Object.keys(sizes) : [],
    limit = worst?.gauge === "bound" && worst.limit ? worst.limit : null;
  return section(
    `kernel-${at}`,
    verdict.name,
    null,
    h(
      "p",
      {},
      badge(verdict.decision),
      ` ${verdict.failed} of ${verdict.cases} cases failed; contract ${verdict.contract}; limit: ${verdict.limit_from}`,
    ),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        {},
        h(
          "tbody",
          {},
          verdict.lines.map(([name, text]) =>
            h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "wrap text" }, text)),
          ),
        ),
      ),
    ),
    raised ? h("details", {}, h("summary", {}, "What it raised"), h("pre", { class: "scroll" }, raised)) : null,
    map
      ? h(
          "div",
          { class: "two" },
          drawMap(map, limit, axes),
          h("div", {}, h("h3", {}, "Along each axis"), drawAlong(map, limit, axes)),
        )
      : null,
    verdict.decision === "go" ? behind(() => tabulateCases(verdict), "All cases") : tabulateCases(verdict),
  );
}

function drawVerdicts(verdicts) {
  const counts = {},
    single = verdicts
      .map((verdict, at) => ({ verdict, at }))
      .filter(({ verdict }) => verdict.decision !== "go" || verdicts.length <= MOST_KERNELS)
      .slice(0, MOST_KERNELS);
  for (const each of verdicts) counts[each.decision] = (counts[each.decision] ?? 0) + 1;
  const shown = new Set(single.map(({ verdict }) => verdict));
  const link = (v) => (shown.has(v) ? h("a", { href: `#kernel-${verdicts.indexOf(v)}` }, v.name) : v.name);
  const list = makeTable(
    [
      { name: "kernel", value: (v) => v.name, show: link },
      { name: "decision", class: "text", value: (v) => v.decision, show: (v) => badge(v.decision) },
      text("op", (v) => v.op),
      text("contract", (v) => v.contract),
      { name: "cases", value: (v) => v.cases },
      { name: "failed", value: (v) => v.failed },
      { name: "suspect", value: (v) => v.suspect },
      {
        name: "largest, of its limit",
        value: (v) => largestShare(v) ?? Infinity,
        show: (v) => number(largestShare(v)),
      },
      { name: "pattern", class: "wrap text", value: (v) => v.pattern ?? "", show: (v) => v.pattern ?? "–" },
    ],
    verdicts,
    {
      caption: Object.entries(counts)
        .map(([word, n]) => `${n} ${word}`)
        .join(", "),
    },
  );
  const left = verdicts.length - single.length;
  return [
    section(
      "verdicts",
      "Verdicts",
      "No-go first. A reading is an error in units of what a correct kernel may be off by; its limit is what correct kernels stay below." +
        (left ? ` ${left} have no part of their own here.` : ""),
      list,
    ),
    ...single.map(({ verdict, at }) => drawVerdict(verdict, at)),
  ];
}
