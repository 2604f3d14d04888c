"use strict";
// The page's data, what is chosen of it, and sums over groups. Every figure of a filtered page is made here.

const DATA = JSON.parse(document.getElementById("data").textContent);
const FILTERS = ["op", "dtype", "distribution", "device", "kernel"];
const USUAL = {
  op: "",
  dtype: "",
  distribution: "",
  device: "",
  kernel: "",
  bin: "manifest",
  gauge: "bound",
  shown: "",
  kind: "missed",
  find: "",
};
const state = { ...USUAL };

// `options` are what each may be: a link may be older than the page, and name what is no longer there.
function readFragment(options) {
  const told = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(USUAL)) {
    const value = told.get(name) ?? USUAL[name];
    state[name] = !options[name] || options[name].includes(value) ? value : USUAL[name];
  }
}

const readingOf = (x) => (x === "inf" ? Infinity : x); // JSON has no infinities

function writeFragment() {
  const told = new URLSearchParams();
  for (const name of Object.keys(USUAL)) if (state[name] !== USUAL[name]) told.set(name, state[name]);
  const fragment = told.toString();
  history.replaceState(null, "", fragment ? "#" + fragment : location.pathname + location.search);
}

// ".", "#" and "-" are groups of which none, all and nobody was counted; others are ",part/judged,".
function decode(text, rows) {
  const parts = new Int32Array(rows.length),
    judged = new Int32Array(rows.length);
  for (let group = 0, at = 0; group < rows.length; group++) {
    const sign = text[at];
    if (sign === ",") {
      const end = text.indexOf(",", at + 1),
        slash = text.indexOf("/", at);
      parts[group] = +text.slice(at + 1, slash);
      judged[group] = +text.slice(slash + 1, end);
      at = end + 1;
    } else {
      judged[group] = sign === "-" ? 0 : rows[group];
      parts[group] = sign === "#" ? rows[group] : 0;
      at++;
    }
  }
  return { parts, judged };
}

function decodeMethod(method, rows) {
  const flagged = decode(method.flagged, rows);
  return {
    ...method,
    judged: flagged.judged,
    flagged: flagged.parts,
    noGo: method.no_go ? decode(method.no_go, rows).parts : flagged.parts,
  };
}

// Which groups are of what is chosen; a dimension that was merged takes no filter.
function chooseGroups(groups, merged, names) {
  const mask = new Uint8Array(groups.rows.length).fill(1);
  for (const name of FILTERS) {
    if (!state[name] || merged.includes(name) || !(name in groups)) continue;
    const code = names[name].indexOf(state[name]),
      codes = groups[name];
    for (let at = 0; at < mask.length; at++) if (codes[at] !== code) mask[at] = 0;
  }
  return mask;
}

function sum(method, mask, classes, wanted) {
  let cases = 0,
    flagged = 0,
    noGo = 0;
  for (let at = 0; at < mask.length; at++) {
    if (mask[at] && wanted(classes[at])) {
      cases += method.judged[at];
      flagged += method.flagged[at];
      noGo += method.noGo[at];
    }
  }
  return { cases, flagged, noGo };
}

const rate = (part, whole) => (whole ? part / whole : null);

// Clopper and Pearson's interval, by halving on the tail of a binomial distribution.
function logGamma(x) {
  const c = [
    76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155, 0.1208650973866179e-2,
    -0.5395239384953e-5,
  ];
  let y = x,
    sum = 1.000000000190015;
  for (const each of c) sum += each / ++y;
  return -(x + 5.5) + (x + 0.5) * Math.log(x + 5.5) + Math.log((2.5066282746310005 * sum) / x);
}

function betaPart(x, a, b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - betaPart(1 - x, b, a);
  const front = Math.exp(logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x)) / a;
  let f = 1,
    c = 1,
    d = 0;
  for (let i = 0; i <= 400; i++) {
    const m = i >> 1;
    const n =
      i === 0
        ? 1
        : i % 2
          ? -((a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
          : (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / (Math.abs(1 + n * d) < 1e-300 ? 1e-300 : 1 + n * d);
    c = Math.abs(1 + n / c) < 1e-300 ? 1e-300 : 1 + n / c;
    f *= c * d;
    if (Math.abs(1 - c * d) < 1e-14) break;
  }
  return front * (f - 1);
}

function quantile(p, a, b) {
  let low = 0,
    high = 1;
  for (let i = 0; i < 200 && high - low > 1e-16; i++) {
    const middle = (low + high) / 2;
    if (betaPart(middle, a, b) < p) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

function interval(part, whole) {
  if (!whole) return null;
  return [
    part ? quantile(0.025, part, whole - part + 1) : 0,
    part < whole ? quantile(0.975, part + 1, whole - part) : 1,
  ];
}

const upper = (part, whole) => (!whole ? null : part < whole ? quantile(0.95, part + 1, whole - part) : 1);

// As people read them.
const count = (n) => n.toLocaleString("en-US");
const percent = (x, digits = 2) => (x === null || x === undefined ? "–" : (100 * x).toFixed(digits) + " %");
function number(x) {
  if (x === null || x === undefined) return "–";
  if (x === "inf") return "∞";
  if (typeof x !== "number") return String(x);
  if (x === 0) return "0";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "–";
  if (Number.isInteger(x) && Math.abs(x) < 1e6) return String(x);
  const size = Math.abs(x);
  return size >= 1e5 || size < 1e-3 ? x.toExponential(2) : String(+x.toPrecision(3));
}
