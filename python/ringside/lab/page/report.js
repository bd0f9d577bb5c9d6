'use strict';
// The page of a report. It carries its facts, tables and figures as JSON. This script draws them,
// and then lets its reader move between marks, zoom into tracks and choose a step. C++
// (cli/pictures/report/) and Python (report.py) write the same form:
//
//     {"title": "Data parallelism",
//      "facts": [["run", "tiny on 2 ranks"], ...],
//      "figures": [{"title": "One step", "caption": "10 % of the step was waiting",
//                   "choice": "step 3",       of figures with a choice, those of one are shown
//                   "table": {"columns": [{"title": "rank", "words": false}, ...],
//                             "rows": [["0", "90.00"], ...]},
//                   "drawing": {"kind": ...}}, ...]}       null: the figure is its table
//
//     {"kind": "chart", "x": {"label": "size", "log": true, "unit": "bytes"}, "y": {...},
//      "series": [{"name": "tcp", "style": "line", "colour": 0, "points": [[1024, 0.5], ...]}, ...]}
//         unit: how a tick is written, see UNITS. style: line, dashed, dots or area. Areas are
//         stacked in their order, and share their x. Without a colour the name has one, or a new one.
//
//     {"kind": "bars", "unit": "GB", "scale": 80, "bars": [{"name": "first", "values": [9, 4]}, ...]}
//         A bar for each column of the table behind the first; its parts are the first rows.
//
//     {"kind": "tracks", "end": 80.2, "scale": 95.1,      ms: of the step, and of the whole width
//      "ranks": [{"rank": 0, "name": "rank 0 (pp=0)",
//                 "spans": [["phase", "forward", "1F0", 0.5, 30.1],
//                           ["call", "all_reduce", "bucket 0", 60, 80, 4.2, 5], ...],
//                                   phase, wait, op or call; name; what about; begin, end (ms);
//                                   of a call MB, and ms in the queue before
//                 "steps": [[2, 3, 60.1, 60.2, 61.4, 0.4, 0], ...]}, ...]}
//                                   step, sender, sent, began, arrived (ms), MB, which call
//         Figures with the same scale are comparable.

// What a name stands for has one colour everywhere, as in --c0 of palette.css: 0 blue, forward, what
// it keeps, and computing; 1 orange, backward and gradients; 2 green, W, the gradient of the weights
// alone; 3 purple, the optimizer and its state; 4 ochre, parameters; 5 red, waiting for another
// rank; 6 teal, communication; 8 ink; 9 pale, bubble. All else is 7, grey.
const COLOURS = {
  'forward': 0, 'activations': 0, 'matrix products': 0,
  'backward': 1, 'gradients': 1, 'dp communication, exposed': 1,
  'backward weight': 2, 'working memory': 2, 'cp communication, exposed': 2,
  'optimizer': 3, 'optimizer state': 3, 'optimizer (memory bandwidth)': 3,
  'parameters': 4, 'fsdp communication, exposed': 4,
  'exposed communication': 5, 'pp communication, exposed': 5, 'gradients under way': 5,
  'communication': 6, 'gathered units': 6, 'tp communication, exposed': 6,
  'other ops (memory bandwidth)': 7,
  'logits': 8, 'launches of kernels': 8,
  'pipeline bubble': 9,
};

const ENTITIES = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = text => String(text).replace(/[&<>"]/g, letter => ENTITIES[letter]);
const digits = (number, count) => String(Number(number.toPrecision(count)));

// ---- Charts ----
// SVG with a fixed coordinate system: it keeps its proportions, and a phone shows it smaller.

const WIDTH = 460, PLOT_HEIGHT = 240, LEFT = 54, RIGHT = 18, BOTTOM = 44, LEGEND_ROW = 19, LETTER = 6.7;

const sizeText = bytes => {
  const count = Math.round(bytes);
  const [unit, size] = [['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['KB', 1e3], ['B', 1]]
    .find(([, size]) => count >= size && count % size === 0) || ['B', 1];
  return `${count / size} ${unit}`;
};
const timeText = us => us < 1e3 ? `${digits(us, 6)} us`
  : us < 1e6 ? `${digits(us / 1e3, 6)} ms` : `${digits(us / 1e6, 6)} s`;
const UNITS = { bytes: sizeText, us: timeText, '': number => digits(number, 6) };

// About `wanted` round numbers from `low` to `high`.
function roundTicks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999) * power;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) ticks.push(i * step);
  return ticks;
}

// From the logarithms of two values: powers of ten, and 2 and 5 times these if there are few.
function logTicks(low, high) {
  const ticks = [], factors = high - low < 2.2 ? [1, 2, 5] : [1];
  for (let power = Math.floor(low); power <= high; ++power)
    for (const factor of factors) {
      const at = power + Math.log10(factor);
      if (at >= low && at <= high) ticks.push(10 ** at);
    }
  return ticks;
}

// Maps the values of an axis to places in the drawing. A linear one may have to begin at 0.
class Scale {
  constructor({ label, log, unit }, values, { from, to, wanted, fromZero = false }) {
    Object.assign(this, { label, log, from, to, write: UNITS[unit || ''] });
    this.low = values.reduce((least, value) => Math.min(least, this.at(value)), Infinity);
    this.high = values.reduce((most, value) => Math.max(most, this.at(value)), -Infinity);
    if (fromZero && !log) this.low = Math.min(this.low, 0);
    if (!log && this.high <= this.low) this.high = this.low + 1;
    const range = this.high - this.low, room = log ? Math.max(0.05 * range, 0.05) : 0.04 * range;
    if (log) this.low -= room;
    if (log || fromZero) this.high += room;
    this.ticks = (log ? logTicks : roundTicks)(this.low, this.high, wanted);
  }
  at(value) { return this.log ? Math.log10(value) : value; }
  place(value) {
    const share = (this.at(value) - this.low) / (this.high - this.low);
    return (this.from + share * (this.to - this.from)).toFixed(1);
  }
}

const svgText = (x, y, words, anchor, kind = '') =>
  `<text class="${kind}" x="${x}" y="${y}" text-anchor="${anchor}">${escaped(words)}</text>`;
const gridLine = (x1, y1, x2, y2) => `<line class="grid" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" />`;
const circle = (x, y, attributes) => `<circle cx="${x}" cy="${y}" r="4.5" ${attributes} />`;

function drawAxes(x, y) {
  return x.ticks.map(tick => gridLine(x.place(tick), y.from, x.place(tick), y.to) +
      svgText(x.place(tick), y.from + 16, x.write(tick), 'middle')).join('') +
    y.ticks.map(tick => gridLine(x.from, y.place(tick), x.to, y.place(tick)) +
      svgText(x.from - 6, Number(y.place(tick)) + 4, y.write(tick), 'end')).join('') +
    svgText((x.from + x.to) / 2, y.from + 36, x.label, 'middle', 'soft') +
    svgText(4, y.to - 9, y.label, 'start', 'soft');
}

// In as many rows as it needs; `bottom` is the baseline of the last.
function drawLegend(series) {
  let left = 4, bottom = 16, svg = '';
  for (const { name, style, colour } of series) {
    const needed = 22 + LETTER * name.length + 14;
    if (left > 4 && left + needed > WIDTH) [left, bottom] = [4, bottom + LEGEND_ROW];
    svg += {
      area: `<rect class="c${colour}" x="${left + 1}" y="${bottom - 10}" width="14" height="11" />`,
      dots: circle(left + 8, bottom - 4, `class="c${colour}"`),
    }[style] || `<polyline class="c${colour} ${style}"
      points="${left},${bottom - 4} ${left + 16},${bottom - 4}" />`;
    svg += svgText(left + 21, bottom, name, 'start');
    left += needed;
  }
  return { svg, bottom };
}

// Areas become the outlines of their stack.
function stacked(series) {
  let below;  // the upper edge of the area before
  return series.map(each => {
    if (each.style !== 'area') return each;
    below ??= each.points.map(([x]) => [x, 0]);
    const edge = each.points.map(([x, y], i) => [x, y + below[i][1]]);
    const points = [...edge, ...below.reverse()];
    below = edge;
    return { ...each, points };
  });
}

function drawSeries({ name, style, colour, points }, x, y) {
  if (style === 'dots')
    return points.map(([a, b]) => circle(x.place(a), y.place(b), `class="mark c${colour}" role="img"
      tabindex="-1" aria-label="${escaped(name)}: ${digits(b, 4)} at ${digits(a, 4)}"`)).join('');
  const places = points.map(([a, b]) => `${x.place(a)},${y.place(b)}`).join(' ');
  const shape = style === 'area' ? 'polygon' : 'polyline';
  return `<${shape} class="c${colour} ${style}" points="${places}" />`;
}

function drawChart(title, chart) {
  const shows = (axis, value) => Number.isFinite(value) && (!axis.log || value > 0);
  const series = stacked(chart.series).map((each, i) => ({
    ...each,
    colour: each.colour ?? COLOURS[each.name] ?? (each.style === 'area' ? 7 : i % 8),
    points: each.points.filter(([a, b]) => shows(chart.x, a) && shows(chart.y, b)),
  }));
  const values = i => series.flatMap(({ points }) => points.map(point => point[i]));
  const legend = drawLegend(series), top = legend.bottom + 30;
  const x = new Scale(chart.x, values(0), { from: LEFT, to: WIDTH - RIGHT, wanted: 6 });
  const y = new Scale(chart.y, values(1),
    { from: top + PLOT_HEIGHT, to: top, wanted: 5, fromZero: true });
  return `<svg class="chart" viewBox="0 0 ${WIDTH} ${top + PLOT_HEIGHT + BOTTOM}" role="group"
    aria-label="${escaped(title)}">${legend.svg}${drawAxes(x, y)}
    ${series.map(each => drawSeries(each, x, y)).join('')}</svg>`;
}

// ---- Lanes ----
// Rows of marks over one axis. Places are percentages of the width, so that lanes fit any window
// while their text keeps its size. A mark has its text if a phone has room for it.

const PIXELS = 350;

// The longest part of a mark that the marks drawn after it, such as waits, leave free.
function freePart({ begin, end }, later) {
  let free = [begin, begin], from = begin;
  const above = later.filter(mark => mark.end > begin && mark.begin < end).sort((a, b) => a.begin - b.begin);
  for (const mark of [...above, { begin: end, end }]) {
    if (mark.begin - from > free[1] - free[0]) free = [from, mark.begin];
    from = Math.max(from, mark.end);
  }
  return free;
}

function drawMark(mark, scale, later) {
  const { colour, says, begin, end, text = '' } = mark, [from, to] = freePart(mark, later);
  const x = 100 * begin / scale, width = Math.max(0.08, 100 * (end - begin) / scale);
  const fits = text && 4 + 7.5 * text.length <= PIXELS * (to - from) / scale;
  return `<g class="${colour}" role="img" tabindex="-1" aria-label="${escaped(says)}"><rect
    x="${x.toFixed(3)}%" y="2" width="${width.toFixed(3)}%" height="24" />${fits ? `<text
    x="${(50 * (from + to) / scale).toFixed(3)}%" y="18" aria-hidden="true">${escaped(text)}</text>` : ''}</g>`;
}

// A lane has a name at its left, and words for screen readers; its ground goes to `end`.
const drawLane = ({ heading, name, says, end, marks, attributes = '' }, scale) => `
  ${heading ? `<h3>${escaped(heading)}</h3>` : ''}<span class="lane-name">${escaped(name)}</span>
  <svg class="lane" ${attributes} role="group" aria-label="${escaped(says)}"><rect class="under" y="2"
  width="${(100 * end / scale).toFixed(3)}%" height="24" />${
    marks.map((mark, i) => drawMark(mark, scale, marks.slice(i + 1))).join('')}</svg>`;

function drawTicks(scale) {
  return roundTicks(0, scale, 5).map(tick => {
    const x = (100 * tick / scale).toFixed(2), anchor = x < 2 ? 'start' : x > 94 ? 'end' : 'middle';
    return `<line x1="${x}%" x2="${x}%" y1="0" y2="5" /><text x="${x}%" y="18"
      text-anchor="${anchor}">${digits(tick, 6)}</text>`;
  }).join('');
}

// The width stands for `scale`. The legend: pairs of a colour and what it means.
const drawLanes = (lanes, scale, axis, legend) => `
  <div class="lanes">${lanes.map(lane => drawLane(lane, scale)).join('')}
  <svg class="ticks" aria-hidden="true">${drawTicks(scale)}</svg>
  <span class="axis">${escaped(axis)}</span></div>
  <ul class="legend">${legend.map(([colour, meaning]) => `<li><svg aria-hidden="true"><g
    class="${colour}"><rect width="20" height="12" /></g></svg>${escaped(meaning)}</li>`)
    .join('')}</ul>`;

function drawBars({ unit, scale, bars }, { rows }) {
  const colour = part => `c${COLOURS[part] ?? 7}`;
  const lanes = bars.map(({ name, values }, bar) => {
    let end = 0;
    const marks = values.map((value, i) => {
      const [part] = rows[i], begin = end;
      end += value;
      return { colour: colour(part), says: `${name}: ${part}, ${rows[i][bar + 1]} ${unit}`, begin, end };
    });
    return { name, says: name, end: scale, marks: marks.filter(({ begin, end }) => end > begin) };
  });
  const parts = bars[0].values.map((_, i) => rows[i][0]);
  return drawLanes(lanes, scale, unit, parts.map(part => [colour(part), part]));
}

const LEGEND = [
  ['forward', 'forward'], ['backward', 'backward'],
  ['weight', 'backward of weights alone (pipelines)'], ['optimizer', 'clip, optimizer'],
  ['other', 'other phases'], ['wait', 'exposed communication: the rank waits'],
  ['call', 'a call in progress'],
];
const inMs = ms => ms.toFixed(ms < 100 ? 2 : 1);

function colourOf(kind, name) {
  if (kind === 'call' || kind === 'wait') return kind;
  if (name === 'forward') return 'forward';
  if (name === 'backward weight') return 'weight';
  if (name.startsWith('backward')) return 'backward';
  return name === 'optimizer' || name === 'clip' ? 'optimizer' : 'other';
}

function markOf(rank, [kind, name, about, begin, end, megabytes, queued]) {
  let says = `Rank ${rank}: ${name}${about ? ` (${about})` : ''}, ${inMs(end - begin)} ms, ` +
    `from ${inMs(begin)} to ${inMs(end)} ms`;
  if (kind === 'call') says += `; ${digits(megabytes, 3)} MB`;
  if (queued > 0.01) says += `, queued for ${inMs(queued)} ms before`;
  const named = ['forward', 'backward', 'optimizer'].includes(name);
  return { colour: colourOf(kind, name), says, begin, end, text: named ? about || name : '' };
}

// [name, colour of its phase, begin, end] of each op.
function opsOf({ spans }) {
  const ops = [];
  let colour = 'other', phaseEnds = 0;
  for (const [kind, name, , begin, end] of spans) {
    if (kind === 'phase') [colour, phaseEnds] = [colourOf(kind, name), end];
    if (kind === 'op') ops.push([name, begin < phaseEnds ? colour : 'other', begin, end]);
  }
  return ops;
}

// Two lanes for each rank: what it computes and where it waits, and its calls. Ops are too short to
// be seen in a whole step (Tracks below).
function drawTracks({ end, scale, ranks }) {
  const lanes = ranks.flatMap(({ rank, name: heading, spans }) => {
    const lane = (track, kinds) => ({
      name: track, says: `rank ${rank}, ${track}`, end,
      marks: spans.filter(([kind]) => kinds.includes(kind)).map(span => markOf(rank, span)),
      attributes: `data-rank="${rank}" data-track="${track}"`,
    });
    return [{ heading, ...lane('compute', ['phase', 'wait']) }, lane('communication', ['call'])];
  });
  return drawLanes(lanes, scale, 'time since the step began (ms)', LEGEND);
}

// ---- The page ----

function draw({ title, drawing, table }) {
  switch (drawing.kind) {
    case 'chart': return drawChart(title, drawing);
    case 'bars': return drawBars(drawing, table);
    case 'tracks': return drawTracks(drawing);
  }
}

function tableOf({ title, table: { columns, rows } }) {
  const side = column => columns[column].words ? ' class="words"' : '';
  const head = columns.map((column, i) => `<th scope="col"${side(i)}>${escaped(column.title)}</th>`);
  const line = row => `<tr>${row.map((cell, i) => `<td${side(i)}>${escaped(cell)}</td>`).join('')}</tr>`;
  return `<div class="scroll"><table><caption>${escaped(title)}</caption><thead><tr>${head.join('')}
    </tr></thead><tbody>${rows.map(line).join('')}</tbody></table></div>`;
}

function figureOf(figure) {
  const wide = figure.drawing?.kind === 'chart' ? '' : ' class="wide"';
  const choice = figure.choice ? ` data-choice="${escaped(figure.choice)}"` : '';
  const drawn = figure.drawing ? draw(figure) : '';
  const says = drawn.includes('tabindex') ? `<p class="says" aria-live="polite">Press Tab and then the
    arrow keys, or point at a mark, to read its description here.</p>` : '';
  const table = drawn ? `<details><summary>The numbers, as a table</summary>${tableOf(figure)}</details>`
    : tableOf(figure);
  return `<figure${wide}${choice}><h2>${escaped(figure.title)}</h2>
    <figcaption>${escaped(figure.caption)}</figcaption>${drawn}${says}${table}</figure>`;
}

const report = JSON.parse(document.getElementById('report').textContent);
document.querySelector('h1').textContent = report.title;
document.querySelector('dl').innerHTML = report.facts
  .map(([name, value]) => `<dt>${escaped(name)}</dt><dd>${escaped(value)}</dd>`).join('');
document.querySelector('main').innerHTML = report.figures.map(figureOf).join('');

// ---- Marks ----
// Left and right move between the marks of a row; up and down move to the nearest mark in time of
// the next row. The line below the figure describes the mark under the focus or the mouse.

const marksOf = figure => [...figure.querySelectorAll('[aria-label][tabindex]')];
const marksIn = row => marksOf(row).filter(mark => mark.parentNode === row);
const markAt = event => event.target.closest('[aria-label][tabindex]');

function middle(mark) {
  const box = mark.getBoundingClientRect();
  return box.left + box.width / 2;
}

function nearest(row, x) {
  const distance = mark => Math.abs(middle(mark) - x);
  return row && marksIn(row).reduce((a, b) => distance(b) < distance(a) ? b : a);
}

function enter(mark) {
  for (const other of marksOf(mark.closest('figure'))) other.tabIndex = -1;
  mark.tabIndex = 0;
  mark.focus();
}

function neighbour(mark, key) {
  const rows = [...new Set(marksOf(mark.closest('figure')).map(other => other.parentNode))];
  const row = marksIn(mark.parentNode);
  const at = row.indexOf(mark), line = rows.indexOf(mark.parentNode);
  switch (key) {
    case 'ArrowRight': return row[at + 1];
    case 'ArrowLeft': return row[at - 1];
    case 'Home': return row[0];
    case 'End': return row[row.length - 1];
    case 'ArrowDown': return nearest(rows[line + 1], middle(mark));
    case 'ArrowUp': return nearest(rows[line - 1], middle(mark));
  }
}

for (const figure of document.querySelectorAll('figure')) {
  const [first] = marksOf(figure);
  if (!first) continue;
  first.tabIndex = 0;
  const say = event => {
    const mark = markAt(event);
    if (mark) figure.querySelector('.says').textContent = mark.getAttribute('aria-label');
  };
  figure.addEventListener('focusin', say);
  figure.addEventListener('mouseover', say);
  figure.addEventListener('click', event => markAt(event) && enter(markAt(event)));
  figure.addEventListener('keydown', event => {
    const to = markAt(event) && neighbour(markAt(event), event.key);
    if (!to) return;
    event.preventDefault();
    enter(to);
  });
}

// ---- Zoom ----
// The tracks lie in a box that scrolls. Their places are percentages, so zooming only makes them
// wider. Then there is room for ops, and for the steps of calls with an arrow from each sender.

const buttonsOf = words => words.map(([text, label]) =>
  `<button type="button" aria-label="${escaped(label)}">${escaped(text)}</button>`).join('');
const short = number => Number(number.toFixed(4));  // to a tenth of a microsecond

class Tracks {
  constructor(figure, { scale, ranks }, number) {
    this.lanes = figure.querySelector('.lanes');
    this.scale = scale;
    this.ranks = ranks.map(rank => ({ ...rank, ops: opsOf(rank) }));
    this.zoom = 1;
    this.chosen = -1;  // the call whose arrows are drawn at any zoom, from 0
    const any = this.ranks.some(rank => rank.ops.length + rank.steps.length > 0);
    this.lanes.classList.toggle('deep', any);
    for (const lane of this.lanes.querySelectorAll('.lane'))
      lane.insertAdjacentHTML('beforeend', '<g class="details"></g>');
    this.lanes.insertAdjacentHTML('beforeend', `<svg class="arrows" aria-hidden="true"><defs>
      <marker id="head${number}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7"
      markerHeight="7" orient="auto"><path d="M 0 1 L 10 5 L 0 9 z" /></marker></defs><g></g></svg>`);
    this.head = `url(#head${number})`;
    this.lanes.insertAdjacentHTML('beforebegin', `<p class="buttons">${buttonsOf([
      ['−', 'Zoom out'], ['+', 'Zoom in'], ['whole', 'Show the whole step']])}
      <span>Keys: + − 0, Enter on a mark. Mouse: Ctrl and wheel, double click, drag.</span></p>`);
    if (any)
      this.lanes.insertAdjacentHTML('beforebegin', `<p class="hint">Below a phase are its ops, below
        a call the steps of its schedule, with an arrow from the sender of each.</p>`);
    const [out, into, whole] = figure.querySelectorAll('.buttons button');
    out.onclick = () => this.zoomTo(this.zoom / 2);
    into.onclick = () => this.zoomTo(this.zoom * 2);
    whole.onclick = () => this.zoomTo(1);
    figure.addEventListener('keydown', event => this.key(event));
    figure.addEventListener('focusin', event => this.choose(markAt(event)));
    this.lanes.addEventListener('dblclick', event => this.fill(markAt(event)));
    this.lanes.addEventListener('scroll', () => this.later());
    this.lanes.addEventListener('pointerdown', event => this.drag(event));
    this.lanes.addEventListener('wheel', event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoomTo(this.zoom * 1.002 ** -event.deltaY, event.clientX);
    }, { passive: false });
    addEventListener('resize', () => {
      if (this.box().width > 0) this.show(this.zoom, this.share, this.frame().middle);
    });
    this.draw();
  }

  // In pixels of the window: where the tracks lie, and the part of it that is seen. The names of the
  // tracks stay at the left.
  box() { return this.lanes.querySelector('.lane').getBoundingClientRect(); }
  frame() {
    const left = this.box().left + this.lanes.scrollLeft;
    const { right } = this.lanes.getBoundingClientRect();
    return { left, right, middle: (left + right) / 2 };
  }

  // From 0 to 1, where 1 is the end of the step.
  shareAt(x) {
    const { left, width } = this.box();
    return (x - left) / width;
  }

  // Puts the time at `share` to the pixel `x`.
  show(zoom, share, x) {
    const { left } = this.frame();
    this.zoom = Math.max(1, Math.min(1000, zoom));
    this.lanes.style.setProperty('--zoom', this.zoom);
    this.lanes.scrollLeft = left + share * this.box().width - x;
    this.draw();
  }

  // Keeps the time at `x` where it is.
  zoomTo(zoom, x = this.frame().middle) { this.show(zoom, this.shareAt(x), x); }

  // The mark fills half of what is seen.
  fill(mark) {
    if (!mark || !this.lanes.contains(mark)) return;
    const { left, right, middle: x } = this.frame();
    const { width } = mark.querySelector('rect').getBoundingClientRect();
    this.show(this.zoom * 0.5 * (right - left) / width, this.shareAt(middle(mark)), x);
  }

  key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const mark = markAt(event), x = mark ? middle(mark) : undefined;
    const action = {
      '+': () => this.zoomTo(this.zoom * 2, x),
      '=': () => this.zoomTo(this.zoom * 2, x),
      '-': () => this.zoomTo(this.zoom / 2, x),
      0: () => this.zoomTo(1),
      Enter: mark && (() => this.fill(mark)),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  drag(event) {
    if (event.pointerType !== 'mouse' || event.button !== 0) return;
    const from = event.clientX + this.lanes.scrollLeft;
    const move = moved => { this.lanes.scrollLeft = from - moved.clientX; };
    addEventListener('pointermove', move);
    addEventListener('pointerup', () => removeEventListener('pointermove', move), { once: true });
  }

  // The focus is on a call: its arrows are shown.
  choose(mark) {
    if (!mark || !mark.matches('.lane > .call')) return;
    this.chosen = marksIn(mark.parentNode).indexOf(mark);
    this.draw();
  }

  later() {
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.draw());
  }

  draw() {
    if (this.box().width === 0) return;  // another step is shown
    this.share = this.shareAt(this.frame().middle);
    const focus = this.lanes.querySelector('.details :focus');
    for (const { rank, ops, steps } of this.ranks) {
      this.drawDetails(rank, 'compute', ops.map((op, i) => this.opOf(rank, op, i)));
      this.drawDetails(rank, 'communication', steps.map((step, i) => this.stepOf(rank, step, i)));
    }
    const again = focus && this.lanes.querySelector(`[data-key="${focus.dataset.key}"]`);
    if (again) again.focus({ preventScroll: true });
    this.drawArrows();
    this.drawTicks();
  }

  opOf(rank, [name, kind, begin, end], i) {
    return { key: `op-${rank}-${i}`, name, kind, begin, end, says: `Rank ${rank}: ${name}` };
  }

  stepOf(rank, [step, from, sent, begin, end, megabytes], i) {
    return { key: `step-${rank}-${i}`, name: `${step}`, kind: 'call', begin, end,
             says: `Rank ${rank}: step ${step} of the call, ${digits(megabytes, 3)} MB ` +
               `from rank ${from}, sent at ${short(sent)} ms` };
  }

  // The times that are seen, in ms.
  seen() {
    const { left, right } = this.frame();
    return [left, right].map(x => this.shareAt(x) * this.scale);
  }

  percent(ms) { return 100 * ms / this.scale; }

  drawDetails(rank, track, marks) {
    const pixels = this.box().width / this.scale, [from, to] = this.seen();
    const seen = ({ begin, end }) => (end - begin) * pixels >= 1.5 && begin < to && end > from;
    const lane = this.lanes.querySelector(`[data-rank="${rank}"][data-track="${track}"]`);
    lane.querySelector('.details').innerHTML = marks.filter(seen).map(mark => {
      const { key, name, kind, begin, end, says } = mark, room = (end - begin) * pixels;
      const text = room < 7 * name.length + 6 ? '' :
        `<text x="${this.percent(begin)}%" dx="4" y="40" aria-hidden="true">${escaped(name)}</text>`;
      return `<g class="${kind}" role="img" tabindex="-1" data-key="${key}" aria-label="${escaped(says)}, ` +
        `${short(end - begin)} ms, from ${short(begin)} to ${short(end)} ms"><rect y="28" ` +
        `x="${this.percent(begin)}%" width="${this.percent(end - begin)}%" height="16" />${text}</g>`;
    }).join('');
  }

  // From the sender's lane, when the message left, to the receiver's, when it had arrived. Drawn
  // where a step is wide enough, and for the chosen call.
  drawArrows() {
    const svg = this.lanes.querySelector('.arrows'), frame = this.lanes.getBoundingClientRect();
    const box = this.box(), [first, last] = this.seen();
    svg.style.left = `${box.left - frame.left + this.lanes.scrollLeft}px`;
    svg.style.width = `${box.width}px`;
    svg.style.height = `${frame.height}px`;
    const height = rank => 36 - frame.top +
      this.lanes.querySelector(`[data-rank="${rank}"][data-track="communication"]`)
        .getBoundingClientRect().top;
    let arrows = '';
    for (const { rank, steps } of this.ranks)
      for (const [, from, sent, begin, end, , call] of steps) {
        const wide = (end - begin) / this.scale * box.width >= 12;
        if (!(wide || call === this.chosen) || end < first || sent > last) continue;
        const down = height(rank) > height(from) ? 8 : -8;
        arrows += `<line data-call="${call}" x1="${this.percent(sent)}%"
          x2="${this.percent(end)}%" y1="${height(from) + down}" y2="${height(rank) - down}" marker-end="${this.head}" />`;
      }
    svg.lastElementChild.innerHTML = arrows;
  }

  drawTicks() {
    const { scale } = this, [from, to] = this.seen();
    const rough = scale * 90 / this.box().width, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find(factor => factor * power >= rough) * power;
    let ticks = '';
    for (let i = Math.ceil(from / step); i * step <= Math.min(scale, to); ++i) {
      const x = this.percent(i * step);
      const anchor = i === 0 ? 'start' : x > 100 - 6 / this.zoom ? 'end' : 'middle';
      ticks += `<line x1="${x}%" x2="${x}%" y1="0" y2="5" /><text x="${x}%" y="18"
        text-anchor="${anchor}">${short(i * step)}</text>`;
    }
    this.lanes.querySelector('.ticks').innerHTML = ticks;
  }
}

const allTracks = [...document.querySelectorAll('figure')].flatMap((figure, number) => {
  const { drawing } = report.figures[number];
  return drawing?.kind === 'tracks' ? [new Tracks(figure, drawing, number)] : [];
});

// ---- One step of several ----

const choices = [...document.querySelectorAll('[data-choice]')];
const names = [...new Set(choices.map(figure => figure.dataset.choice))];

function show(name) {
  for (const figure of choices) figure.hidden = figure.dataset.choice !== name;
  for (const button of document.querySelectorAll('.choice button'))
    button.setAttribute('aria-pressed', button.textContent === name);
  for (const tracks of allTracks) tracks.draw();
}

if (names.length > 1) {
  choices[0].insertAdjacentHTML('beforebegin',
    `<p class="choice buttons wide">Recorded: ${buttonsOf(names.map(name => [name, name]))}</p>`);
  for (const button of document.querySelectorAll('.choice button'))
    button.onclick = () => show(button.textContent);
  show(names[names.length - 1]);
}
