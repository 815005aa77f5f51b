"""The stylesheet of the report, and the script with which readers find, sort and open columns."""

STYLE = """
:root{--bg:#fff;--card:#f6f8fa;--text:#1b2530;--dim:#5b6672;--edge:#dfe4ea;--bar:#5b7fd6;--pale:#dbe4f8;
--good:#1a7f37;--fair:#9a6700;--bad:#cf222e}
@media (prefers-color-scheme:dark){:root{--bg:#0f141a;--card:#171e26;--text:#e4e9ef;--dim:#9aa6b2;--edge:#2b343e;
--bar:#7d9cf0;--pale:#26324a;--good:#4ac26b;--fair:#d4a72c;--bad:#ff7b72}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1200px;padding:0 16px 48px;background:var(--bg);color:var(--text);
font:15px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,Helvetica,Arial,sans-serif;font-variant-numeric:tabular-nums}
h1{font-size:28px;margin:28px 0 12px;overflow-wrap:anywhere}h2{font-size:20px;margin:36px 0 12px}
h4{font-size:13px;margin:0 0 8px;color:var(--dim);font-weight:600}
small,.dim,footer,dt{color:var(--dim)}small{font-size:12px}footer{margin-top:40px;font-size:13px}
dl{display:flex;flex-wrap:wrap;gap:6px 24px;margin:0}dl div{min-width:0}dt{font-size:12px}
dd{margin:0;overflow-wrap:anywhere}
.controls{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-bottom:12px}
input,select,button{font:inherit;color:inherit;background:var(--card);border:1px solid var(--edge);border-radius:6px;
padding:6px 10px}input{flex:1 1 180px;min-width:0}
details.column{border:1px solid var(--edge);border-radius:8px;margin-bottom:6px;background:var(--card)}
details.column>summary{display:grid;grid-template-columns:minmax(0,2.2fr) minmax(0,2fr) 92px 110px minmax(0,2fr) 92px;
gap:4px 16px;align-items:center;padding:8px 14px;cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}summary:focus-visible{outline:2px solid var(--bar)}
.name b{display:block;overflow-wrap:anywhere}.range{overflow-wrap:anywhere;font-size:13px}
.nulls,.distinct{white-space:nowrap}.nulls .bar{display:block;width:80px}
svg{display:block;width:100%}svg.bars{height:36px}svg.wide{height:72px}svg.bars path{fill:var(--bar)}
svg.values path{fill:var(--bar);opacity:.55}
svg.values{height:36px}
svg.line{height:36px}svg.line path{fill:none;stroke:var(--bar);stroke-width:2;stroke-linecap:round;
vector-effect:non-scaling-stroke}
.bar{display:inline-block;width:100%;height:6px;background:var(--pale);border-radius:3px;overflow:hidden;
vertical-align:middle}.bar i{display:block;height:100%;background:var(--bar)}
.badge{font-size:12px;font-weight:500;white-space:nowrap;vertical-align:middle}
h1 .badge{margin-left:12px;font-size:14px}
.good{color:var(--good)}.fair{color:var(--fair)}.bad{color:var(--bad)}
.more{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr));gap:20px;padding:12px 14px 16px;
border-top:1px solid var(--edge)}.more section{min-width:0}.note{grid-column:1/-1;margin:0;color:var(--dim)}
ol.top{list-style:none;margin:0;padding:0;font-size:13px}
ol.top li{display:grid;grid-template-columns:minmax(0,1.4fr) minmax(40px,1fr) 108px;gap:10px;align-items:center}
.value{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}.others .value{font-style:italic;color:var(--dim)}
figure{margin:0 0 12px}figcaption{font-size:13px}
.ends{display:flex;justify-content:space-between;margin:0 0 12px;gap:12px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{font-size:12px;color:var(--dim);font-weight:600;cursor:pointer;white-space:nowrap}
th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--edge);white-space:nowrap}
td:first-child{min-width:64px;max-width:420px;overflow:hidden;text-overflow:ellipsis}td:last-child{white-space:normal}
.n{text-align:right;white-space:nowrap}
@media (max-width:760px){details.column>summary{grid-template-columns:minmax(0,1fr) minmax(0,1fr)}
.name,.shape{grid-column:1/-1}.badge{justify-self:start}h1{font-size:22px}}
[hidden]{display:none!important}
"""
SCRIPT = """
"use strict";
const list = document.getElementById("columns"), all = [...list.children];
const search = document.getElementById("search"), order = document.getElementById("order");
const shown = document.getElementById("shown"), open = document.getElementById("open");
function find() {
  const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const column of all) {
    const text = column.dataset.name + " " + column.querySelector("summary small").textContent.toLowerCase();
    column.hidden = !words.every(word => text.includes(word));
    count += !column.hidden;
  }
  shown.textContent = words.length ? `${count} of ${all.length} columns` : `${all.length} columns`;
}
function sort() {
  const key = order.value, number = column => Number(column.dataset[key]);
  const less = key === "name" ? (a, b) => a.dataset.name < b.dataset.name ? -1 : 1
    : key === "position" ? (a, b) => number(a) - number(b) : (a, b) => number(b) - number(a);
  list.append(...all.sort(less));
}
search.addEventListener("input", find);
order.addEventListener("change", sort);
open.addEventListener("click", () => {
  const close = all.some(column => column.open);
  for (const column of all) column.open = !close && !column.hidden;
  open.textContent = close ? "open all" : "close all";
});
const units = {B: 1, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, PB: 1e15};
function value(row, at) {
  const text = row.cells[at].textContent, found = /^[~<]?(-?[\\d,]*\\.?\\d+) ?(%|[kMGTP]?B)?/.exec(text);
  return found ? Number(found[1].replaceAll(",", "")) * (units[found[2]] || 1) : null;
}
for (const table of document.querySelectorAll("table")) {
  [...table.tHead.rows[0].cells].forEach((head, at) => head.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending", body = table.tBodies[0];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows].sort((a, b) => {
      const x = value(a, at), y = value(b, at);
      if (head.className === "n" && x !== null && y !== null) return x - y;
      return a.cells[at].textContent < b.cells[at].textContent ? -1 : 1;
    });
    body.append(...(up ? rows : rows.reverse()));
  }));
}
"""
