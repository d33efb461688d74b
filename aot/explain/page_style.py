"""How the page of an explanation looks: one column, light or dark as the reader's system is."""

from typing import Final

STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #f6f7f9; --card: #fff; --ink: #1a2029; --soft: #56606e; --line: #dde1e7; --code: #f0f2f5;
  --bad: #b3261e; --bad-wash: #fdecea; --good: #146c43; --good-wash: #e5f5ec;
  --warn: #855100; --warn-wash: #fff3dc; --link: #1a56b0;
  --mono: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12161c; --card: #1a2028; --ink: #e4e8ee; --soft: #a0abb9; --line: #303a46; --code: #232b35;
    --bad: #ff9d94; --bad-wash: #40201f; --good: #7fd8a6; --good-wash: #17362a;
    --warn: #f2c46d; --warn-wash: #3b2f16; --link: #8db8ff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: 1rem; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main, header > div, footer { max-width: 60rem; margin: 0 auto; padding: 0 1.25rem; }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: 2.25rem 0 1.25rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: .15rem 0 .8rem; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 2.75rem 0 .35rem; letter-spacing: -.01em; }
h3 { font-size: 1rem; line-height: 1.4; margin: 0; overflow-wrap: anywhere; }
h4 { font-size: .8125rem; margin: 1rem 0 .3rem; color: var(--soft); }
p { margin: .5rem 0; overflow-wrap: anywhere; }
a { color: var(--link); text-underline-offset: .15em; }
.eyebrow, .lead, .soft, footer { color: var(--soft); }
.eyebrow { margin: 0; font-size: .875rem; }
.lead { margin: 0 0 1rem; max-width: 46rem; text-wrap: pretty; }
code, pre, .mono { font-family: var(--mono); font-size: .84em; overflow-wrap: anywhere; }
:not(pre) > code { background: var(--code); border-radius: 4px; padding: .1em .3em; }
pre {
  background: var(--code); border-radius: 6px; padding: .65rem .8rem; margin: .6rem 0;
  overflow-x: auto; overflow-wrap: normal; line-height: 1.5;
}
.pill {
  display: inline-block; font-size: .8125rem; font-weight: 600; line-height: 1.35;
  padding: .15rem .6rem; border-radius: 1rem; background: var(--code); color: var(--soft);
}
.bad { color: var(--bad); background: var(--bad-wash); }
.good { color: var(--good); background: var(--good-wash); }
.warn { color: var(--warn); background: var(--warn-wash); }
.verdict { border-radius: 8px; padding: .7rem 1rem; font-weight: 600; }
.verdict p { font-weight: 400; color: var(--ink); }
.facts { display: flex; flex-wrap: wrap; gap: .6rem 2.25rem; margin: 1.1rem 0 .6rem; }
.facts div { display: flex; flex-direction: column-reverse; }
.facts dt { color: var(--soft); font-size: .8125rem; }
.facts dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
nav ul { display: flex; flex-wrap: wrap; gap: .35rem 1.25rem; list-style: none; margin: .8rem 0 0; padding: 0; font-size: .9375rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1rem 1.15rem; margin: .9rem 0; }
.head { display: flex; flex-wrap: wrap; align-items: baseline; gap: .35rem .7rem; }
.head h3 { flex: 1 1 14rem; min-width: 0; }
.place { color: var(--soft); font-size: .8125rem; margin: .3rem 0 0; }
ul.ways { margin: .2rem 0 0; padding-left: 1.15rem; }
ul.ways li { margin: .2rem 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem 1rem .35rem 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
th { font-weight: 600; color: var(--soft); font-size: .8125rem; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td:first-child { min-width: 5.5rem; }
tr > :last-child { padding-right: 0; }
tr:last-child td { border-bottom: 0; }
summary { cursor: pointer; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 3px; border-radius: 3px; }
.tree, .tree ul { list-style: none; margin: 0; padding: 0; }
.tree ul { margin-left: .45rem; padding-left: .85rem; border-left: 1px solid var(--line); }
.tree li { padding: .12rem 0; }
.tree .leaf { padding-left: 1.05rem; }
.tree .soft, .tree a { font-size: .8125rem; }
.tree a { margin-left: .35rem; }
.tree .pill { font-size: .75rem; padding: .05rem .5rem; }
.flow { list-style: none; margin: 0; padding: 0; }
.flow .card { margin: 0; padding: .8rem 1.15rem; }
.flow p { margin: .2rem 0; }
.cut { margin: 0 0 0 1.5rem; padding: .7rem 0 .7rem 1.15rem; border-left: 2px dashed var(--bad); font-size: .9375rem; }
.job > summary { overflow-wrap: anywhere; }
.job h4:first-of-type { margin-top: .8rem; }
footer { font-size: .8125rem; padding-top: 2.5rem; padding-bottom: 3rem; }
@media (max-width: 34rem) {
  main, header > div, footer { padding: 0 1rem; }
  header { padding: 1.5rem 0 1rem; }
  h1 { font-size: 1.55rem; }
  .card { padding: .85rem .9rem; }
  .facts { gap: .6rem 1.5rem; }
  .tree ul { margin-left: .3rem; padding-left: .55rem; }
  .cut { margin-left: .75rem; padding-left: .8rem; }
}
@media print {
  :root { --paper: #fff; --card: #fff; --ink: #000; --soft: #444; --line: #bbb; --code: #f3f3f3;
    --bad: #8c1d16; --good: #0d5132; --warn: #664000; --link: #000; color-scheme: light; }
  body { font-size: 10.5pt; }
  nav { display: none; }
  .card { break-inside: avoid; }
  .job { break-inside: auto; }
  h2, h3, h4 { break-after: avoid; }
  pre { white-space: pre-wrap; }
}
"""
