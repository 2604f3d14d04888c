// Recall over the size of a fault.

function drawSignal(records) {
  const mask = chooseGroups(records.groups, records.merged, records.names),
    { first_bin: first, edges } = records.classes;
  const bins = edges
    .slice(0, -1)
    .map((low, at) => ({ low, words: `${number(low)} … ${edges[at + 1] === null ? "∞" : number(edges[at + 1])}` }));
  const lines = records.methods.map((method) => ({
    name: method.name,
    values: bins.map((bin, at) => sum(method, mask, records.groups.class, (c) => c === first + at)),
  }));
  const shares = (line) => line.values.map((v) => rate(v.flagged, v.cases));
  const figure = chart("Recall of every policy over the signal of a fault", 380, (svg, width) => {
    const box = { left: 52, right: width - 20, top: 34, bottom: 330 };
    const y = scale(0, 1, box.bottom, box.top, false),
      x = (at) => box.left + 20 + (at * (box.right - box.left - 40)) / (bins.length - 1);
    svg.append(
      ...y.ticks.map((t) => h("line", { class: "grid", x1: box.left, x2: box.right, y1: y(t), y2: y(t) })),
      ...y.ticks.map((t) =>
        h("text", { class: "soft", x: box.left - 6, y: y(t) + 4, "text-anchor": "end" }, percent(t, 0)),
      ),
      ...bins
        .filter((_, at) => width > 620 || at % 2 === 0)
        .map((bin) =>
          h(
            "text",
            { class: "soft", x: x(bins.indexOf(bin)), y: box.bottom + 18, "text-anchor": "middle" },
            bins.indexOf(bin) === 0 ? "< " + number(edges[1]) : "≥ " + number(bin.low),
          ),
        ),
      h(
        "text",
        { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" },
        "signal: size of the fault in units of rounding",
      ),
      h("text", { x: box.left, y: box.top - 12 }, "differing cases flagged"),
    );
    for (const line of [...lines].sort((a, b) => (a.name in NAMED) - (b.name in NAMED))) {
      const places = shares(line)
          .map((s, at) => (s === null ? null : [x(at), y(s)]))
          .filter(Boolean),
        colour = NAMED[line.name] ?? 6;
      svg.append(
        h("polyline", {
          class: `${line.name in NAMED ? "line" : "thin"} s${colour}`,
          points: places.map((p) => p.join(",")).join(" "),
          "data-policy": line.name,
        }),
      );
      if (line.name in NAMED)
        shares(line).forEach((s, at) =>
          s === null
            ? 0
            : svg.append(
                mark(
                  colour,
                  x(at),
                  y(s),
                  4.5,
                  told(
                    `${line.name}, signal ${bins[at].words}\n${count(line.values[at].flagged)} of ${count(line.values[at].cases)} flagged, ${percent(s)}`,
                    { class: "k" + colour },
                  ),
                ),
              ),
        );
    }
  });
  const table = makeTable(
    [
      text("policy", (l) => l.name, ""),
      ...bins.map((bin, at) => ({
        name: bin.words,
        value: (l) => shares(l)[at],
        show: (l) => (l.values[at].cases ? `${percent(shares(l)[at], 1)} of ${count(l.values[at].cases)}` : "–"),
      })),
    ],
    lines,
    { caption: "Share of differing cases flagged, by signal", mark: (l) => (l.name === OURS ? "ours" : null) },
  );
  return section(
    "signal",
    "How small a fault each tolerance sees",
    "Below 1 a fault is smaller than rounding, and nothing should flag it for sure; what fails outright is at the right end.",
    legend(
      Object.entries(NAMED)
        .filter(([name]) => lines.some((l) => l.name === name))
        .map(([name, colour]) => [name, colour]),
    ),
    figure,
    behind(() => table),
  );
}
