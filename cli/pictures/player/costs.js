// Which algorithm is the fastest, and why. `data` has the longest paths of each algorithm, as lines
// [messages, bytes] for each size (player_data.hpp). The time is the largest of
// messages * alpha + bytes * beta.

const byId = id => document.getElementById(id);

function escaped(text) {
  return String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/"/g, '&quot;');
}

function digits(number) {
  return number === 0 ? '0' : Number(number.toPrecision(3)).toString();
}

function timeText(seconds) {
  for (const [unit, name] of [[1, 's'], [1e-3, 'ms'], [1e-6, 'µs']])
    if (seconds >= 0.9995 * unit) return `${digits(seconds / unit)} ${name}`;
  return `${digits(seconds / 1e-9)} ns`;
}

function sizeText(bytes) {
  for (const [unit, name] of [[2 ** 20, 'MiB'], [2 ** 10, 'KiB']])
    if (bytes >= unit) return `${digits(bytes / unit)} ${name}`;
  return `${digits(bytes)} bytes`;
}

function rateText(bytesPerSecond) {
  for (const [unit, name] of [[1e9, 'GB/s'], [1e6, 'MB/s']])
    if (bytesPerSecond >= 0.9995 * unit) return `${digits(bytesPerSecond / unit)} ${name}`;
  return `${digits(bytesPerSecond)} B/s`;
}

// The longest of an algorithm's paths.
function longestPath(lines, alpha, beta) {
  let longest = { seconds: -1 };
  for (const [messages, bytes] of lines) {
    const seconds = messages * alpha + bytes * beta;
    if (seconds > longest.seconds) longest = { messages, bytes, seconds };
  }
  return longest;
}

// Each slider step is a twentieth of a power of ten.
function network() {
  return {
    sizeIndex: Number(byId('size').value),
    bytes: data.sizes[Number(byId('size').value)],
    alpha: 10 ** (-7 + byId('alpha').value / 20),
    beta: 10 ** (-11 + byId('beta').value / 20),
  };
}

// The path of every algorithm of the family at one size, in the order of the catalogue.
function pathsOf(family, ranks, sizeIndex, { alpha, beta }) {
  return family.algorithms.map((algorithm, colour) => ({
    name: algorithm.name,
    cautionary: algorithm.cautionary,
    colour: colour % 7,
    ...longestPath(algorithm.costs[ranks][sizeIndex], alpha, beta),
  }));
}

function fastestOf(paths) {
  const offered = paths.filter(path => !path.cautionary);
  return offered.reduce((best, path) => path.seconds < best.seconds * (1 - 1e-9) ? path : best);
}

// "6 α + 1.5 n β", where n is the size of the buffer.
function formula(path, bytes) {
  return `${digits(path.messages)} α + ${digits(path.bytes / bytes)} n β`;
}

function reason(paths, { alpha, beta, bytes }) {
  const best = fastestOf(paths);
  const others = paths.filter(path => path !== best && !path.cautionary);
  const what = `Its longest path has ${digits(best.messages)} messages ` +
    `(${timeText(best.messages * alpha)}) and ${digits(best.bytes / bytes)} times the buffer ` +
    `(${timeText(best.bytes * beta)}).`;
  if (best.seconds === 0) return 'One rank alone sends nothing.';
  if (others.length === 0) return `${best.name} takes ${timeText(best.seconds)}. ${what}`;

  const next = fastestOf(others);
  const head = `${best.name} is the fastest: ${timeText(best.seconds)}. ${what}`;
  if (next.seconds <= best.seconds * (1 + 1e-9)) return `${head} ${next.name} is as fast.`;
  const messages = (next.messages - best.messages) * alpha;
  const moved = (next.bytes - best.bytes) * beta;
  const second = `The next is ${next.name}, which takes ${timeText(next.seconds)}: it`;
  if (messages > 0 && moved > 0)
    return `${head} ${second} pays ${timeText(messages)} more for messages and ` +
      `${timeText(moved)} more for bytes.`;
  if (moved > 0 && messages < 0)
    return `${head} ${second} has fewer messages, which saves ${timeText(-messages)}, but more ` +
      `bytes, which cost ${timeText(moved)}.`;
  if (messages > 0 && moved < 0)
    return `${head} ${second} moves fewer bytes, which saves ${timeText(-moved)}, but in more ` +
      `messages, which cost ${timeText(messages)}.`;
  return `${head} ${second} pays ${timeText(Math.max(messages, moved))} more for ` +
    `${moved > 0 ? 'bytes' : 'messages'}.`;
}

function drawBars(paths, { alpha, beta, bytes }) {
  const longest = Math.max(...paths.map(path => path.seconds)), best = fastestOf(paths);
  const percent = seconds => longest > 0 ? (100 * seconds / longest).toFixed(2) : 0;
  byId('bars').innerHTML = paths.map(path => `
    <tr class="${path === best ? 'fastest' : ''}"
        data-algorithm="${escaped(path.name)}" data-seconds="${path.seconds}">
      <th scope="row"><span class="name"><span class="swatch ${path.cautionary ? 'dashed' : ''}"
        style="border-color: var(--c${path.colour})"></span>${escaped(path.name)}</span><br>
        <small>${formula(path, bytes)}
          ${path.cautionary ? '<br>for comparison only' : ''}</small></th>
      <td class="times"><div class="bar">
        <span class="messages" style="width: ${percent(path.messages * alpha)}%"></span>
        <span class="bytes" style="width: ${percent(path.bytes * beta)}%"></span></div></td>
      <td class="time">${timeText(path.seconds)}
        ${path === best ? '<br><small>fastest</small>' : ''}</td>
    </tr>`).join('');
}

// Time over size, both axes logarithmic.
function drawChart(family, ranks, chosen) {
  const left = 58, right = 428, top = 14, bottom = 246;
  const rows = data.sizes.map((_, index) => pathsOf(family, ranks, index, chosen));
  const times = rows.flat().map(path => path.seconds).filter(seconds => seconds > 0);
  const low = Math.floor(Math.log10(Math.min(...times)));
  const high = Math.ceil(Math.log10(Math.max(...times)));
  const x = index => left + (right - left) * index / (data.sizes.length - 1);
  const y = seconds =>
    bottom - (bottom - top) * (Math.log10(seconds) - low) / Math.max(1, high - low);
  const text = (px, py, anchor, words, kind = '') =>
    `<text class="${kind}" x="${px}" y="${py}" text-anchor="${anchor}">${words}</text>`;
  const line = (x1, x2, y1, y2, kind = 'grid') =>
    `<line class="${kind}" x1="${x1}" x2="${x2}" y1="${y1}" y2="${y2}"/>`;
  let svg = '';
  for (let power = low; times.length > 0 && power <= high; ++power) {
    const at = y(10 ** power);
    svg += line(left, right, at, at) + text(left - 6, at + 4, 'end', timeText(10 ** power));
  }
  data.sizes.forEach((bytes, index) => {
    if (index % 5 !== 0) return;
    svg += line(x(index), x(index), top, bottom) +
      text(x(index), bottom + 18, 'middle', sizeText(bytes));
  });
  svg += line(x(chosen.sizeIndex), x(chosen.sizeIndex), top, bottom, 'here') +
    text((left + right) / 2, bottom + 38, 'middle', 'buffer', 'soft');
  family.algorithms.forEach((algorithm, i) => {
    const points = rows.map((row, index) => [index, row[i].seconds])
      .filter(([, seconds]) => seconds > 0)
      .map(([index, seconds]) => `${x(index).toFixed(1)},${y(seconds).toFixed(1)}`);
    svg += `<polyline class="c${i % 7} ${algorithm.cautionary ? 'dashed' : ''}"
      points="${points.join(' ')}"/>`;
  });
  byId('chart').innerHTML = svg;
  byId('chart').setAttribute('aria-label', 'Time over size; the numbers are in the table below');

  const heads = ['buffer', ...family.algorithms.map(algorithm => algorithm.name)]
    .map(head => `<th scope="col">${escaped(head)}</th>`);
  byId('numbers').innerHTML = `<thead><tr>${heads.join('')}</tr></thead>` +
    rows.map((row, index) => `<tr><th scope="row">${sizeText(data.sizes[index])}</th>` +
      row.map(path => `<td>${timeText(path.seconds)}</td>`).join('') + '</tr>').join('');
}

function drawCosts(family, ranks) {
  const compared = family.algorithms.every(algorithm => algorithm.costs);
  byId('costs').hidden = !compared;
  if (!compared) return;
  const chosen = network();
  byId('size-text').textContent = sizeText(chosen.bytes);
  byId('alpha-text').textContent = timeText(chosen.alpha);
  byId('beta-text').textContent = `${digits(chosen.beta * 1e9)} ns (${rateText(1 / chosen.beta)})`;
  for (const slider of ['size', 'alpha', 'beta'])
    byId(slider).setAttribute('aria-valuetext', byId(`${slider}-text`).textContent);
  const paths = pathsOf(family, ranks, chosen.sizeIndex, chosen);
  byId('why').textContent = reason(paths, chosen);
  drawBars(paths, chosen);
  drawChart(family, ranks, chosen);
}
