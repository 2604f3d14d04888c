// What kernels of one op read, one dot each, and their limits.

// The kernels of an op with the readings of the sample that are chosen, controls first.
function gatherReadings(records, op) {
  const { readings, names } = records,
    points = new Map();
  for (let at = 0; at < readings.kernel.length; at++) {
    if (names.op[readings.op[at]] !== op) continue;
    if (
      !["dtype", "distribution", "device"].every(
        (name) => !state[name] || names[name][readings[name][at]] === state[name],
      )
    )
      continue;
    const kernel = names.kernel[readings.kernel[at]],
      x = readingOf(readings[state.gauge][at]);
    if (x === null || (state.kernel && kernel !== state.kernel && records.kernelOf(kernel, op)?.role !== "control"))
      continue;
    if (!points.has(kernel)) points.set(kernel, []);
    points.get(kernel).push({ x, dtype: names.dtype[readings.dtype[at]] });
  }
  return [...points]
    .map(([name, values]) => ({ ...records.kernelOf(name, op), values }))
    .sort(
      (a, b) => (a.role === "control" ? 0 : 1) - (b.role === "control" ? 0 : 1) || a.name.localeCompare(b.name),
    );
}

// The limits that a kernel is held to in a gauge: its op's own, or those for all ops.
function findLimits(records, op, row, gauge) {
  const fits = (limit) => limit.gauge === gauge && (!state.dtype || !limit.dtype || limit.dtype === state.dtype);
  const contracts = Object.values(row.contracts),
    control = row.role === "control" ? row.name : row.against;
  const own = records.limits.filter(
    (limit) =>
      fits(limit) &&
      limit.op === op &&
      (limit.kernel ? limit.kernel === control : contracts.includes(limit.contract)),
  );
  return own.length
    ? own
    : records.limits.filter(
        (limit) => fits(limit) && limit.op === records.every_op && contracts.includes(limit.contract),
      );
}

// From where to where: around the limits, or what controls read; what is further off stands at the edge.
const BELOW = 1e4,
  ABOVE = 1e5;
function findRange(rows, limits) {
  const positive = rows
    .flatMap((row) => row.values.map((p) => p.x))
    .filter((x) => x > 0 && Number.isFinite(x))
    .sort((a, b) => a - b);
  if (!positive.length) return null;
  const middle = limits.length ? Math.max(...limits) : positive[Math.floor(positive.length / 2)];
  return [
    Math.max(Math.min(positive[0], ...limits), middle / BELOW) / 1.5,
    Math.min(Math.max(positive.at(-1), ...limits), middle * ABOVE) * 1.5,
  ];
}

function drawStrips(records, op, rows, gauge, [low, high]) {
  return chart(
    `Readings of kernels of ${op} in the gauge ${gauge}, controls above, faulty ones below, with their limits`,
    0,
    (svg, width) => {
      const step = 26,
        left = Math.min(270, width * 0.42),
        box = { left: left + 22, right: width - 14, top: 20, bottom: 26 + step * rows.length };
      const x = scale(low, high, box.left, box.right, true);
      svg.append(
        ...frame(box, x, null, { xTick: power, x: `${gauge} reading; at the edges 0, and beyond` }).filter(Boolean),
      );
      rows.forEach((row, at) => {
        const middle = box.top + 6 + at * step + step / 2;
        svg.append(
          h(
            "text",
            told(row.name, {
              x: left,
              y: middle + 4,
              "text-anchor": "end",
              class: row.role === "control" ? "" : "soft",
            }),
            fit(row.name, left),
          ),
        );
        for (const p of row.values) {
          const colour = colourOf(p.dtype),
            y = middle + (colour - 1) * 6;
          const place = p.x > high ? box.right + 7 : p.x < low ? box.left - 8 : x(p.x);
          svg.append(mark(row.role === "control" ? 0 : 2, place, y, 2.4, { class: `k${colour} dot` }));
        }
        for (const limit of findLimits(records, op, row, gauge)) {
          const dy = limit.dtype ? (colourOf(limit.dtype) - 1) * 6 : 0,
            half = limit.dtype ? 4 : step / 2 - 1;
          const words = `limit ${number(limit.value)} of ${limit.op === records.every_op ? "all ops" : limit.op}, ${limit.contract}${limit.dtype ? ", " + limit.dtype : ""}: ${limit.rule} of ${count(limit.cases)} cases`;
          svg.append(
            h(
              "line",
              told(words, {
                class: "limit",
                x1: x(limit.value || low),
                x2: x(limit.value || low),
                y1: middle + dy - half,
                y2: middle + dy + half,
              }),
            ),
          );
        }
      });
      return box.bottom + 44;
    },
  );
}

function drawReadings(records, update) {
  const op = state.op || records.kernelOf(state.kernel)?.op || state.shown || records.ops[0],
    { gauge } = state,
    { readings } = records;
  const rows = gatherReadings(records, op),
    limits = [...new Set(rows.flatMap((row) => findLimits(records, op, row, gauge)))];
  const range = findRange(
    rows,
    limits.map((limit) => limit.value).filter((value) => value > 0),
  );
  const table = limits.length
    ? makeTable(
        [
          {
            name: "limit",
            value: (l) => l.kernel ?? l.op,
            show: (l) => (l.op === records.every_op ? "all ops" : (l.kernel ?? l.op)),
          },
          text("contract", (l) => l.contract),
          { name: "dtype", class: "text", value: (l) => l.dtype ?? "", show: (l) => l.dtype ?? "all" },
          text("rule", (l) => l.rule),
          { name: "value", value: (l) => l.value },
          { name: "worst control", value: (l) => l.worst },
          { name: "cases", value: (l) => l.cases, show: (l) => count(l.cases) },
          { name: "false positives at most", value: (l) => l.fp_upper95, show: (l) => percent(l.fp_upper95, 3) },
        ],
        limits,
        { caption: `Limits of ${op} in the gauge ${gauge}` },
      )
    : h(
        "p",
        { class: "note" },
        rows.length
          ? `No limit of ${op} is in the gauge ${gauge}: gonogo’s are in bound, the paper’s in absolute.`
          : `Nothing of ${op} was read on what is chosen.`,
      );
  return section(
    "readings",
    "What kernels read, and where the limit is",
    `A sample: ${count(readings.kernel.length)} of ${count(readings.of)} readings, the largest of each kernel, dtype and device among them. ` +
      "Round: controls. Triangles: faulty kernels. Upright bars: limits.",
    h(
      "div",
      { class: "row" },
      choose("op shown", records.ops, op, (shown) =>
        update(state.op || state.kernel ? { shown, op: shown, kernel: "" } : { shown }),
      ),
      choose("gauge", records.gauges, gauge, (g) => update({ gauge: g })),
    ),
    legend(records.dtypes.map((d) => [d, colourOf(d), 0])),
    range
      ? [
          drawStrips(records, op, rows, gauge, range),
          behind(() => tabulateReadings(rows, gauge), "The sample as a table"),
        ]
      : h("p", {}, "No reading of what is chosen is above 0."),
    table,
  );
}

function tabulateReadings(rows, gauge) {
  const lines = rows
    .flatMap((row) =>
      DTYPES.map((dtype) => ({
        row,
        dtype,
        values: row.values
          .filter((p) => p.dtype === dtype)
          .map((p) => p.x)
          .sort((a, b) => a - b),
      })),
    )
    .filter((line) => line.values.length);
  return makeTable(
    [
      text("kernel", (l) => l.row.name, ""),
      text("role", (l) => l.row.role),
      text("dtype", (l) => l.dtype),
      { name: "readings", value: (l) => l.values.length },
      { name: "median", value: (l) => l.values[Math.floor(l.values.length / 2)] },
      { name: "largest", value: (l) => l.values.at(-1) },
    ],
    lines,
    { caption: `Readings in the gauge ${gauge}, of the sample`, tall: lines.length > 14 },
  );
}
