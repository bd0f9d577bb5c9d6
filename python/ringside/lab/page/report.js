'use strict';
// What moves in a report: the line that describes a mark, the choice of a step, and the zoom into
// the tracks of the ranks. Everything else is drawn already (report.cpp, report.py, tracks_figure.cpp).

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
  `<button type="button" aria-label="${label}">${text}</button>`).join('');
const short = number => Number(number.toFixed(4));  // to a tenth of a microsecond

class Tracks {
  constructor(figure, number) {
    this.lanes = figure.querySelector('.lanes');
    this.details = JSON.parse(figure.querySelector('.tracks-data').textContent);
    this.zoom = 1;
    this.chosen = -1;  // the call whose arrows are drawn at any zoom, from 0
    const any = this.details.ranks.some(rank => rank.ops.length + rank.steps.length > 0);
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
    for (const { rank, ops, steps } of this.details.ranks) {
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
             says: `Rank ${rank}: step ${step} of the call, ${Number(megabytes.toPrecision(3))} MB from rank ${from}, sent ` +
               `at ${short(sent)} ms` };
  }

  // The times that are seen, in ms.
  seen() {
    const { left, right } = this.frame();
    return [left, right].map(x => this.shareAt(x) * this.details.scale);
  }

  percent(ms) { return 100 * ms / this.details.scale; }

  drawDetails(rank, track, marks) {
    const pixels = this.box().width / this.details.scale, [from, to] = this.seen();
    const seen = ({ begin, end }) => (end - begin) * pixels >= 1.5 && begin < to && end > from;
    const lane = this.lanes.querySelector(`[data-rank="${rank}"][data-track="${track}"]`);
    lane.querySelector('.details').innerHTML = marks.filter(seen).map(mark => {
      const { key, name, kind, begin, end, says } = mark, room = (end - begin) * pixels;
      const text = room < 7 * name.length + 6 ? '' :
        `<text x="${this.percent(begin)}%" dx="4" y="40" aria-hidden="true">${name}</text>`;
      return `<g class="${kind}" role="img" tabindex="-1" data-key="${key}" aria-label="${says}, ` +
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
    for (const { rank, steps } of this.details.ranks)
      for (const [, from, sent, begin, end, , call] of steps) {
        const wide = (end - begin) / this.details.scale * box.width >= 12;
        if (!(wide || call === this.chosen) || end < first || sent > last) continue;
        const down = height(rank) > height(from) ? 8 : -8;
        arrows += `<line data-call="${call}" x1="${this.percent(sent)}%"
          x2="${this.percent(end)}%" y1="${height(from) + down}" y2="${height(rank) - down}" marker-end="${this.head}" />`;
      }
    svg.lastElementChild.innerHTML = arrows;
  }

  drawTicks() {
    const { scale } = this.details, [from, to] = this.seen();
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

const allTracks = [...document.querySelectorAll('.tracks-data')]
  .map((data, number) => new Tracks(data.closest('figure'), number));

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
