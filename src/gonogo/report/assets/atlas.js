// Torch’s own ops, by how near each comes to what rounding explains.

const MOST_LINES = 400; // that a table is drawn of; the search looks at all

function drawAtlas(atlas) {
  const { columns, names, rows: lines } = atlas; // texts are numbers of names
  atlas.findings ??= lines.map((line) =>
    Object.fromEntries(
      line.map((value, at) => [columns[at], columns[at] in names ? names[columns[at]][value] : value]),
    ),
  );
  const kinds = [...new Set(atlas.findings.map((f) => `${f.device}, ${f.dtype}, ${f.kind}`))];
  const found = atlas.findings.filter((f) => f.deterministic !== null && readingOf(f.deterministic) > 0);
  const figure = chart(
    "The largest deterministic reading of each of torch’s ops, by device, dtype and pass; above 1 is more than rounding explains",
    0,
    (svg, width) => {
      const left = Math.min(250, width * 0.45),
        step = 24,
        box = { left, right: width - 16, top: 12, bottom: 16 + step * kinds.length };
      const x = scale(1e-3, 10, box.left, box.right, true);
      svg.append(
        ...frame(box, x, null, { xTick: power, x: "largest error over the deterministic bound" }).filter(Boolean),
        h("line", { class: "limit", x1: x(1), x2: x(1), y1: box.top, y2: box.bottom }),
      );
      kinds.forEach((kind, at) =>
        svg.append(
          h("text", { x: left - 8, y: box.top + at * step + 16, "text-anchor": "end" }, fit(kind, left - 8)),
        ),
      );
      for (const f of found)
        svg.append(
          h("circle", {
            class: `dot k${colourOf(f.dtype)}`,
            cx: x(readingOf(f.deterministic)),
            cy: box.top + kinds.indexOf(`${f.device}, ${f.dtype}, ${f.kind}`) * step + 12,
            r: 2.6,
            opacity: 0.85,
          }),
        );
      return box.bottom + 44;
    },
  );
  const words = (f) => `${f.op} ${f.kind} ${f.dtype} ${f.device} ${f.state} ${f.reason}`;
  const findings = [...atlas.findings].sort(
    (a, b) => (readingOf(b.deterministic) ?? -1) - (readingOf(a.deterministic) ?? -1),
  );
  const [search, table] = searchable("softmax cuda", "atlas", findings, words, (lines) =>
    makeTable(
      [
        text("op", (f) => f.op, ""),
        ...["kind", "dtype", "device", "state"].map((name) => text(name, (f) => f[name])),
        { name: "deterministic", value: (f) => readingOf(f.deterministic) },
        { name: "bound", value: (f) => readingOf(f.bound) },
        { name: "why", class: "wrap text", value: (f) => f.reason, show: (f) => f.reason || "–" },
      ],
      lines,
      { caption: `${Math.min(MOST_LINES, lines.length)} of ${lines.length} lines`, tall: true, most: MOST_LINES },
    ),
  );
  return [section("atlas", "Atlas of torch’s ops", atlas.told, figure, h("div", { class: "row" }, search), table)];
}
