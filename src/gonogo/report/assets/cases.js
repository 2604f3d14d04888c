// Cases to replay.

function drawCases(records, update) {
  const { names } = records;
  const cases = records.cases.filter(
    (c) =>
      c.kind === state.kind &&
      FILTERS.every(
        (name) => !state[name] || records.merged.includes(name) || names[name][c[name]] === state[name],
      ),
  );
  const quote = (word) => (/^[\w.:+-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'"); // names are of strangers
  const command = (c) =>
    `gonogo show ${quote(c.case)} ${quote(names.kernel[c.kernel])}${records.cuda.has(names.device[c.device]) ? " --device cuda" : ""}`;
  const words = (c) =>
    [
      c.case,
      names.kernel[c.kernel],
      names.op[c.op],
      names.dtype[c.dtype],
      names.distribution[c.distribution],
      c.run,
    ].join(" ");
  const [search, table] = searchable(
    "softmax f16 spike",
    "find",
    cases,
    words,
    (found) =>
      makeTable(
        [
          { name: "case", value: (c) => c.case, show: (c) => h("code", {}, c.case) },
          text("kernel", (c) => names.kernel[c.kernel]),
          text("run", (c) => c.run),
          { name: "signal", value: (c) => readingOf(c.signal) },
          ...["bound", "deterministic", "ulp", "absolute"].map((gauge) => ({
            name: gauge,
            value: (c) => readingOf(c.readings[gauge]),
          })),
          {
            name: "replay",
            class: "text",
            value: command,
            show: (c) => h("span", {}, copyButton(command(c)), " ", h("code", {}, command(c))),
          },
        ],
        found,
        { caption: `${found.length} of ${cases.length} cases listed`, tall: true },
      ),
    state.find,
    (find) => {
      state.find = find;
      writeFragment();
    },
  );
  return section(
    "cases",
    "Cases to look at",
    "Worst: controls that read most, which set the limits. Missed: faulty results that gonogo does not flag, the largest faults first, most of them below two units of rounding. At most four of a kernel in a dtype.",
    h(
      "div",
      { class: "row" },
      pick("kind", KINDS, state.kind, (kind) => update({ kind })),
      search,
    ),
    table,
  );
}
