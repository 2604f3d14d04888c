// Elements, tables and axes. Text is only ever set as text: names and messages are of strangers.

function h(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "line", "path", "circle", "rect", "text", "polyline"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined) made.append(child);
  return made;
}

const tip = document.getElementById("tip");
function told(text, attributes = {}) {
  const show = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    tip.textContent = text;
    tip.hidden = false;
    const x = Math.min(box.right + 8, innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.max(8, x) + "px";
    tip.style.top = Math.max(8, Math.min(box.top, innerHeight - tip.offsetHeight - 8)) + "px";
  };
  const hide = () => {
    tip.hidden = true;
  };
  const byKeyboard = "tabindex" in attributes ? { onfocus: show, onblur: hide } : {}; // what listens for it would be a stop
  return { ...attributes, onmouseenter: show, onmouseleave: hide, ...byKeyboard };
}

// A column of words, which are shown as they are sorted.
const text = (name, value, kind = "text") => ({ name, class: kind, value, show: value });

// Columns: { name, class, value(row), show(row) }, sorted by value, shown as a number where they do not say how.
function makeTable(columns, rows, options = {}) {
  let { by = "", down = true } = options;
  const table = h("table", { class: options.class });
  const body = h("tbody");
  const order = () => {
    const column = columns.find((each) => each.name === by);
    const rank = (row) => {
      const value = column.value(row);
      return value === null || value === undefined ? -Infinity : value;
    };
    return column
      ? [...rows].sort((x, y) => {
          const a = rank(x),
            b = rank(y);
          return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
        })
      : rows;
  };
  const fill = () =>
    body.replaceChildren(
      ...order()
        .slice(0, options.most ?? Infinity)
        .map((row) =>
          h(
            "tr",
            { class: options.mark?.(row) },
            columns.map((column, at) =>
              h(at ? "td" : "th", { scope: at ? null : "row", class: column.class }, show(column, row)),
            ),
          ),
        ),
    );
  const show = (column, row) => (column.show ? column.show(row) : number(column.value(row)));
  const head = columns.map((column) => {
    const button = h(
      "button",
      {
        type: "button",
        onclick: () => {
          down = by === column.name ? !down : true;
          by = column.name;
          for (const each of head) each.removeAttribute("aria-sort");
          button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
          fill();
        },
      },
      column.name,
    );
    return h(
      "th",
      {
        scope: "col",
        class: column.class,
        title: column.title,
        "aria-sort": column.name === by ? (down ? "descending" : "ascending") : null,
      },
      button,
    );
  });
  table.append(h("caption", {}, options.caption ?? ""), h("thead", {}, h("tr", {}, head)), body);
  fill();
  return h(
    "div",
    {
      class: "scroll" + (options.tall ? " tall" : ""),
      tabindex: options.tall ? 0 : null,
      role: options.tall ? "region" : null,
      "aria-label": options.tall ? options.caption : null,
    },
    table,
  );
}

// Behind a summary, made when it is first opened: of many, few are.
function behind(make, words = "The same as a table") {
  const details = h(
    "details",
    {
      ontoggle: () => {
        if (details.open && details.children.length === 1) details.append(make());
      },
    },
    h("summary", {}, words),
  );
  return details;
}

// A scale from values to places; logarithmic ones give whole powers of ten as ticks.
function scale(low, high, from, to, log) {
  const f = log ? Math.log10 : (x) => x;
  const a = f(low),
    b = f(high) === f(low) ? f(low) + 1 : f(high);
  const at = (x) => from + ((f(Math.min(Math.max(x, low), high)) - a) / (b - a)) * (to - from);
  at.ticks = [];
  if (log) {
    const step = Math.max(1, Math.ceil((b - a) / (Math.abs(to - from) / 62)));
    for (let power = Math.ceil(a - 1e-9); power <= b + 1e-9; power += step) at.ticks.push(10 ** power);
  } else {
    const raw = (b - a) / 5,
      unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
    for (let x = Math.ceil(a / step) * step; x <= b + step / 1e6; x += step) at.ticks.push(x);
  }
  return at;
}

const POWERS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
function power(x) {
  const p = Math.round(Math.log10(x));
  if (p >= -2 && p <= 3) return String(+x.toPrecision(1));
  return "10" + (p < 0 ? "⁻" : "") + [...String(Math.abs(p))].map((d) => POWERS[d]).join("");
}

function frame(box, x, y, words) {
  const { left, right, top, bottom } = box;
  return [
    ...x.ticks.map((t) => h("line", { class: "grid", x1: x(t), x2: x(t), y1: top, y2: bottom })),
    ...(y ? y.ticks.map((t) => h("line", { class: "grid", x1: left, x2: right, y1: y(t), y2: y(t) })) : []),
    h("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
    ...x.ticks.map((t) =>
      h("text", { class: "soft", x: x(t), y: bottom + 16, "text-anchor": "middle" }, words.xTick(t)),
    ),
    ...(y
      ? y.ticks.map((t) =>
          h("text", { class: "soft", x: left - 6, y: y(t) + 4, "text-anchor": "end" }, words.yTick(t)),
        )
      : []),
    h("text", { x: right, y: bottom + 34, "text-anchor": "end" }, words.x),
    words.y ? h("text", { x: left, y: top - 10 }, words.y) : null,
  ];
}

// A name in so many pixels: its end tells kernels apart as much as its beginning.
function fit(words, pixels) {
  const most = Math.max(8, Math.floor(pixels / 8)); // of a wide font, at the size of a chart
  return words.length <= most
    ? words
    : words.slice(0, Math.ceil(most / 2)) + "…" + words.slice(words.length - Math.floor(most / 2) + 1);
}

const SHAPES = [
  (s) => `M${-s} 0A${s} ${s} 0 1 0 ${s} 0A${s} ${s} 0 1 0 ${-s} 0Z`,
  (s) => `M${-s} ${-s}H${s}V${s}H${-s}Z`,
  (s) => `M0 ${-s * 1.25}L${s * 1.2} ${s}H${-s * 1.2}Z`,
  (s) => `M0 ${-s * 1.35}L${s * 1.35} 0L0 ${s * 1.35}L${-s * 1.35} 0Z`,
  (s) => `M0 ${s * 1.25}L${s * 1.2} ${-s}H${-s * 1.2}Z`,
  (s) =>
    `M${-s} ${-s / 3}H${-s / 3}V${-s}H${s / 3}V${-s / 3}H${s}V${s / 3}H${s / 3}V${s}H${-s / 3}V${s / 3}H${-s}Z`,
];
const mark = (shape, x, y, size, attributes) =>
  h("path", { d: SHAPES[shape % SHAPES.length](size), transform: `translate(${x} ${y})`, ...attributes });

// Words beside marks, the first ones first, where they cover nothing; those without a place are left out.
function placeLabels(svg, points, box) {
  const taken = points.map(({ x, y }) => [x - 7, y - 7, x + 7, y + 7]);
  for (const { x, y, words, colour } of points) {
    const wide = words.length * 6.8;
    const places = [
      [x + 10, y + 4, "start", x + 10],
      [x - 10, y + 4, "end", x - 10 - wide],
      [x, y - 11, "middle", x - wide / 2],
      [x, y + 20, "middle", x - wide / 2],
      [x + 10, y - 9, "start", x + 10],
      [x + 10, y + 17, "start", x + 10],
    ];
    for (const [at, line, anchor, left] of places) {
      const area = [left, line - 11, left + wide, line + 2];
      if (
        area[0] < box.left - 40 ||
        area[2] > box.limit ||
        taken.some((t) => t[0] < area[2] && area[0] < t[2] && t[1] < area[3] && area[1] < t[3])
      )
        continue;
      taken.push(area);
      svg.append(h("text", { x: at, y: line, "text-anchor": anchor, class: colour === 6 ? "soft" : "" }, words));
      break;
    }
  }
}

function legend(entries) {
  return h(
    "ul",
    { class: "legend" },
    entries.map(([words, colour, shape]) =>
      h(
        "li",
        {},
        h(
          "svg",
          { width: 14, height: 14, "aria-hidden": true },
          mark(shape ?? colour, 7, 7, 4.5, { class: "k" + colour }),
        ),
        words,
      ),
    ),
  );
}

// Drawn for the width that there is, and again when that changes.
const drawings = [];
function chart(label, height, draw) {
  const holder = h("div", { class: "chart" });
  const redraw = () => {
    const width = Math.max(280, Math.min(holder.clientWidth || 900, 1460));
    const made = h("svg", { role: "img", "aria-label": label, width, viewBox: "0 0 1 1" });
    const tall = draw(made, width) ?? height;
    if (made.querySelector("[tabindex]")) made.setAttribute("role", "group"); // what is in an image is not read out
    made.setAttribute("height", tall);
    made.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    holder.replaceChildren(made);
  };
  drawings.push(redraw);
  return holder;
}

function choose(words, names, chosen, onchange, all = "", disabled = false) {
  const options = [
    ...(all ? [h("option", { value: "" }, all)] : []),
    ...names.map((name) => h("option", { value: name, selected: name === chosen }, name)),
  ];
  return h(
    "label",
    {},
    words,
    h("select", { onchange: (event) => onchange(event.target.value), "data-filter": words, disabled }, options),
  );
}

function pick(words, names, chosen, onchange) {
  return h(
    "div",
    { role: "group", "aria-label": words, class: "row" },
    h("span", { class: "note" }, words),
    names.map((name) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(name === chosen),
          "data-filter": `${words} ${name}`,
          onclick: () => onchange(name),
        },
        name || "all",
      ),
    ),
  );
}

// A field, and the rows of a table that have all of its words.
function searchable(hint, name, rows, words, makeRows, value = "", onfind = () => {}) {
  const holder = h("div"),
    field = h("input", { type: "search", value, placeholder: hint, "data-filter": name });
  const fill = () => {
    const wanted = field.value.toLowerCase().split(/\s+/);
    holder.replaceChildren(
      makeRows(rows.filter((row) => wanted.every((word) => words(row).toLowerCase().includes(word)))),
    );
  };
  field.addEventListener("input", () => {
    onfind(field.value);
    fill();
  });
  fill();
  return [h("label", {}, "search", field), holder];
}

function section(id, title, words, ...content) {
  return h(
    "section",
    { id, "aria-labelledby": id + "-title" },
    h("h2", { id: id + "-title" }, title),
    words ? h("p", {}, words) : null,
    content,
  );
}

function copyButton(text) {
  const button = h(
    "button",
    {
      type: "button",
      onclick: async () => {
        try {
          await navigator.clipboard.writeText(text);
          button.textContent = "copied";
        } catch {
          button.textContent = "select it";
        }
      },
    },
    "copy",
  );
  return button;
}
