// Plays a schedule: the ring of ranks with the messages of a step, and beside it the table of what
// each rank holds afterwards, or the timeline of a pipeline (pipeline.js). The states come with
// `data`; this script only draws them.

// The position is the number of steps taken.
const shown = { family: null, algorithm: null, ranks: 0, microBatches: null, position: 0 };
let playing = false;
let timer = 0;

const isPipeline = () => shown.microBatches !== null;
const playOf = () => {
  const play = shown.algorithm.plays[shown.ranks];
  if (!isPipeline()) return play;
  const timed = play[shown.microBatches];
  timed.steps = timed.steps || stepsOf(timed);
  return timed;
};
const stepCount = () => playOf().steps.length;
// The step that led to the position; none at the start.
const stepAt = position => position === 0 ? null : playOf().steps[position - 1];
const cellsAt = position => position === 0 ? playOf().start : stepAt(position).cells;
const colourOf = rank => `var(--c${rank % 8})`;
// Of a message: its sender's; in a pipeline that of the forwards, or of the backwards.
const goesForward = message => message.label[0] === 'F';
const senderColour = message => isPipeline() ? (goesForward(message) ? 0 : 1) : message.from % 8;

// ---- The ring ----

const centre = 220, radius = 158;
const nodeRadius = () => Math.min(27, 2 * Math.PI * radius / shown.ranks * 0.36);

function placeOf(rank) {
  const angle = 2 * Math.PI * rank / shown.ranks - Math.PI / 2;
  return { x: centre + radius * Math.cos(angle), y: centre + radius * Math.sin(angle) };
}

const areNeighbours = message =>
  [1, shown.ranks - 1].includes(Math.abs(message.from - message.to));

// A curve from one node to another. It bends to its left, so that two opposite messages do not lie
// on each other, and passes the nodes between them on the inside. A message of a rank to itself is
// a loop outside of the ring.
function curve(message) {
  const { from, to } = message;
  const a = placeOf(from), b = placeOf(to);
  if (from === to) {
    const out = { x: (a.x - centre) / radius, y: (a.y - centre) / radius };
    const side = { x: -out.y, y: out.x };
    const at = (along, across) =>
      `${a.x + out.x * along + side.x * across} ${a.y + out.y * along + side.y * across}`;
    return `M ${at(18, -21)} C ${at(62, -40)} ${at(62, 40)} ${at(22, 22)}`;
  }
  const length = Math.hypot(b.x - a.x, b.y - a.y);
  const unit = { x: (b.x - a.x) / length, y: (b.y - a.y) / length };
  const bend = Math.min(34, 0.17 * length);
  const inward = areNeighbours(message) ? 1 : 0.75;
  const middle = {
    x: centre + ((a.x + b.x) / 2 - centre) * inward + unit.y * bend,
    y: centre + ((a.y + b.y) / 2 - centre) * inward - unit.x * bend,
  };
  const shortened = (node, gap) => {
    const distance = Math.hypot(middle.x - node.x, middle.y - node.y);
    return {
      x: node.x + (middle.x - node.x) * gap / distance,
      y: node.y + (middle.y - node.y) * gap / distance,
    };
  };
  const start = shortened(a, nodeRadius() + 4), end = shortened(b, nodeRadius() + 9);
  return `M ${start.x} ${start.y} Q ${middle.x} ${middle.y} ${end.x} ${end.y}`;
}

// The messages of `step` with their labels at `travel`, from 0 (sender) to 1 (receiver); if it is
// null, near the sender: no rank sends two messages in a step, so labels lie apart.
function drawRing(step, travel) {
  const ring = byId('ring');
  const messages = step ? step.messages : [];
  let svg = '<defs>';
  for (let colour = 0; colour < 8; ++colour)
    svg += `<marker id="head${colour}" viewBox="0 0 10 10" refX="6" refY="5" markerWidth="5"
      markerHeight="5" orient="auto-start-reverse"><path d="M 0 0 L 10 5 L 0 10 z"
      fill="var(--c${colour})"/></marker>`;
  svg += '</defs>';
  for (const message of messages)
    svg += `<path class="arrow" d="${curve(message)}" stroke="${colourOf(senderColour(message))}"
      marker-end="url(#head${senderColour(message)})"/>`;
  const busy = new Set(messages.flatMap(message => [message.from, message.to]).concat(step?.busy || []));
  for (let rank = 0; rank < shown.ranks; ++rank) {
    const { x, y } = placeOf(rank);
    svg += `<g class="node ${step && !busy.has(rank) ? 'idle' : ''}"><circle cx="${x}" cy="${y}"
      r="${nodeRadius()}" stroke="${isPipeline() ? 'var(--soft)' : colourOf(rank)}"/><text x="${x}" y="${y}">${rank}</text></g>`;
  }
  ring.innerHTML = svg;
  const paths = [...ring.querySelectorAll('.arrow')];
  messages.forEach((message, i) => {
    const text = message.label, width = 18 + 8.5 * text.length;
    const length = paths[i].getTotalLength();
    const { x: middle, y } = paths[i].getPointAtLength(
      travel === null ? Math.min(0.5 * length, 40) : travel * length);
    const x = Math.max(width / 2 + 2, Math.min(2 * centre - width / 2 - 2, middle));
    ring.insertAdjacentHTML('beforeend', `<g class="label"><rect x="${x - width / 2}" y="${y - 12}"
      width="${width}" height="24" rx="7" stroke="${colourOf(senderColour(message))}"/>
      <text x="${x}" y="${y}">${escaped(text)}</text></g>`);
  });
  ring.setAttribute('aria-label', messages.length === 0 ? `${shown.ranks} ranks; no message`
    : 'Messages: ' + messages.map(sentenceOf).join('; '));
}

function sentenceOf(message) {
  const words = message.words ||
    `${goesForward(message) ? 'activations' : 'gradients'} of micro-batch ${message.label.slice(1)}`;
  return `rank ${message.from} sends ${words} to rank ${message.to}`;
}

// ---- The table ----

// The ranks named in a cell: "0+3" holds 0 and 3, "2.1" holds 2.
function ranksIn(text) {
  return text === '' ? [] : text.split('+').map(part => parseInt(part, 10));
}

// "0+1+2+5" as "0-2+5".
function inSpans(text) {
  const parts = text.split('+');
  if (parts.some(part => !/^\d+$/.test(part))) return text;
  const ranks = parts.map(Number), spans = [];
  for (let i = 0; i < ranks.length; ++i) {
    let last = i;
    while (last + 1 < ranks.length && ranks[last + 1] === ranks[last] + 1) ++last;
    if (last - i < 2) last = i;
    spans.push(last > i ? `${ranks[i]}–${ranks[last]}` : `${ranks[i]}`);
    i = last;
  }
  return spans.join('+');
}

const inNumbers = text => text.includes('.') ? text : String(ranksIn(text).length);

// The most detailed notation of which every text of the whole play fits into a cell.
function notation() {
  const columns = playOf().columns.length, width = byId('cells').parentNode.clientWidth;
  const room = (width - (width > 500 ? 160 : 100)) / columns - 12;
  const letter = columns > 6 ? 7.7 : 8.6;
  const texts = [playOf().start, ...playOf().steps.map(step => step.cells)].flat(2);
  const fits = write => texts.every(text => letter * (write(text).length + 2) <= room);
  return [text => text, inSpans].find(fits) || inNumbers;
}

// Which cells a step sends and receives, as "rank/column".
function touchedBy(step) {
  const sent = new Set(), received = new Map();
  for (const message of step ? step.messages : []) {
    const whole = message.chunks.length === 0;  // without payload: the one cell of the rank
    for (const chunk of whole ? [0] : message.taken) sent.add(`${message.from}/${chunk}`);
    for (const chunk of whole ? [0] : message.chunks)
      received.set(`${message.to}/${chunk}`, message.action === 'add' ? 'added' : 'replaced');
  }
  return { sent, received };
}

function destinationOf(message) {
  const row = `<span class="row">${shown.family.row}</span>`;
  return `${escaped(message.label)} → ${row} ${message.to}`;
}

// The cells at a position. While messages travel, `leaving` is the step that is under way.
function drawCells(position, leaving) {
  const play = playOf(), step = leaving || stepAt(position);
  const { sent } = touchedBy(leaving), { received } = touchedBy(leaving ? null : step);
  const write = notation(), single = play.columns.length === 1 && isNaN(play.columns[0]);
  byId('cells').className = play.columns.length > 6 ? 'small' : '';
  const strips = cellsAt(0).flat().every(text => ranksIn(text).every(Number.isInteger));
  byId('meaning').textContent = shown.family.cell +
    (write === inNumbers ? ' There is little room here: a cell counts them.' : '') +
    (strips ? ' The strip below shows them, rank 0 on the left.' : '');
  const word = single ? '' : shown.family.column;
  const heads = play.columns.map(column =>
    `<th scope="col"><span class="column">${word}</span> ${escaped(column)}</th>`);
  let html = `<thead><tr><th><span class="corner">${word}</span></th>${heads.join('')}
    <th scope="col" class="words">sends</th></tr></thead><tbody>`;
  cellsAt(position).forEach((row, rank) => {
    html += `<tr><th scope="row"><span class="row">${shown.family.row}</span> ${rank}</th>`;
    row.forEach((text, column) => {
      const arrived = received.get(`${rank}/${column}`);
      const kind = arrived || (sent.has(`${rank}/${column}`) ? 'sent' : '');
      const held = new Set(ranksIn(text));
      let strip = '';
      for (let r = 0; strips && r < shown.ranks; ++r)
        strip += held.has(r) ? `<i style="background: ${colourOf(r)}"></i>` : '<i></i>';
      const words = escaped(write(text));
      html += `<td class="cell"><div class="${kind}" data-held="${escaped(text)}">` +
        `${arrived ? `[${words}]` : words}<span class="strip">${strip}</span></div></td>`;
    });
    const message = step && step.messages.find(one => one.from === rank);
    html += `<td class="words">${message ? destinationOf(message) : ''}</td></tr>`;
  });
  byId('cells').innerHTML = html + '</tbody>';
}

// ---- The whole page ----

const counted = (n, thing, plural = 's') => `${n} ${thing}${n === 1 ? '' : plural}`;

function draw() {
  const { family, algorithm, position } = shown, step = stepAt(position);
  const root = typeof playOf().root === 'number' ? `, root ${playOf().root}` : '';
  const title = `${algorithm.name} ${family.name} on ${counted(shown.ranks, 'rank')}` +
    (isPipeline() ? `, ${counted(shown.microBatches, 'micro-batch', 'es')}` : '');
  document.title = title;
  byId('title').textContent = title + root;
  byId('says').innerHTML = step === null
    ? `At the start <span>(${counted(stepCount(), 'step')})</span>`
    : `Step ${position - 1}: ${escaped(step.says)} <span>(${position} of ${stepCount()})</span>`;
  byId('position').max = stepCount();
  byId('position').value = position;
  byId('position').setAttribute('aria-valuetext', byId('says').textContent);
  byId('to-start').disabled = byId('back').disabled = position === 0;
  byId('to-end').disabled = byId('forward').disabled = position === stepCount();
  drawRing(step, null);
  drawStates(position, null);
}

// What the ranks hold. While messages travel, `leaving` is the step that is under way.
function drawStates(position, leaving) {
  const wanted = isPipeline();
  for (const [id, on] of [['timeline', wanted], ['timeline-legend', wanted], ['cells', !wanted],
    ['cells-legend', !wanted], ['micro-batches-label', wanted]])
    byId(id).style.display = on ? '' : 'none';
  if (isPipeline()) drawTimeline(playOf(), position, 0);
  else drawCells(position, leaving);
}

function setPosition(position) {
  shown.position = Math.max(0, Math.min(stepCount(), position));
  const { family, algorithm, ranks, microBatches } = shown;
  if (location.protocol !== 'about:') // a page in a notebook has no address of its own
    history.replaceState(null, '', '#' + [family.name, algorithm.name, ranks,
      ...(isPipeline() ? [microBatches] : []), shown.position].join('/'));
  draw();
}

function fillSelect(select, options, chosen) {
  select.innerHTML = options.map(option =>
    `<option value="${escaped(option)}">${escaped(option)}</option>`).join('');
  select.value = chosen;
}

const numbersIn = object => Object.keys(object).map(Number).sort((a, b) => a - b);

// Shows a schedule, or the nearest that exists.
function choose(familyName, algorithmName, ranks, position, microBatches = shown.microBatches) {
  const family = data.families.find(one => one.name === familyName) || data.families[0];
  const algorithm = family.algorithms.find(one => one.name === algorithmName) ||
    family.algorithms[0];
  const offered = numbersIn(algorithm.plays);
  pause();
  Object.assign(shown, { family, algorithm, ranks: offered.includes(ranks) ? ranks : offered[0] });
  const play = algorithm.plays[shown.ranks], batches = play.steps ? [] : numbersIn(play);
  shown.microBatches = batches.length === 0 ? null
    : batches.find(number => number >= (microBatches || 8)) || batches[batches.length - 1];
  fillSelect(byId('micro-batches'), batches, shown.microBatches);
  fillSelect(byId('family'), data.families.map(one => one.name), family.name);
  fillSelect(byId('algorithm'), family.algorithms.map(one => one.name), algorithm.name);
  fillSelect(byId('ranks'), offered, shown.ranks);
  byId('promise').textContent = `At the end, ${family.promise}.`;
  setPosition(position);
  drawCosts(family, shown.ranks);
}
function chooseNext(select) {
  select.selectedIndex = (select.selectedIndex + 1) % select.options.length;
  select.dispatchEvent(new Event('change'));
}

function moreRanks(by) {
  const offered = [...byId('ranks').options].map(option => Number(option.value));
  const ranks = offered[offered.indexOf(shown.ranks) + by];
  if (ranks !== undefined) choose(shown.family.name, shown.algorithm.name, ranks, 0);
}

// ---- Playing ----

function pause() {
  playing = false;
  clearTimeout(timer);
  byId('play').textContent = '▶ Play';
}

// Lets the messages of the next step travel, then shows what they did, and goes on.
function playStep() {
  if (!playing) return;
  if (shown.position === stepCount()) {
    pause();
    return;
  }
  const step = playOf().steps[shown.position], speed = Number(byId('speed').value);
  const arrive = () => {
    setPosition(shown.position + 1);
    timer = setTimeout(playStep, 900 / speed);
  };
  drawStates(shown.position, step);
  if (matchMedia('(prefers-reduced-motion: reduce)').matches) {
    drawRing(step, null);
    timer = setTimeout(arrive, 900 / speed);
    return;
  }
  const duration = 900 / speed, begin = performance.now();
  const travel = now => {
    if (!playing) return;
    const share = Math.max(0, (now - begin) / duration);
    if (share >= 1) {
      arrive();
      return;
    }
    drawRing(step, share);
    if (isPipeline()) drawTimeline(playOf(), shown.position, share);
    requestAnimationFrame(travel);
  };
  requestAnimationFrame(travel);
}

function togglePlay() {
  if (playing) {
    pause();
    draw();
    return;
  }
  playing = true;
  byId('play').textContent = '❚❚ Pause';
  if (shown.position === stepCount()) setPosition(0);
  playStep();
}

function goTo(position) {
  pause();
  setPosition(position);
}

function fromAddress() {
  const parts = decodeURIComponent(location.hash.slice(1)).split('/');
  const { family, algorithm, ranks, micro_batches: batches } = data.first;
  const [ranksThere, ...rest] = parts.slice(2).map(Number);
  if (parts.length < 2) choose(family, algorithm, ranks, 0, batches);
  else choose(parts[0], parts[1], ranksThere, rest.pop() || 0, rest[0]);
}

byId('family').addEventListener('change', event => choose(event.target.value, '', shown.ranks, 0));
byId('algorithm').addEventListener('change', event =>
  choose(shown.family.name, event.target.value, shown.ranks, 0));
byId('ranks').addEventListener('change', event =>
  choose(shown.family.name, shown.algorithm.name, Number(event.target.value), 0));
byId('micro-batches').addEventListener('change', event =>
  choose(shown.family.name, shown.algorithm.name, shown.ranks, 0, Number(event.target.value)));
byId('to-start').addEventListener('click', () => goTo(0));
byId('back').addEventListener('click', () => goTo(shown.position - 1));
byId('play').addEventListener('click', togglePlay);
byId('forward').addEventListener('click', () => goTo(shown.position + 1));
byId('to-end').addEventListener('click', () => goTo(stepCount()));
byId('position').addEventListener('input', event => goTo(Number(event.target.value)));
for (const slider of ['size', 'alpha', 'beta'])
  byId(slider).addEventListener('input', () => drawCosts(shown.family, shown.ranks));
addEventListener('hashchange', fromAddress);
addEventListener('resize', () => { if (!playing) draw(); });
addEventListener('keydown', event => {
  // A list and a slider use these keys themselves, and Space presses a button.
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (['SELECT', 'INPUT'].includes(event.target.tagName)) return;
  if (event.key === ' ' && ['BUTTON', 'SUMMARY'].includes(event.target.tagName)) return;
  const action = {
    ' ': togglePlay,
    ArrowLeft: () => goTo(shown.position - 1),
    ArrowRight: () => goTo(shown.position + 1),
    Home: () => goTo(0),
    End: () => goTo(stepCount()),
    ArrowUp: () => moreRanks(1),
    ArrowDown: () => moreRanks(-1),
    a: () => chooseNext(byId('algorithm')),
    c: () => chooseNext(byId('family')),
    m: () => isPipeline() && chooseNext(byId('micro-batches')),
  }[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
byId('slice').textContent = sizeText(data.slice_bytes);
fromAddress();
