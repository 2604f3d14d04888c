// Which faulty kernels each policy flags.

function drawHeatMap(records, update) {
  const mask = chooseGroups(records.groups, records.merged, records.names),
    { op: ops, kernel: kernels, class: classes } = records.groups;
  const wanted = records.inBin(state.bin),
    lines = new Map(),
    isMerged = records.merged.includes("kernel");
  records.methods.forEach((method, column) => {
    for (let at = 0; at < mask.length; at++) {
      if (!mask[at] || !wanted(classes[at])) continue;
      const key = ops[at] * records.names.kernel.length + kernels[at];
      if (!lines.has(key))
        lines.set(
          key,
          records.methods.map(() => [0, 0]),
        );
      const cell = lines.get(key)[column];
      cell[0] += method.flagged[at];
      cell[1] += method.judged[at];
    }
  });
  const { length } = records.names.kernel;
  const ordered = (isMerged ? [] : [...lines])
    .map(([key, cells]) => ({
      name: records.names.kernel[key % length],
      op: records.names.op[Math.floor(key / length)],
      cells,
    }))
    .sort((a, b) => a.op.localeCompare(b.op) || a.name.localeCompare(b.name));
  const cell = ([part, whole], policy, kernel) => {
    if (!whole) return h("td", { class: "none" }, "·");
    const share = part / whole,
      light = share < 0.5; // no shade between, on which neither ink nor paper could be read
    const words = `${kernel} by ${policy}: ${count(part)} of ${count(whole)} ${state.bin} cases flagged`;
    return h(
      "td",
      {
        title: words,
        "data-part": part,
        "data-whole": whole,
        style: `background: rgba(var(--heat), ${(light ? 0.06 + 0.7 * share : 0.7 + 0.28 * share).toFixed(3)}); color: ${light ? "var(--ink)" : "var(--paper)"}`,
      },
      part === whole ? "100" : part === 0 ? "0" : (100 * share).toFixed(share > 0.99 ? 1 : 0),
    );
  };
  const table = h(
    "table",
    { class: "heat" },
    h(
      "caption",
      {},
      `% of ${state.bin} cases flagged; ${ordered.length} faulty kernels × ${records.methods.length} policies`,
    ),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "faulty kernel"),
        records.methods.map((m) => h("th", { scope: "col" }, h("span", { class: "slant" }, m.name))),
      ),
    ),
    h(
      "tbody",
      {},
      ordered.map((line) =>
        h(
          "tr",
          { "data-kernel": line.name },
          h(
            "th",
            { scope: "row" },
            h(
              "button",
              {
                type: "button",
                "aria-pressed": String(state.kernel === line.name),
                "data-filter": `kernel ${line.name}`,
                onclick: () => update({ kernel: state.kernel === line.name ? "" : line.name, op: line.op }),
              },
              line.name,
            ),
          ),
          line.cells.map((each, at) => cell(each, records.methods[at].name, line.name)),
        ),
      ),
    ),
  );
  return section(
    "recall",
    "Which faulty kernels each tolerance sees",
    "Darker is better. Identical cases, whose bits are the control’s, no tolerance can flag: they are in “all” only. A click on a kernel filters the page to it.",
    h(
      "div",
      { class: "row" },
      pick("bin", BINS, state.bin, (bin) => update({ bin })),
      pick("dtype", ["", ...records.dtypes], state.dtype, (dtype) => update({ dtype })),
    ),
    ordered.length
      ? h(
          "div",
          { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Recall per faulty kernel" },
          table,
        )
      : h(
          "p",
          {},
          isMerged
            ? "There are too many kernels for one page: they are not told apart."
            : "No faulty kernel was run on what is chosen.",
        ),
  );
}
