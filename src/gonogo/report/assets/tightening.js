// The hand-picked tolerance over the measured one, control by control.

function drawTightening(records) {
  const cells = records.tightening
    .filter((cell) => {
      const of = records.kernelOf(cell.kernel, ""),
        chosen = records.kernelOf(state.kernel);
      return (
        (!state.op || of?.op === state.op) &&
        (!state.dtype || cell.dtype === state.dtype) &&
        (!state.kernel || cell.kernel === state.kernel || chosen?.against === cell.kernel)
      );
    })
    .map((cell) => ({ ...cell, factor: cell.calibrated ? cell.current / cell.calibrated : null }))
    .sort((a, b) => (b.factor ?? Infinity) - (a.factor ?? Infinity));
  const most = Math.max(10, ...cells.map((cell) => cell.factor ?? 1)) * 2,
    fewest = Math.min(1, ...cells.map((cell) => cell.factor ?? 1));
  const figure = chart(
    "Hand-picked tolerance over calibrated tolerance, one bar for each control and dtype",
    0,
    (svg, width) => {
      const step = 19,
        box = {
          left: Math.min(250, width * 0.45),
          right: width - 50,
          top: 12,
          bottom: 16 + step * Math.max(1, cells.length),
        };
      const x = scale(fewest, most, box.left, box.right, true);
      svg.append(
        ...frame(box, x, null, { xTick: (t) => power(t) + "×", x: "current atol / calibrated atol" }).filter(
          Boolean,
        ),
      );
      cells.forEach((cell, at) => {
        const end = cell.factor === null ? box.right : x(cell.factor),
          y = box.top + at * step;
        const words =
          `${cell.kernel} ${cell.dtype}: current ${number(cell.current)}, calibrated ${cell.calibrated ? number(cell.calibrated) : "exact"}` +
          (cell.factor ? `, ${number(cell.factor)}×` : "");
        svg.append(
          h(
            "rect",
            told(words, {
              class: `k${colourOf(cell.dtype)} mark`,
              x: Math.min(x(1), end),
              y: y + 3,
              height: step - 6,
              rx: 2,
              width: Math.max(1.5, Math.abs(end - x(1))),
            }),
          ),
          h(
            "text",
            { x: box.left - 6, y: y + step - 6, "text-anchor": "end" },
            fit(`${cell.kernel} ${width < 620 ? cell.dtype.replace("loat", "") : cell.dtype}`, box.left - 10),
          ),
          h(
            "text",
            { class: "soft", x: Math.max(end, x(1)) + 4, y: y + step - 6 },
            cell.factor === null ? "exact" : number(+cell.factor.toPrecision(3)) + "×",
          ),
        );
      });
      return box.bottom + 44;
    },
  );
  const table = makeTable(
    [
      text("control", (c) => c.kernel, ""),
      text("dtype", (c) => c.dtype),
      { name: "cases", value: (c) => c.cases },
      { name: "current atol", value: (c) => c.current },
      { name: "calibrated atol", value: (c) => c.calibrated },
      {
        name: "tightening",
        value: (c) => c.factor ?? Infinity,
        show: (c) => (c.factor === null ? "exact" : number(c.factor) + "×"),
      },
    ],
    cells,
    { caption: "p95 × 1.5 of what controls read, beside the hand-picked atol", tall: cells.length > 20 },
  );
  return section(
    "tightening",
    "How much tighter a measured tolerance is",
    "The hand-picked atol of each control over the one that the paper’s rule makes of its readings; to the right of 1 the hand-picked one is looser. " +
      "Distribution and device do not act here.",
    cells.length
      ? [legend(records.dtypes.map((d) => [d, colourOf(d), 1])), figure, behind(() => table)]
      : h("p", {}, "No control here has a hand-picked tolerance."),
  );
}
